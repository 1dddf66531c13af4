"""Layers of PyTorch Geometric whose propagate step is an aggregation of MGG."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

try:
    from torch_geometric.nn import GCNConv, GINConv, MessagePassing, RGCNConv, SAGEConv
    from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
except ImportError as error:
    raise ImportError(f"mgg.interop.use needs PyTorch Geometric ({error}): pip install 'mgg[torch]'") from None

from mgg.errors import InputError
from mgg.graph.csr import row_ids
from mgg.interop.graph import Graph, aggregate
from mgg.interop.layers import KINDS, ByProgram

#: Replacement of propagate: this PE's rows -> this PE's rows.
Propagation = Callable[[torch.Tensor], torch.Tensor]


def use(module: torch.nn.Module, graph: Graph | None, *, seed: int = 0) -> torch.nn.Module:
    """Make every convolution in ``module`` aggregate through MGG, in place; parameters and state_dict stay.

    Call the module as before, on every PE with its rows, and pass ``graph`` instead of ``edge_index``. On a single PE
    the tensors ``edge_index`` and ``edge_weight`` also work; they must be this graph's arcs.

    ``GCNConv`` keeps its normalization and self-loops, computed from the layout. As in PyTorch Geometric, an existing
    self-loop is kept and none is added. Weights are the graph's. ``SAGEConv`` with mean or sum and ``GINConv`` ignore
    weights, so the graph must have none.

    ``GATv2Conv``, ``TransformerConv``, ``ResGatedGraphConv``, ``PNAConv`` and ``RGCNConv`` run as vertex programs
    (docs/guides/vertex.md), in float32 or float64, without arc weights or arc features. Arc types are the graph's.

    Args:
        module: a convolution, or a module that contains convolutions.
        graph: this PE's part of the graph; None restores PyTorch Geometric's own propagate.
        seed: seed of dropout inside such layers; its masks are the same on any number of PEs.

    Returns:
        ``module``.

    Raises:
        InputError: a convolution is of an unsupported kind, or its settings or the graph are unsupported; nothing is
            changed then.
    """
    found = [child for child in module.modules() if isinstance(child, MessagePassing)]
    if not found:
        raise InputError(f"{type(module).__name__} contains no convolution of PyTorch Geometric")
    replaced: list[dict[str, Any]] = [{} for _ in found]
    if graph is not None:
        replaced = [_replaced(conv, graph, seed, place) for place, conv in enumerate(found)]
    for conv, functions in zip(found, replaced, strict=True):
        for name in ("forward", "propagate"):
            vars(conv).pop(name, None)
        vars(conv).update(functions)
    return module


def _replaced(conv: MessagePassing, graph: Graph, seed: int, place: int) -> dict[str, Any]:
    """Return the replacements of methods of ``conv``, by name."""
    if conv.flow != "source_to_target" or conv.node_dim not in (0, -2):
        raise InputError(f"{type(conv).__name__}: flow must be source_to_target and node_dim -2, the defaults")
    arcs = _Adjacency(graph, typed=type(conv) is RGCNConv)
    if type(conv) in KINDS:
        return {"forward": ByProgram(conv, graph, arcs.check, seed, place)}
    return {"forward": partial(_forward, conv, arcs), "propagate": partial(_propagate, _propagation(conv, graph))}


class _Adjacency:
    """Check of the arcs that callers pass to a layer.

    Args:
        graph: this PE's part of the graph.
        typed: arcs come with types instead of weights.
    """

    def __init__(self, graph: Graph, typed: bool) -> None:
        self.graph, self._typed = graph, typed
        self._checked: list[tuple[torch.Tensor, int]] = []

    def check(self, edge_index: Any, given: list[Any]) -> None:
        """Raise InputError unless ``edge_index``, and the weights in ``given``, stand for the graph."""
        given = [value for value in given if value is not None]
        if not isinstance(edge_index, torch.Tensor):
            if edge_index is not self.graph:
                raise InputError(f"edge_index is a {type(edge_index).__name__}: expected the graph that the layer uses")
            if given:
                raise InputError("edge weights, types and sizes are the graph's: give none with it")
            return
        if len(given) > 1 or not all(isinstance(value, torch.Tensor) for value in given):
            raise InputError("edge weights or types must be one tensor, and sizes are the graph's")
        # Training passes the same tensors every epoch; references keep their memory from being reused.
        now = [(tensor, tensor._version) for tensor in (edge_index, *given)]
        if [(id(tensor), version) for tensor, version in now] != [(id(old), version) for old, version in self._checked]:
            _check_arcs(self.graph, edge_index, given[0] if given else None, self._typed)
            self._checked = now


def _forward(conv: Any, arcs: _Adjacency, x: Any, edge_index: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """Run the layer's own forward with the graph in place of the arcs; forward passes it on to propagate."""
    arcs.check(edge_index, [*rest, *named.values()])
    result: torch.Tensor = type(conv).forward(conv, x, arcs.graph)
    return result


def _propagate(propagation: Propagation, edge_index: Graph, x: Any, **_: Any) -> torch.Tensor:
    return propagation(x[0] if isinstance(x, tuple) else x)


def _propagation(conv: MessagePassing, graph: Graph) -> Propagation:
    name = type(conv).__name__
    if type(conv) is GCNConv:
        return _gcn(conv, graph)
    if type(conv) not in (SAGEConv, GINConv):
        raise InputError(
            f"{name}: cannot aggregate through MGG; GCNConv, SAGEConv, GINConv,"
            f" {', '.join(sorted(kind.__name__ for kind in KINDS))} can, and a layer of your own can call"
            " mgg.interop.aggregate or mgg.interop.apply"
        )
    if graph.layout.manifest.weighted:
        raise InputError(f"{name}: has no edge weights, and {graph.layout.manifest.name} has some")
    if type(conv.aggr_module) is SumAggregation:
        return partial(aggregate, graph)
    if type(conv.aggr_module) is MeanAggregation:
        return _mean(graph)
    raise InputError(f"{name}: aggr must be mean or sum, found {conv.aggr}")


def _gcn(conv: GCNConv, graph: Graph) -> Propagation:
    """Return s (A (s X) + l s X), s = (row sums of A + l)^-1/2; l is the weight of an added self-loop, or 0."""
    if not isinstance(conv.aggr_module, SumAggregation):
        raise InputError(f"GCNConv: aggr must be sum, found {conv.aggr}")
    if not conv.normalize:
        return partial(aggregate, graph)
    # PyTorch Geometric's improved self-loops weigh 2 if arcs have weights, else 1 like all arcs.
    own = 2.0 if conv.improved and graph.layout.manifest.weighted else 1.0
    fill = own if conv.add_self_loops else 0.0
    loops = np.where(_has_loop(graph), 0.0, fill)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = (_row_sums(graph) + loops) ** -0.5
    scales[np.isinf(scales)] = 0
    scale, loop = (torch.from_numpy(v.astype(np.float32)[:, None]).to(graph.device) for v in (scales, loops))

    def propagation(x: torch.Tensor) -> torch.Tensor:
        scaled = scale * x
        return scale * (aggregate(graph, scaled) + loop * scaled)

    return propagation


def _mean(graph: Graph) -> Propagation:
    counts = np.maximum(_row_sums(graph), 1).astype(np.float32)
    share = torch.from_numpy(1 / counts[:, None]).to(graph.device)
    return lambda x: share * aggregate(graph, x)


def _row_sums(graph: Graph) -> np.ndarray:
    """Return the weighted in-degrees of this PE's nodes, float64 [rows]."""
    product = graph.layout.forward
    local, remote = (part.to_scipy(np.float64).sum(axis=1) for part in (product.local, product.remote))
    return np.asarray(local + remote).ravel()


def _has_loop(graph: Graph) -> np.ndarray:
    """Return which of this PE's nodes have a self-loop, bool [rows]."""
    local = graph.layout.forward.local
    rows = row_ids(local)
    found = np.zeros(local.rows, bool)
    found[rows[rows == local.indices]] = True
    return found


def _check_arcs(graph: Graph, edge_index: torch.Tensor, values: torch.Tensor | None, typed: bool) -> None:
    """Raise InputError unless the tensors are the whole graph's arcs, in any order, with their weights or types."""
    if graph.world.size > 1:
        raise InputError("edge_index is a tensor: on several PEs give the graph in its place")
    arcs = graph.layout.forward.local
    expected = arcs.types if typed else arcs.weights
    ends = edge_index.detach().cpu().numpy()
    same = ends.shape == (2, arcs.arcs) and (values is None) == (expected is None)
    if same:
        found = [ends[0], ends[1]]  # sorted by target, then by source, then by type
        wanted = [arcs.indices, row_ids(arcs)]
        if values is not None and expected is not None:
            found.insert(0, values.detach().cpu().numpy().reshape(-1))
            wanted.insert(0, expected)
        same = all(len(each) == arcs.arcs for each in found)
        same = same and all(map(np.array_equal, _sorted(found), _sorted(wanted)))
    if not same:
        raise InputError(
            f"edge_index and {'edge_type' if typed else 'edge_weight'} are not the arcs of"
            f" {graph.layout.manifest.name}, each of them once"
        )


def _sorted(columns: list[np.ndarray]) -> list[np.ndarray]:
    """Sort ``columns`` by the last one, then by those before it."""
    order = np.lexsort(columns)
    return [column[order] for column in columns]
