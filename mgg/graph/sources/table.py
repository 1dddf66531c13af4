"""Plain edge tables with an optional node table, as CSV or Parquet."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader
from mgg.graph.tables import Table, Type, open_table
from mgg.graph.text import Part, find_file

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
EDGES, NODES = "edges", "nodes"
#: Ids that may occur where no node table gives them.
MOST_IDS = 2**32

_log = logging.getLogger(__name__)
#: Names, in small letters, that say which end of an arc a column holds. Others (head and tail, u and v) are used for
#: either end.
_SOURCES = frozenset(("source", "src", "from"))
_TARGETS = frozenset(("target", "dst", "dest", "destination", "to"))
_VALUE_TYPES: dict[str, Type] = {"weight": "number", "type": "whole"}
_NODE_TYPES: dict[str, Type] = {"id": "id", "label": "number", "split": "text"}
_SPLITS = {
    "": 0,
    "none": 0,
    "0": 0,
    "train": 1,
    "1": 1,
    "validation": 2,
    "valid": 2,
    "val": 2,
    "2": 2,
    "test": 3,
    "3": 3,
}


@loader("table", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read an edge table, or a folder with ``edges.*`` and optional ``nodes.*`` (csv, tsv, either also .gz, parquet).

    The edge table has the columns ``source`` (or ``src``, ``from``) and ``target`` (or ``dst``, ``dest``,
    ``destination``, ``to``), in any order, in capitals or not, and may have ``weight`` and ``type`` (whole numbers from
    0; relations are the largest + 1). Two columns whose names say nothing are source and target, in this order; a
    warning tells which is which. A CSV file whose first line begins with two numbers has no header: its first two
    columns are source and target, others are not read. CSV fields are divided by commas or tabs and may stand in double
    quotes. Without a node table the ids that occur (0 to 2^32 - 1) are the nodes.

    A row of the node table is a node. Columns: ``id`` (any different 64-bit numbers; without it a node's id is the
    number of its row, from 0), ``label`` (a whole number from 0; empty or -1: unlabeled; if all are, the graph has
    no labels), ``split`` (train, validation or val or valid, test, empty or none; or 0 to 3: none, train, validation,
    test). All other columns are features, in their order; a Parquet file may instead have one column of lists of equal
    length.

    Raises:
        InputError: names the file and column that is missing or unknown. The stream's errors name file and line (row,
            from 0, of a Parquet file) of what is no number, out of range or a node that the node table has not.
    """
    edges_file, nodes_file = _find(path)
    edges = open_table(edges_file, headless=("source", "target"))
    ends = _ends(edges)
    types: dict[str, Type] = dict.fromkeys(ends, "id")
    types |= {name: kind for name, kind in _VALUE_TYPES.items() if name in edges.names}
    if any(name and name not in types for name in edges.names):
        raise _unexpected(edges)
    nodes = None if nodes_file is None else _Nodes.read(open_table(nodes_file))

    def read() -> Iterator[Arcs]:
        return _arcs(edges, types, ends, nodes)

    relations = _relations(edges) if "type" in types else 0
    arcs = ArcStream(read, None if nodes is None else nodes.count, "weight" in types, relations)
    if nodes is None:
        return StreamedGraph(arcs)
    return StreamedGraph(arcs, nodes.features(), nodes.labels, nodes.splits, ids=nodes.source_ids())


def _find(path: Path) -> tuple[Path, Path | None]:
    """The edge table and the node table."""
    if not path.is_dir():
        return path, None
    names = {stem: tuple(stem + suffix for suffix in SUFFIXES) for stem in (EDGES, NODES)}
    found = {stem: [path / name for name in names[stem] if (path / name).is_file()] for stem in names}
    for stem, files in found.items():
        if len(files) > 1:
            raise InputError(f"{path}: {_listed([file.name for file in files])}: leave one table of {stem}")
    edges = found[EDGES][0] if found[EDGES] else find_file(path, SUFFIXES)
    return edges, found[NODES][0] if found[NODES] else None


def _ends(edges: Table) -> tuple[str, str]:
    """The columns of sources and targets: by their names, else by their places where there are two and no others."""
    sources, targets = ([name for name in edges.names if name.lower() in known] for known in (_SOURCES, _TARGETS))
    if len(sources) == len(targets) == 1:
        return sources[0], targets[0]
    # A name that says one end, or that of a value, leaves open what the other column is.
    if sources or targets or len(edges.names) != 2 or {"", *_VALUE_TYPES} & set(edges.names):
        raise _unexpected(edges)
    first, second = edges.names
    _log.warning(
        "%s: column %r is taken as source and %r as target, by their places: call them source and target to say it",
        edges.file, first, second,
    )  # fmt: skip
    return first, second


def _unexpected(edges: Table) -> InputError:
    return InputError(f"{edges.file}: columns are {_listed(edges.names)}; expected source, target[, weight][, type]")


def _listed(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(name or "(no name)" for name in names[:8])
    return shown + (", ..." if len(names) > 8 else "")


def _relations(edges: Table) -> int:
    place = edges.names.index("type")
    largest = -1
    for part in edges.read({"type": "whole"}):
        types = part.ids(place, 0, np.iinfo(np.int32).max - 1)
        largest = max(largest, int(types.max(initial=-1)))
    return largest + 1


def _arcs(edges: Table, types: dict[str, Type], ends: Sequence[str], nodes: _Nodes | None) -> Iterator[Arcs]:
    at = {name: edges.names.index(name) for name in types}
    seen = 0
    for part in edges.read(types):
        seen += part.count
        source, target = (
            part.ids(at[name], 0, MOST_IDS - 1) if nodes is None else nodes.numbers(part, at[name]) for name in ends
        )
        weights = part.weights(at["weight"]) if "weight" in at else None
        yield Arcs(target, source, weights, part.columns[at["type"]].astype(np.int32) if "type" in at else None)
    if not seen and nodes is None:
        raise InputError(f"{edges.file}: has no arcs, so no nodes")


@dataclass(frozen=True)
class _Nodes:
    """What the node table says.

    Attributes:
        table: the file.
        count: number of nodes.
        ids: int64 [nodes] in ascending order, and the node of each, or None where ids are 0..nodes-1 in order.
        labels: int32 [nodes], some not -1, or None.
        splits: uint8 [nodes] or None.
    """

    table: Table
    count: int
    ids: tuple[np.ndarray, np.ndarray] | None
    labels: np.ndarray | None
    splits: np.ndarray | None

    @classmethod
    def read(cls, table: Table) -> _Nodes:
        """Read all but the features, which are checked when they are streamed."""
        types: dict[str, Type] = {name: kind for name, kind in _NODE_TYPES.items() if name in table.names}
        # A table of features alone still has to be counted.
        counting: dict[str, Type] = types or {
            table.names[0]: "vector" if table.vector_width(table.names[0]) else "number"
        }
        found: dict[str, list[np.ndarray]] = {name: [] for name in types}
        count = 0
        for part in table.read(counting):
            count += part.count
            for name in types:
                found[name].append(_COLUMNS[name](part, table.names.index(name)))
        if not count:
            raise InputError(f"{table.file}: has no nodes")
        whole = {name: np.concatenate(parts) for name, parts in found.items()}
        ids = _sorted_ids(table, whole["id"]) if "id" in whole else None
        labels = whole.get("label")
        if labels is not None and labels.max() < 0:
            labels = None
        return cls(table, count, ids, labels, whole.get("split"))

    def numbers(self, part: Part, column: int) -> np.ndarray:
        """int64 [rows]: the nodes that a column of ids names."""
        if self.ids is None:
            return part.ids(column, 0, self.count - 1)
        wanted, (known, node) = part.columns[column], self.ids
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        unknown = np.flatnonzero(known[place] != wanted)
        if unknown.size:
            row = int(unknown[0])
            raise part.error(row, f"{part.name(column)} is {wanted[row]}, an id that {self.table.file.name} has not")
        return node[place]

    def source_ids(self) -> np.ndarray | None:
        """int64 [nodes]: the id of each node, None where that is the number of its row."""
        if self.ids is None:
            return None
        known, node = self.ids
        ids = np.empty_like(known)
        ids[node] = known
        return ids

    def features(self) -> FeatureStream | None:
        """The stream of the other columns, None if there are none."""
        names = [name for name in self.table.names if name not in _NODE_TYPES]
        vectors = [name for name in names if self.table.vector_width(name)]
        if not names:
            return None
        if vectors and len(names) > 1:
            raise InputError(f"{self.table.file}: columns {_listed(names)}: one of lists, or numbers, but not both")
        types: dict[str, Type] = dict.fromkeys(names, "vector" if vectors else "float32")
        places = [self.table.names.index(name) for name in names]

        def read() -> Iterator[np.ndarray]:
            for part in self.table.read(types):
                if vectors:
                    yield _finite_rows(part, places[0])
                else:
                    yield np.stack([part.finite(place) for place in places], axis=1)

        return FeatureStream(read, self.table.vector_width(names[0]) or len(names))


def _sorted_ids(table: Table, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if np.array_equal(ids, np.arange(len(ids))):
        return None
    order = np.argsort(ids, kind="stable")
    known = ids[order]
    again = np.flatnonzero(known[1:] == known[:-1])
    if again.size:
        row = int(order[again + 1].min())
        for part in table.read({"id": "whole"}):
            if row < part.count:
                raise part.error(
                    row, f"id {part.columns[table.names.index('id')][row]} is that of an earlier node, too"
                )
            row -= part.count
    return known, order


def _labels(part: Part, column: int) -> np.ndarray:
    """int32 [rows], -1 where unlabeled."""
    labels = np.nan_to_num(part.columns[column], nan=-1, posinf=np.inf, neginf=-np.inf)
    bad = np.flatnonzero((labels != np.floor(labels)) | (labels < -1) | (labels > np.iinfo(np.int32).max - 1))
    if bad.size:
        raise part.error(int(bad[0]), f"label is {labels[bad[0]]:g}; expected a whole number from 0, or nothing")
    return labels.astype(np.int32)


def _splits(part: Part, column: int) -> np.ndarray:
    """uint8 [rows]."""
    values = part.columns[column].dictionary_encode()
    names = values.dictionary.to_pylist()
    codes = np.array([_SPLITS.get(name.strip().lower(), 255) for name in names] or [0], np.uint8)
    splits = codes[values.indices.to_numpy(zero_copy_only=False).astype(np.int64)]
    bad = np.flatnonzero(splits == 255)
    if bad.size:
        name = part.columns[column][int(bad[0])].as_py()
        raise part.error(int(bad[0]), f"split is {name[:40]!r}; expected train, validation, test, nothing, or 0 to 3")
    return splits


def _ids(part: Part, column: int) -> np.ndarray:
    return part.columns[column]


_COLUMNS = {"id": _ids, "label": _labels, "split": _splits}


def _finite_rows(part: Part, column: int) -> np.ndarray:
    rows: np.ndarray = part.columns[column]
    bad = np.argwhere(~np.isfinite(rows))
    if bad.size:
        row, place = (int(i) for i in bad[0])
        raise part.error(row, f"{part.name(column)}[{place}] is {rows[row, place]}, not a finite float32")
    return rows
