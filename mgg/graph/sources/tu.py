"""The text format of the TU Dortmund graph collections (TUDataset), as one block-diagonal graph.

C. Morris et al., "TUDataset: A collection of benchmark datasets for learning with graphs", 2020 (graphlearning.io). All
lines count from 1, and so do the node and graph numbers in them.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgg.errors import InputError
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.text import LineFormat, TextColumn, counted, read_rows, width_of
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader
from mgg.graph.sources.collection import Unpacked, numbered, one_hot

_ARCS = "_A.txt"
_ENDS = LineFormat((TextColumn("row"), TextColumn("column")), ",", comments=b"")
_LABEL = LineFormat((TextColumn("edge label"),), ",", comments=b"")
#: Upper bound of graph numbers if there is no list of graphs to check them.
_MOST_GRAPHS = 2**31 - 1


@loader("tu")
def load(path: Path) -> StreamedGraph:
    """Read a folder, or an archive of one, with ``NAME_A.txt`` and ``NAME_graph_indicator.txt``.

    A line ``i, j`` of ``NAME_A.txt`` is entry (row i, column j) of the adjacency matrix, as the format specifies. Every
    node gets the class of its graph (``NAME_graph_labels.txt``, optional: any whole numbers, which become 0, 1, ... in
    ascending order). Features are ``NAME_node_attributes.txt``, else ``NAME_node_labels.txt`` with each column one-hot,
    else none. ``NAME_edge_labels.txt`` has one whole number per line of ``NAME_A.txt``: the type of the arc, numbered
    in ascending order. Several labels per edge, attributes of edges and graphs, node labels if there are attributes,
    and other files ``NAME_*.txt`` are listed as ignored. The format has no split. Arcs and attributes are read block by
    block, at every call.

    Raises:
        InputError: names the file and line that is malformed, names a node or graph that does not exist, joins two
            graphs, or is one too many or too few.
    """
    return _Files.find(Unpacked(path)).graph()


@dataclass(frozen=True)
class _Files:
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

        types = self._types()

        def read() -> Iterator[Arcs]:
            return _arcs(self, graph_of, types)

        arcs = ArcStream(read, len(graph_of), relations=0 if types is None else len(types))
        features = self._features(len(graph_of))
        return StreamedGraph(arcs, features, labels, None, classes, columns=self._columns(typed=types is not None))

    def _columns(self, *, typed: bool) -> dict[str, dict[str, Any]]:
        parts = sorted(
            file.name[len(self.prefix) + 1 : -4] for file in self.folder.glob(f"{glob.escape(self.prefix)}_*.txt")
        )
        features = next((part for part in ("node_attributes", "node_labels") if part in parts), "")
        read = {"A", "graph_indicator", "graph_labels", features, *(["edge_labels"] if typed else [])}
        left = [part for part in parts if part not in read]
        of = {kind: [part for part in left if part.startswith(f"{kind}_")] for kind in ("edge", "node", "graph")}
        rest = [part for part in left if not any(part in parts for parts in of.values())]
        return what_is_read(
            edges={"type": "edge_labels" if typed else "", "ignored": of["edge"]},
            nodes={
                "label": "graph_labels" if "graph_labels" in parts else "", "features": features, "ignored": of["node"],
            },
            graphs={"ignored": of["graph"]},
            files={"ignored": rest},
        )  # fmt: skip

    def _types(self) -> np.ndarray | None:
        """Return the edge labels that occur, int64 [relations], ascending; None if edges have none or several each."""
        path = self.path("edge_labels")
        if not path.exists() or width_of(path) > 1:
            return None
        found = np.empty(0, np.int64)
        for rows in read_rows(path, _LABEL):
            found = np.union1d(found, rows.columns[0])
        if not len(found):
            raise InputError(f"{path}: is empty")
        return found

    def _graph_of(self, graphs: int) -> np.ndarray:
        """Return the number of each node's graph, from 0: int32 [nodes]."""
        path = self.path("graph_indicator")
        layout = LineFormat((TextColumn("graph"),), ",", comments=b"")
        parts = [(rows.ids(0, 1, graphs) - 1).astype(np.int32) for rows in read_rows(path, layout)]
        if not sum(map(len, parts)):
            raise InputError(f"{path}: names no node")
        return np.concatenate(parts)

    def _features(self, nodes: int) -> FeatureStream | None:
        attributes, labels = self.path("node_attributes"), self.path("node_labels")
        if attributes.exists():
            width = width_of(attributes)
            return FeatureStream(lambda: _attributes(self, width, nodes), width)
        if labels.exists():
            return one_hot(_numbers(labels, "node label", width_of(labels), nodes))
        return None


def _arcs(files: _Files, graph_of: np.ndarray, types: np.ndarray | None) -> Iterator[Arcs]:
    labels = None if types is None else _Labels(files, types)
    for rows in read_rows(files.path("A"), _ENDS):
        targets, sources = (rows.ids(column, 1, len(graph_of)) - 1 for column in (0, 1))
        apart = np.flatnonzero(graph_of[targets] != graph_of[sources])
        if apart.size:
            ends = targets[apart[0]], sources[apart[0]]
            what = " and ".join(f"node {end + 1} of graph {graph_of[end] + 1}" for end in ends)
            raise rows.error(int(apart[0]), f"joins {what}: arcs stay within a graph")
        yield Arcs(targets, sources, types=None if labels is None else labels.take(rows.count))
    if labels is not None:
        labels.finish()


class _Labels:
    """Reads the types of arcs in step with the arcs."""

    def __init__(self, files: _Files, types: np.ndarray) -> None:
        self._path, self._arcs, self._types = files.path("edge_labels"), files.path("A").name, types
        self._rows = (rows.columns[0] for rows in read_rows(self._path, _LABEL))
        self._held, self._taken = np.empty(0, np.int64), 0

    def take(self, count: int) -> np.ndarray:
        """Return the next ``count`` types, int32; raises InputError if there are fewer."""
        while len(self._held) < count:
            more = next(self._rows, None)
            if more is None:
                found = self._taken + len(self._held)
                raise InputError(f"{self._path}: ends after {found} labels: {self._arcs} lists more edges")
            self._held = np.concatenate([self._held, more])
        taken, self._held = self._held[:count], self._held[count:]
        self._taken += count
        return np.searchsorted(self._types, taken).astype(np.int32)

    def finish(self) -> None:
        if len(self._held) or any(len(more) for more in self._rows):
            raise InputError(f"{self._path}: lists more labels than the {self._taken} edges of {self._arcs}")


def _attributes(files: _Files, width: int, nodes: int) -> Iterator[np.ndarray]:
    path = files.path("node_attributes")
    layout = LineFormat(tuple(TextColumn(f"attribute {i + 1}", "float64") for i in range(width)), ",", comments=b"")
    for rows in counted(read_rows(path, layout), path, nodes, files.path("graph_indicator").name):
        if rows.count:
            yield np.stack([rows.finite(column) for column in range(width)], axis=1)


def _numbers(path: Path, name: str, width: int, count: int | None = None) -> list[np.ndarray]:
    """Read the ``width`` int64 columns of a file of ``count`` lines (None: unknown)."""
    layout = LineFormat((TextColumn(name),) * width, ",", comments=b"")
    rows = read_rows(path, layout)
    if count is not None:
        rows = counted(rows, path, count, "the graph indicator")
    parts = [part.columns for part in rows]
    if not parts:
        raise InputError(f"{path}: is empty")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
