"""The text format of the TU Dortmund graph collections (TUDataset), as one block-diagonal graph.

C. Morris et al., "TUDataset: A collection of benchmark datasets for learning with graphs", 2020 (graphlearning.io). All
lines count from 1, and so do the node and graph numbers in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader
from mgg.graph.sources.collection import Unpacked, numbered, one_hot
from mgg.graph.text import Column, Layout, counted, lines, read_rows

_ARCS = "_A.txt"
_ENDS = Layout((Column("row"), Column("column")), ",", comments=b"")
#: Graph numbers without a list of graphs to compare them with.
_MOST_GRAPHS = 2**31 - 1


@loader("tu")
def load(path: Path) -> StreamedGraph:
    """Read a folder, or an archive of one, with ``NAME_A.txt`` and ``NAME_graph_indicator.txt``.

    A line ``i, j`` of ``NAME_A.txt`` is entry (row i, column j) of the adjacency matrix, as the format says. Every node
    gets the class of its graph (``NAME_graph_labels.txt``, optional: any whole numbers, which become 0, 1, ... in
    ascending order). Features are ``NAME_node_attributes.txt``, else ``NAME_node_labels.txt``, each of its columns
    one-hot, else none. Labels and attributes of edges are not read. The format has no split. Arcs and attributes are
    read block by block, as often as they are asked for.

    Raises:
        InputError: names the file and line that is malformed, names a node or graph that does not exist, joins two
            graphs, or is one too many or too few.
    """
    return _Files.find(Unpacked(path)).graph()


@dataclass(frozen=True)
class _Files:
    """The files of one collection."""

    unpacked: Unpacked
    prefix: str
    folder: Path

    @classmethod
    def find(cls, unpacked: Unpacked) -> _Files:
        arcs = unpacked.only(f"*{_ARCS}")
        return cls(unpacked, arcs.name.removesuffix(_ARCS), arcs.parent)

    def path(self, part: str) -> Path:
        return self.folder / f"{self.prefix}_{part}.txt"

    def graph(self) -> StreamedGraph:
        labels = classes = None
        names = _numbers(self.path("graph_labels"), "graph label", 1)[0] if self.path("graph_labels").exists() else None
        graph_of = self._graph_of(_MOST_GRAPHS if names is None else len(names))
        if names is not None:
            graph_classes, classes = numbered(names)
            labels = graph_classes[graph_of]

        def read() -> Iterator[Arcs]:
            return _arcs(self, graph_of)

        return StreamedGraph(ArcStream(read, len(graph_of)), self._features(len(graph_of)), labels, None, classes)

    def _graph_of(self, graphs: int) -> np.ndarray:
        """int32 [nodes]: the number of each node's graph, from 0."""
        path = self.path("graph_indicator")
        layout = Layout((Column("graph"),), ",", comments=b"")
        parts = [(rows.ids(0, 1, graphs) - 1).astype(np.int32) for rows in read_rows(path, layout)]
        if not sum(map(len, parts)):
            raise InputError(f"{path}: names no node")
        return np.concatenate(parts)

    def _features(self, nodes: int) -> FeatureStream | None:
        attributes, labels = self.path("node_attributes"), self.path("node_labels")
        if attributes.exists():
            width = _width(attributes)
            return FeatureStream(lambda: _attributes(self, width, nodes), width)
        if labels.exists():
            return one_hot(_numbers(labels, "node label", _width(labels), nodes))
        return None


def _arcs(files: _Files, graph_of: np.ndarray) -> Iterator[Arcs]:
    for rows in read_rows(files.path("A"), _ENDS):
        targets, sources = (rows.ids(column, 1, len(graph_of)) - 1 for column in (0, 1))
        apart = np.flatnonzero(graph_of[targets] != graph_of[sources])
        if apart.size:
            ends = targets[apart[0]], sources[apart[0]]
            what = " and ".join(f"node {end + 1} of graph {graph_of[end] + 1}" for end in ends)
            raise rows.error(int(apart[0]), f"joins {what}: arcs stay within a graph")
        yield Arcs(targets, sources)


def _attributes(files: _Files, width: int, nodes: int) -> Iterator[np.ndarray]:
    path = files.path("node_attributes")
    layout = Layout(tuple(Column(f"attribute {i + 1}", "float64") for i in range(width)), ",", comments=b"")
    for rows in counted(read_rows(path, layout), path, nodes, files.path("graph_indicator").name):
        if rows.count:
            yield np.stack([rows.finite(column) for column in range(width)], axis=1)


def _numbers(path: Path, name: str, width: int, count: int | None = None) -> list[np.ndarray]:
    """The ``width`` int64 columns of a file, ``count`` lines of it where that is known."""
    layout = Layout((Column(name),) * width, ",", comments=b"")
    rows = read_rows(path, layout)
    if count is not None:
        rows = counted(rows, path, count, "the graph indicator")
    parts = [part.columns for part in rows]
    if not parts:
        raise InputError(f"{path}: is empty")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _width(path: Path) -> int:
    """Number of fields of the first line that has any."""
    first = next((line for _, line in lines(path) if line.strip()), None)
    if first is None:
        raise InputError(f"{path}: is empty")
    return first.count(",") + 1
