"""OGB: the node-property data sets of the Open Graph Benchmark, in the layout of their zip archives.

W. Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020 (ogb.stanford.edu).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.io.columns import what_is_read
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader
from mgg.graph.sources.ogb import csv as ogb_csv
from mgg.graph.sources.ogb.binary import load_binary

_NODE_COUNTS, _ARC_COUNTS = "num-node-list.csv.gz", "num-edge-list.csv.gz"
_TYPES, _RELATIONS = "num-node-dict.csv.gz", "triplet-type-list.csv.gz"
_EDGES, _FEATURES, _ARC_FEATURES = "edge.csv.gz", "node-feat.csv.gz", "edge-feat.csv.gz"
_LABELS = "node-label.csv.gz"
_COUNT = re.compile(r"[0-9]{1,18}")


@loader("ogb")
def load(path: Path) -> StreamedGraph:
    """Read the folder ``NAME`` with ``raw`` and ``split``, or the folder that contains it.

    The arcs are those in the files, without the reverses that OGB would add. A label column of class numbers gives
    labels (nan: unlabeled), several columns of 0 and 1 give tasks. Features are the nodes' features; if only arcs have
    features, each node gets the mean over its arcs in both directions. The split is the only one under ``split``.

    There are three forms: CSV; ``data.npz``; and CSV of several node types (ogbn-mag), which becomes one graph with
    typed arcs. There, node types follow each other in alphabetical order, and relation r is the r-th (head, relation,
    tail) in alphabetical order. Node types without features get zeros. Labels and split come from the only type that
    has them.

    Other files of ``raw`` (``node_year.csv.gz``, features of arcs if nodes have features) and other members of
    ``data.npz`` are listed as ignored.

    Raises:
        InputError: names the file that is missing or whose number of lines differs from the counts. The streams'
            errors name file and line.
    """
    raw = _raw(path)
    if (raw / _TYPES).is_file():
        return _Typed.read(raw).graph()
    graph = _load_binary(raw) if (raw / "data.npz").is_file() else _load_csv(raw)
    folder = _only_folder(raw.parent / "split")
    if folder is None:
        return graph
    assert graph.arcs.nodes is not None  # OGB states its counts
    return replace(graph, splits=ogb_csv.splits(folder, graph.arcs.nodes))


def _raw(path: Path) -> Path:
    found = [raw for raw in (path / "raw", *sorted(path.glob("*/raw"))) if raw.is_dir()]
    if not found:
        raise InputError(f"{path}: has no folder raw, in itself or one folder below: not an unpacked OGB data set")
    if len(found) > 1:
        raise InputError(
            f"{path}: has several data sets ({found[0].parent.name}, {found[1].parent.name}, ...); name one"
        )
    return found[0]


def _only_folder(path: Path) -> Path | None:
    """Return the only folder in ``path``; None if ``path`` does not exist."""
    if not path.is_dir():
        return None
    found = sorted(entry for entry in path.iterdir() if entry.is_dir())
    if len(found) != 1:
        raise InputError(f"{path}: holds {len(found)} folders, expected one")
    return found[0]


def _load_binary(raw: Path) -> StreamedGraph:
    graph = load_binary(raw)
    others = _unread(raw, {"data.npz", "node-label.npz"})
    members = graph.columns.get("members", {})
    return replace(graph, columns=what_is_read(members=members, files={"ignored": others}))


def _load_csv(raw: Path) -> StreamedGraph:
    nodes, count = ogb_csv.count(raw / _NODE_COUNTS, ogb_csv.MOST_NODES), ogb_csv.count(raw / _ARC_COUNTS)
    if nodes < 1:
        raise InputError(f"{raw / _NODE_COUNTS}: has no nodes")
    features, source = None, ""
    if (raw / _FEATURES).is_file():
        features, source = ogb_csv.table(raw / _FEATURES, nodes, _NODE_COUNTS), _FEATURES
    elif (raw / _ARC_FEATURES).is_file():
        features, source = ogb_csv.mean_of_arcs(raw, nodes, count), f"means of {_ARC_FEATURES} over each node's arcs"
    labels = tasks = None
    if (raw / _LABELS).is_file():
        labels, tasks = ogb_csv.labels(raw / _LABELS, nodes)
    arcs = ArcStream(partial(ogb_csv.arcs, raw / _EDGES, nodes, nodes, count), nodes)
    read = {_EDGES, _NODE_COUNTS, _ARC_COUNTS, _LABELS, _FEATURES if source == _FEATURES else _ARC_FEATURES}
    columns = what_is_read(
        nodes={"label": _LABELS if (raw / _LABELS).is_file() else "", "features": source},
        files={"ignored": _unread(raw, read)},
    )
    return StreamedGraph(arcs, features, labels, tasks=tasks, columns=columns)


def _unread(raw: Path, read: set[str]) -> list[str]:
    """Return the paths in a folder of its files that are not in ``read``, hidden files excepted."""
    files = (file.relative_to(raw) for file in sorted(raw.rglob("*")) if file.is_file())
    return [str(file) for file in files if str(file) not in read and not any(part[0] == "." for part in file.parts)]


@dataclass(frozen=True)
class _Typed:
    """A data set of several node types.

    Attributes:
        raw: its folder ``raw``.
        types: number of nodes of each type, in alphabetical order.
        first: the graph's id of each type's first node.
        relations: head type, relation and tail type, in alphabetical order.
    """

    raw: Path
    types: dict[str, int]
    first: dict[str, int]
    relations: list[tuple[str, str, str]]

    @classmethod
    def read(cls, raw: Path) -> _Typed:
        table = ogb_csv.names(raw / _TYPES)
        if len(table) != 2 or len(table[0][1]) != len(table[1][1]) or not all(map(_COUNT.fullmatch, table[1][1])):
            raise InputError(f"{raw / _TYPES}: expected a line of node types and one of their counts")
        types = dict(sorted((name, int(number)) for name, number in zip(table[0][1], table[1][1], strict=True)))
        if not 1 <= sum(types.values()) <= ogb_csv.MOST_NODES:
            most = ogb_csv.MOST_NODES
            raise InputError(f"{raw / _TYPES}: has {sum(types.values()) or 'no'} nodes; expected 1..{most} in all")
        starts = np.cumsum([0, *types.values()]).tolist()
        relations = []
        for number, fields in ogb_csv.names(raw / _RELATIONS):
            if len(fields) != 3 or fields[0] not in types or fields[2] not in types:
                raise InputError(
                    f"{raw / _RELATIONS}: line {number}: expected node type, relation, node type; "
                    f"types are {', '.join(types)}"
                )
            relations.append((fields[0], fields[1], fields[2]))
        return cls(raw, types, dict(zip(types, starts, strict=False)), sorted(relations))

    @property
    def nodes(self) -> int:
        return sum(self.types.values())

    def graph(self) -> StreamedGraph:
        arcs = ArcStream(self.arcs, self.nodes, relations=len(self.relations))
        labeled = _only_folder(self.raw / "node-label")
        labels = None if labeled is None else self.labels(labeled)
        folder = _only_folder(self.raw.parent / "split")
        members = None if folder is None else _only_folder(folder)
        splits = None
        if members is not None:
            among = self.size(members)
            splits = ogb_csv.splits(members, self.nodes, self.first[members.name], among)
        read = {_TYPES, _RELATIONS, *(f"node-feat/{name}/{_FEATURES}" for name in self.types)}
        read |= {f"relations/{'___'.join(each)}/{name}" for each in self.relations for name in (_EDGES, _ARC_COUNTS)}
        read |= set() if labeled is None else {f"node-label/{labeled.name}/{_LABELS}"}
        columns = what_is_read(files={"ignored": _unread(self.raw, read)})
        return StreamedGraph(arcs, self.features(), labels, splits, columns=columns)

    def size(self, folder: Path) -> int:
        """Return the number of nodes of the type that gives a folder its name."""
        if folder.name not in self.types:
            raise InputError(f"{folder}: {folder.name!r} is no node type; {_TYPES} has {', '.join(self.types)}")
        return self.types[folder.name]

    def arcs(self) -> Iterator[Arcs]:
        for number, (head, relation, tail) in enumerate(self.relations):
            folder = self.raw / "relations" / f"{head}___{relation}___{tail}"
            yield from ogb_csv.arcs(
                folder / _EDGES,
                self.types[head],
                self.types[tail],
                ogb_csv.count(folder / _ARC_COUNTS),
                (self.first[head], self.first[tail]),
                number,
            )

    def labels(self, folder: Path) -> np.ndarray:
        found, tasks = ogb_csv.labels(folder / _LABELS, self.size(folder))
        if found is None or tasks is not None:
            raise InputError(f"{folder}: several label columns; a graph of node types may have one")
        labels = np.full(self.nodes, -1, np.int32)
        labels[self.first[folder.name] :][: len(found)] = found
        return labels

    def features(self) -> FeatureStream | None:
        files = {name: self.raw / "node-feat" / name / _FEATURES for name in self.types}
        tables = {name: ogb_csv.table(file, self.types[name], _TYPES) for name, file in files.items() if file.is_file()}
        widths = {found.width for found in tables.values()}
        if len(widths) > 1:
            raise InputError(
                f"{self.raw / 'node-feat'}: node types have {sorted(widths)} features; expected equally many"
            )
        if not widths:
            return None
        width = widths.pop()

        def read() -> Iterator[np.ndarray]:
            for name, nodes in self.types.items():
                yield from tables[name].read() if name in tables else _zeros(nodes, width)

        return FeatureStream(read, width)


def _zeros(rows: int, width: int) -> Iterator[np.ndarray]:
    full, rest = divmod(rows, ogb_csv.ROWS)
    counts = chain(repeat(ogb_csv.ROWS, full), [rest] if rest else [])
    return (np.zeros((count, width), np.float32) for count in counts)
