"""Convert PyTorch Geometric and DGL graphs to graph folders through stage graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mgg.config import Loops, Repeats
from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.check import UNKNOWN, check_weights, split_vector
from mgg.graph.external import Memory
from mgg.graph.io.columns import what_is_read
from mgg.graph.manifest import Manifest
from mgg.graph.source import Source, report_columns
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, FeatureStream, StreamedGraph
from mgg.graph.user_files import check_name

#: DGL's names for the node data that PyTorch Geometric calls x and y.
_DGL_NODES = {"x": "feat", "y": "label"}
_WEIGHTS = "edge_weight"
_MASKS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}
#: Feature values per block: 16 MiB.
_BLOCK_VALUES = 2**22
#: Types of arcs are stored as int32.
_MOST_RELATIONS = 2**31
_NUMPY_FLOATS = (torch.float16, torch.float32, torch.float64)


def shards(
    data: Any,
    folder: str | Path,
    *,
    name: str,
    weights: str | None = None,
    split: int | None = None,
    symmetrize: bool = False,
    repeats: Repeats | None = None,
    loops: Loops | None = None,
    order: str = "natural",
    memory: Memory | None = None,
) -> Manifest:
    """Make the graph folder ``folder`` from a graph in memory; the same graph gives the same bytes.

    An arc from ``edge_index[0]`` to ``edge_index[1]`` (DGL: from source to destination) puts its source into the row of
    its target, so A X equals the sums in layers of both libraries. As for every source but matrices, self-loops are
    dropped and of repeated arcs the first is kept, unless ``loops`` and ``repeats`` say otherwise; the manifest counts
    them. Other attributes are not stored; a warning and the manifest list them.

    Args:
        data: a ``torch_geometric.data.Data`` with ``edge_index`` and any of ``x`` [nodes, columns], ``y``,
            ``train_mask``, ``val_mask``, ``test_mask``, ``edge_weight`` and ``edge_type``; or a homogeneous DGL graph
            with ``ndata`` ``feat``, ``label`` and the masks, and ``edata``. ``y`` is integers [nodes] or [nodes, 1], -1
            for no label; several columns of 0, 1 and NaN (unknown) are the tasks of a multi-label graph.
        folder: the graph folder; an existing one is replaced once the new one is complete.
        name: name of the graph: letters, digits, ``_``, ``.`` and ``-``; not a data set's or generator's name.
        weights: the arcs' attribute with their weights; None: ``edge_weight``, if there is one.
        split: the column to use of masks with several columns.
        symmetrize, repeats, loops, order, memory: as in :func:`mgg.graph.build.build`.

    Raises:
        InputError: ``name`` is invalid; or an attribute, arc or node is wrong (the message names it).
        MachineError: there is too little memory, or the disk is full.
    """
    if not isinstance(name, str):
        raise InputError(f"name is a {type(name).__name__}: expected a str")
    check_name(name)
    given = _Dgl(data) if hasattr(data, "ndata") else _Pyg(data)
    nodes = given.nodes
    labels, tasks = _labels(given.node("y"), nodes, name)
    graph = StreamedGraph(
        arcs=_arcs(given, nodes, name, weights),
        features=_features(given.node("x"), nodes, name),
        labels=labels,
        splits=_splits(given, nodes, name, split),
        tasks=tasks,
        columns=given.left({_WEIGHTS if weights is None else weights, "edge_type"}),
    )
    return build(
        Source(name, graph, {"loader": given.loader, **report_columns(name, graph)}), folder, symmetrize=symmetrize,
        repeats=repeats, loops=loops, order=order, memory=memory,
    )  # fmt: skip


class _Pyg:
    """Access to a ``Data`` of PyTorch Geometric."""

    loader = "pyg"

    def __init__(self, data: Any) -> None:
        if not isinstance(getattr(data, "edge_index", None), torch.Tensor):
            raise InputError(
                f"{type(data).__name__} has no edge_index: expected a torch_geometric.data.Data (without the transform"
                " ToSparseTensor) or a DGL graph"
            )
        self._data = data
        self.nodes = int(data.num_nodes)
        self.ends: torch.Tensor = data.edge_index

    def node(self, name: str) -> Any:
        """Return the node data ``name``, of any type."""
        return getattr(self._data, name, None)

    arc = node

    def left(self, arcs: set[str]) -> dict[str, dict[str, Any]]:
        """Return the attributes that are ignored: all but those of nodes and ``arcs`` that are read."""
        read = {"edge_index", "num_nodes", "x", "y", *_MASKS.values(), *arcs}
        return what_is_read(attributes={"ignored": sorted(set(self._data.keys()) - read)})


class _Dgl:
    """Access to a homogeneous DGL graph."""

    loader = "dgl"

    def __init__(self, graph: Any) -> None:
        if not graph.is_homogeneous:
            raise InputError("the DGL graph has several types of nodes or edges: dgl.to_homogeneous makes one of them")
        self._graph = graph
        self.nodes = int(graph.num_nodes())
        self.ends = torch.stack(graph.edges())

    def node(self, name: str) -> Any:
        """Return the node data that PyTorch Geometric calls ``name``."""
        name = _DGL_NODES.get(name, name)
        return self._graph.ndata.get(name)

    def arc(self, name: str) -> Any:
        """Return the arcs' data that DGL calls ``name``."""
        return self._graph.edata.get(name)

    def left(self, arcs: set[str]) -> dict[str, dict[str, Any]]:
        """Return the data that are ignored: all but those of nodes and ``arcs`` that are read."""
        read = {*_DGL_NODES.values(), *_MASKS.values()}
        return what_is_read(
            edges={"ignored": sorted(self._graph.edata.keys() - arcs)},
            nodes={"ignored": sorted(self._graph.ndata.keys() - read)},
        )


def _arcs(given: _Pyg | _Dgl, nodes: int, name: str, weights: str | None) -> ArcStream:
    ends = _host(given.ends, f"{name}: edge_index")
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise InputError(f"{name}: edge_index must be integers [2, arcs], found {ends.dtype} of shape {ends.shape}")
    bad = np.flatnonzero(((ends < 0) | (ends >= nodes)).any(axis=0))
    if bad.size:
        here = ends[:, bad[0]].tolist()
        raise InputError(
            f"{name}: edge_index: arc {bad[0]} joins nodes {here[0]} and {here[1]}; nodes are 0..{nodes - 1}"
        )
    values, types = _arc_weights(given, ends.shape[1], name, weights), _arc_types(given, ends.shape[1], name)

    def read() -> Iterator[Arcs]:
        for lo in range(0, ends.shape[1], CHUNK_ARCS):
            at = slice(lo, lo + CHUNK_ARCS)
            more = (None if column is None else column[at] for column in (values, types))
            yield Arcs(ends[1, at], ends[0, at], *more)

    relations = 0 if types is None else int(types.max(initial=0)) + 1
    return ArcStream(read, nodes, weighted=values is not None, relations=relations)


def _arc_weights(given: _Pyg | _Dgl, arcs: int, name: str, asked: str | None) -> np.ndarray | None:
    if not isinstance(asked, str | None):
        raise InputError(f"{name}: weights is a {type(asked).__name__}: expected the name of an attribute, or None")
    key = _WEIGHTS if asked is None else asked
    given_weights = given.arc(key)
    if given_weights is None:
        if asked is None:
            return None
        raise InputError(
            f"{name}: weights {key!r}: the arcs have no such attribute; without weights {_WEIGHTS} counts, where it is"
        )
    values = _host(given_weights, f"{name}: {key}")
    if values.shape not in ((arcs,), (arcs, 1)) or values.dtype.kind == "c":
        raise InputError(f"{name}: {key} has shape {values.shape} of {values.dtype}, expected {arcs} weights")
    values = values.reshape(arcs)
    return check_weights(values, lambda arc, problem: InputError(f"{name}: {key}: weight of arc {arc} {problem}"))


def _arc_types(given: _Pyg | _Dgl, arcs: int, name: str) -> np.ndarray | None:
    given_types = given.arc("edge_type")
    if given_types is None:
        return None
    types = _host(given_types, f"{name}: edge_type")
    if types.shape != (arcs,) or types.dtype.kind not in "iu":
        raise InputError(f"{name}: edge_type must be {arcs} integers, found {types.dtype} of shape {types.shape}")
    bad = np.flatnonzero((types < 0) | (types >= _MOST_RELATIONS))
    if bad.size:
        raise InputError(f"{name}: edge_type of arc {bad[0]} is {types[bad[0]]}; types are 0..{_MOST_RELATIONS - 1}")
    return types.astype(np.int32)


def _features(given: Any, nodes: int, name: str) -> FeatureStream | None:
    if given is None:
        return None
    x = _tensor(given, f"{name}: x")
    if x.is_complex():
        raise InputError(f"{name}: x is {x.dtype}, expected real numbers")
    if x.dim() != 2 or len(x) != nodes or x.shape[1] < 1:
        raise InputError(f"{name}: x has shape {tuple(x.shape)}, expected [{nodes}, columns], of one column or more")
    rows = max(1, _BLOCK_VALUES // x.shape[1])
    dense = x if x.layout == torch.strided else x.to_dense()

    def read() -> Iterator[np.ndarray]:
        for lo in range(0, nodes, rows):
            yield _host(dense[lo : lo + rows].to(torch.float32), f"{name}: x")

    return FeatureStream(read, x.shape[1])


def _labels(y: Any, nodes: int, name: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return ``labels`` and ``tasks`` of a StreamedGraph; at most one is not None."""
    if y is None:
        return None, None
    values = _host(y, f"{name}: y")
    if values.shape in ((nodes,), (nodes, 1)) and values.dtype.kind in "iu":
        return values.reshape(nodes), None
    if values.ndim != 2 or len(values) != nodes or values.shape[1] < 2:
        raise InputError(
            f"{name}: labels are {values.dtype} of shape {values.shape}; expected {nodes} integers, or a column a task"
        )
    unknown = np.isnan(values)
    bad = np.argwhere(~unknown & (values != 0) & (values != 1))
    if bad.size:
        node, task = bad[0].tolist()
        raise InputError(f"{name}: task {task} of node {node} is {values[node, task]}; expected 0, 1 or NaN")
    return None, np.where(unknown, UNKNOWN, np.nan_to_num(values)).astype(np.uint8)


def _splits(given: _Pyg | _Dgl, nodes: int, name: str, split: int | None) -> np.ndarray | None:
    found = {part: given.node(mask) for part, mask in _MASKS.items()}
    members = {}
    for part, mask in found.items():
        if mask is not None:
            members[part] = np.flatnonzero(_mask(mask, nodes, f"{name}: {_MASKS[part]}", split))
    return split_vector(nodes, name, **members) if members else None


def _mask(mask: Any, nodes: int, what: str, split: int | None) -> np.ndarray:
    values = _host(mask, what)
    if values.ndim == 2 and len(values) == nodes:
        if split is None or not 0 <= split < values.shape[1]:
            raise InputError(f"{what} has {values.shape[1]} columns: choose one with split, 0..{values.shape[1] - 1}")
        values = values[:, split]
    if values.shape != (nodes,) or values.dtype.kind not in "bu":
        raise InputError(f"{what} must be {nodes} booleans, found {values.dtype} of shape {values.shape}")
    return values


def _tensor(given: Any, what: str) -> torch.Tensor:
    if not isinstance(given, torch.Tensor):
        raise InputError(f"{what} is a {type(given).__name__}, expected a torch.Tensor")
    return given


def _host(given: Any, what: str) -> np.ndarray:
    """Return a tensor as an array in host memory; on CPUs it shares memory, unless a negation is pending.

    Types that NumPy lacks (bfloat16) become float32.
    """
    tensor = _tensor(given, what)
    if tensor.layout != torch.strided:
        raise InputError(f"{what} is sparse ({tensor.layout}), expected a dense tensor: take its to_dense()")
    if tensor.is_floating_point() and tensor.dtype not in _NUMPY_FLOATS:
        tensor = tensor.to(torch.float32)
    return np.from_dlpack(tensor.detach().cpu().resolve_neg())
