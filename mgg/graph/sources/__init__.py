"""Graph sources: one module per source, found automatically.

A module registers a loader (raw files -> graph) with :func:`loader`. To add a source, add one file to this folder.
Generators are in ``mgg.graph.generators``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np

from mgg.config import Loops, Repeats
from mgg.graph.csr import Csr
from mgg.registry import Registry


@dataclass(frozen=True)
class GraphData:
    """A whole graph in memory, as generators return it.

    Attributes:
        csr: the square adjacency matrix.
        symmetric: whether the matrix equals its transpose; None: unknown.
        features: float32 [nodes, columns] or None.
        labels: integers [nodes], -1: unlabeled, or None.
        splits: uint8 [nodes] (0 none, 1 train, 2 validation, 3 test) or None.
        classes: number of classes, or None for the largest label + 1.
    """

    csr: Csr
    symmetric: bool | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    splits: np.ndarray | None = None
    classes: int | None = None


class _Merging(TypedDict):
    repeats: Repeats
    loops: Loops


#: Merging of a matrix's entries, so that products with the graph equal products with SciPy's matrix.
AS_MATRIX: _Merging = {"repeats": "sum", "loops": "keep"}
#: Maximum arcs per chunk of an :class:`ArcStream`.
CHUNK_ARCS = 2**20


@dataclass(frozen=True)
class Arcs:
    """Some arcs of a graph, in the order in which its source lists them.

    Attributes:
        targets: integers [arcs], the rows of the adjacency matrix.
        sources: integers [arcs], its columns.
        weights: numbers [arcs], finite as float32, or None if every arc weighs 1.
        types: int32 [arcs], relation of each arc, or None.
    """

    targets: np.ndarray
    sources: np.ndarray
    weights: np.ndarray | None = None
    types: np.ndarray | None = None


@dataclass(frozen=True)
class ArcStream:
    """Arcs that need not fit into memory.

    Attributes:
        read: yields the same arcs at every call, at most CHUNK_ARCS at a time; raises InputError that names file and
            line (or byte) of an error, ids outside 0..nodes-1 included.
        nodes: number of nodes; None: the nodes are the ids that occur (0 to 2^63 - 1), renumbered in ascending order.
        weighted: whether arcs have weights.
        relations: number of arc types, 0: arcs have none.
        undirected: each arc stands for both directions; a self-loop counts once.
        repeats: default weight of arcs that join the same nodes (with the same type): the ``first``, their ``sum``
            (without weights: their number) or their ``max``.
        loops: default for arcs from a node to itself: ``keep`` or ``drop``.
        stated_nodes: number of nodes that the source states, checked once the ids that occur are known.
        stated_in: place of that statement, ``PATH: line N``, for errors; "" without one.
    """

    read: Callable[[], Iterator[Arcs]]
    nodes: int | None
    weighted: bool = False
    relations: int = 0
    undirected: bool = False
    repeats: Repeats = "first"
    loops: Loops = "drop"
    stated_nodes: int | None = None
    stated_in: str = ""


@dataclass(frozen=True)
class FeatureStream:
    """Feature rows that need not fit into memory.

    Attributes:
        read: yields finite float32 [rows, width] blocks in the order of the nodes, the same at every call.
        width: feature columns.
    """

    read: Callable[[], Iterator[np.ndarray]]
    width: int


@dataclass(frozen=True)
class StreamedGraph:
    """A graph of any size, as loaders return it; node data need ``arcs.nodes``.

    Attributes:
        arcs: its arcs, in any order, repeats and self-loops included.
        features: feature rows of all nodes, or None.
        labels: integers [nodes], -1: unlabeled, or None.
        splits: uint8 [nodes] (0 none, 1 train, 2 validation, 3 test) or None.
        classes: number of classes, or None for the largest label + 1.
        tasks: uint8 [nodes, tasks] of 0 and 1 (255: unknown), the labels of a multi-label data set, or None.
        ids: int64 [nodes], the source's own ids, or None if they equal the ids in ``arcs`` (or ``arcs.nodes`` is None).
        loader: the loader that read the file if the requested one passed it on; else "".
        columns: what was read: kind (edges, nodes, files, ...) -> role -> names; the role ``ignored`` lists what was
            not read.
    """

    arcs: ArcStream
    features: FeatureStream | None = None
    labels: np.ndarray | None = None
    splits: np.ndarray | None = None
    classes: int | None = None
    tasks: np.ndarray | None = None
    ids: np.ndarray | None = None
    loader: str = ""
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


#: Reads a file or folder; raises InputError that names the file if its format is not the loader's. Loaders of tables
#: also take the user's choice of columns.
Loader = Callable[..., StreamedGraph]


#: The loaders that ``loader`` has registered.
LOADERS: Registry[Loader] = Registry(__name__, "loader", "loader", unknown="unknown {what} {name!r}")
_SUFFIXES: dict[str, tuple[str, ...]] = {}
_OF_TABLES: set[str] = set()
L = TypeVar("L", bound=Loader)


def loader(name: str, *suffixes: str, columns: bool = False) -> Callable[[L], L]:
    """Register the decorated function as the loader ``name``, the default for files that end in ``suffixes``.

    ``columns``: the loader reads tables, and takes a :class:`mgg.graph.io.columns.Columns` after the path.
    """

    def register(function: L) -> L:
        LOADERS.add(name, function, function.__module__)
        _SUFFIXES[name] = suffixes
        _OF_TABLES.update([name] * columns)
        return function

    return register


def loaders() -> dict[str, Loader]:
    """Return every loader by name."""
    return LOADERS.all()


def loader_of(path: Path) -> str | None:
    """Return the name of a file's default loader by its suffix (the longest that fits), or None."""
    fitting = {
        suffix: name for name in loaders() for suffix in _SUFFIXES.get(name, ()) if path.name.lower().endswith(suffix)
    }
    return fitting[max(fitting, key=len)] if fitting else None


def reads_columns(name: str) -> bool:
    """Return whether a loader reads tables, whose columns the user may name."""
    find_loader(name)
    return name in _OF_TABLES


def find_loader(name: str) -> Loader:
    """Return the loader ``name``; raises InputError with the nearest names, or with the error in the loader's file."""
    return LOADERS.find(name)
