"""PyTorch Geometric layers whose messages depend on both ends or the type of an arc, through vertex programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.nn import GATv2Conv, MessagePassing, PNAConv, ResGatedGraphConv, RGCNConv, TransformerConv
from torch_geometric.nn.aggr import (
    MaxAggregation,
    MeanAggregation,
    MinAggregation,
    MultiAggregation,
    StdAggregation,
    SumAggregation,
    VarAggregation,
)

from mgg.errors import InputError
from mgg.interop import programs
from mgg.interop.graph import Graph
from mgg.interop.vertex import apply
from mgg.vertex.trace import Program

_AGGREGATORS = {
    SumAggregation: "sum", MeanAggregation: "mean", MaxAggregation: "max", MinAggregation: "min",
    StdAggregation: "std", VarAggregation: "var",
}  # fmt: skip


@dataclass(frozen=True)
class Converted:
    """A layer as a vertex program plus its row-wise part.

    Attributes:
        program: the program over the neighbors.
        parameters: returns the program's parameters, made from the layer's current ones so that gradients reach these.
        finished: returns the layer's output from ``x`` and the program's output.
    """

    program: Program
    parameters: Callable[[], Mapping[str, Any]]
    finished: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def converted(conv: MessagePassing, graph: Graph) -> Converted:
    """Convert ``conv`` to a vertex program.

    Args:
        conv: a layer of one of ``KINDS``.
        graph: the graph that it will be used on.

    Raises:
        InputError: an option is unsupported; names it.
    """
    name = type(conv).__name__
    if isinstance(conv.in_channels, tuple | list):
        raise InputError(f"{name}: in_channels must be one number, found {conv.in_channels}: rows have one kind")
    if any(isinstance(each, torch.nn.parameter.UninitializedParameter) for each in conv.parameters()):
        raise InputError(f"{name}: in_channels is -1 and the layer has no weights yet: give it a number")
    if getattr(conv, "edge_dim", None) is not None:
        raise InputError(f"{name}: edge_dim must be None, found {conv.edge_dim}: arcs have no features")
    if type(conv) in (GATv2Conv, TransformerConv, ResGatedGraphConv) and not isinstance(
        conv.aggr_module, SumAggregation
    ):
        raise InputError(f"{name}: aggr must be add, found {conv.aggr}")
    if graph.layout.manifest.weighted:
        raise InputError(f"{name}: has no edge weights, and {graph.layout.manifest.name} has some")
    return KINDS[type(conv)](conv, graph)


class ByProgram:
    """Replacement of a layer's ``forward``.

    Args:
        conv: the layer.
        graph: this PE's part of the graph.
        check: raises InputError unless the arcs passed in are the graph's.
        seed, place: determine the masks of its dropout; each training pass has its own masks.
    """

    def __init__(
        self, conv: MessagePassing, graph: Graph, check: Callable[[Any, list[Any]], None], seed: int, place: int
    ) -> None:
        self._conv, self._graph, self._check, self._seed, self._place = conv, graph, check, seed, place
        self._passes = 0
        converted(conv, graph)

    def __call__(self, x: Any, edge_index: Any, *rest: Any, **named: Any) -> torch.Tensor:
        """Return the layer's output for this PE's rows (collective)."""
        conv, name = self._conv, type(self._conv).__name__
        weights = named.pop("return_attention_weights", None)
        if weights is not None or any(isinstance(each, bool) for each in rest):
            raise InputError(f"{name}: return_attention_weights must be None: no PE has the weights of all arcs")
        if not isinstance(x, torch.Tensor):
            raise InputError(f"{name}: x is a {type(x).__name__}: expected a torch.Tensor, [rows, columns]")
        self._check(edge_index, [*rest, *named.values()])
        made = converted(conv, self._graph)
        epoch = self._passes
        self._passes += conv.training
        y = apply(
            self._graph, made.program, x, made.parameters(), training=conv.training, seed=self._seed, epoch=epoch,
            place=self._place,
        )  # fmt: skip
        return made.finished(x, y)


def _linear(name: str, linear: Any) -> dict[str, Any]:
    """Return the program parameters W and b for ``linear``."""
    return {f"W_{name}": linear.weight.T, f"b_{name}": linear.bias}


def _merged(y: torch.Tensor, concat: bool) -> torch.Tensor:
    """Return the heads concatenated, or their mean."""
    return y.flatten(1) if concat else y.mean(dim=1)


def _gatv2(conv: Any, graph: Graph) -> Converted:
    if conv.add_self_loops and graph.layout.manifest.relations:
        raise InputError(
            f"GATv2Conv: add_self_loops must be False: the arcs of {graph.layout.manifest.name} have types, a loop none"
        )

    def finished(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = _merged(y, conv.concat)
        out = out if conv.res is None else out + conv.res(x)
        return out if conv.bias is None else out + conv.bias

    def parameters() -> dict[str, Any]:
        projections = _linear("target", conv.lin_r) | _linear("source", conv.lin_l)
        return {**projections, "a": conv.att[0], "slope": conv.negative_slope, "rate": conv.dropout}

    return Converted(programs.GATV2[bool(conv.add_self_loops)], parameters, finished)


def _transformer(conv: Any, graph: Graph) -> Converted:
    def finished(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = _merged(y, conv.concat)
        if not conv.root_weight:
            return out
        own = conv.lin_skip(x)
        if conv.lin_beta is None:
            return out + own
        beta = conv.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
        return beta * own + (1 - beta) * out

    def parameters() -> dict[str, Any]:
        projections = _linear("query", conv.lin_query) | _linear("key", conv.lin_key) | _linear("value", conv.lin_value)
        return {**projections, "heads": conv.heads, "rate": conv.dropout}

    return Converted(programs.transformer, parameters, finished)


def _gated(conv: Any, graph: Graph) -> Converted:
    if not isinstance(conv.act, torch.nn.Sigmoid):
        raise InputError(f"ResGatedGraphConv: act must be torch.nn.Sigmoid(), found {conv.act}")

    def finished(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = y + conv.lin_skip(x) if conv.root_weight else y
        return out if conv.bias is None else out + conv.bias

    def parameters() -> dict[str, Any]:
        return _linear("key", conv.lin_key) | _linear("query", conv.lin_query) | _linear("value", conv.lin_value)

    return Converted(programs.gated, parameters, finished)


def _pna(conv: Any, graph: Graph) -> Converted:
    scaled, towers, columns = conv.aggr_module, conv.towers, conv.F_in
    aggregators = list(scaled.aggr.aggrs) if isinstance(scaled.aggr, MultiAggregation) else [scaled.aggr]
    for each in aggregators:
        if type(each) not in _AGGREGATORS or getattr(getattr(each, "var_aggr", each), "semi_grad", False):
            able = ", ".join(_AGGREGATORS.values())
            raise InputError(f"PNAConv: aggregators must be of {able}, found {each}")
    for scaler in scaled.scaler:
        if scaler not in programs.SCALERS:
            raise InputError(f"PNAConv: scalers must be of {', '.join(programs.SCALERS)}, found {scaler!r}")
    if any(len(tower) > 1 for tower in conv.pre_nns):
        layers = (len(conv.pre_nns[0]) + 1) // 2
        raise InputError(f"PNAConv: pre_layers must be 1, found {layers}: messages are sums of what both ends have")

    def parameters() -> dict[str, Any]:
        parts = [tower[0].weight.T.split(columns) for tower in conv.pre_nns]  # of the target, of the source
        target, source = (
            torch.block_diag(*matrices) if conv.divide_input else torch.cat(matrices, dim=1)
            for matrices in zip(*parts, strict=True)
        )
        return {
            "W_target": target,
            "W_source": source,
            "b": torch.cat([tower[0].bias for tower in conv.pre_nns]),
            "degree": scaled.avg_deg_lin.reshape(()),
            "log_degree": scaled.avg_deg_log.reshape(()),
            "towers": towers,
            "aggregators": " ".join(_AGGREGATORS[type(each)] for each in aggregators),
            "scalers": " ".join(scaled.scaler),
        }

    def finished(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own = x.reshape(len(x), towers if conv.divide_input else 1, columns).expand(-1, towers, -1)
        both = torch.cat([own, y], dim=-1)
        result: torch.Tensor = conv.lin(
            torch.cat([tower(both[:, number]) for number, tower in enumerate(conv.post_nns)], dim=1)
        )
        return result

    return Converted(programs.principal, parameters, finished)


def _relational(conv: Any, graph: Graph) -> Converted:
    relations, name = graph.layout.manifest.relations, graph.layout.manifest.name
    if not relations:
        raise InputError(f"RGCNConv: the arcs of {name} have no types (edge_type)")
    if relations > conv.num_relations:
        raise InputError(
            f"RGCNConv: num_relations is {conv.num_relations}, and the arcs of {name} are of {relations} types"
        )
    if type(conv.aggr_module) not in (SumAggregation, MeanAggregation, MaxAggregation):
        raise InputError(f"RGCNConv: aggr must be mean, add or max, found {conv.aggr}")

    def parameters() -> dict[str, Any]:
        weight = conv.weight
        if conv.num_bases is not None:
            weight = torch.einsum("rb,bio->rio", conv.comp, weight)
        elif conv.num_blocks is not None:
            weight = torch.stack([torch.block_diag(*blocks) for blocks in weight])
        return {"W": weight[:relations], "aggregator": _AGGREGATORS[type(conv.aggr_module)]}

    def finished(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = y if conv.root is None else y + x @ conv.root
        return out if conv.bias is None else out + conv.bias

    return Converted(programs.relational, parameters, finished)


KINDS: dict[type, Callable[[Any, Graph], Converted]] = {
    GATv2Conv: _gatv2, TransformerConv: _transformer, ResGatedGraphConv: _gated, PNAConv: _pna, RGCNConv: _relational,
}  # fmt: skip
