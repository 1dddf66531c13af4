"""Plain edge tables with an optional node table, as CSV or Parquet."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.io.columns import MASKS, ColumnChoice, Kind, Placed, check_said, known_edges, known_nodes, listed, place
from mgg.graph.io.endings import find_file, packed
from mgg.graph.io.tables import Headless, Table, Type, open_table, parquet_files
from mgg.graph.io.text import TablePart
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader

SUFFIXES = (*packed(".csv", ".tsv"), ".parquet")
EDGES, NODES = "edges", "nodes"
#: Upper bound of ids if there is no node table.
MOST_IDS = 2**63

_log = logging.getLogger(__name__)
_TYPES: dict[str, Type] = {
    "source": "id", "target": "id", "weight": "number", "type": "whole", "id": "id", "label": "number", "split": "text",
    **dict.fromkeys(MASKS, "mask"),
}  # fmt: skip
_SPLITS = {
    name: split
    for split, names in enumerate(
        (("", "none", "0"), ("train", "1"), ("validation", "valid", "val", "2"), ("test", "3"))
    )
    for name in names
}
_FLAGS = {"true": 1, "1": 1, "1.0": 1, "false": 0, "0": 0, "0.0": 0}
#: No value of these.
_UNKNOWN = 255
#: Values of the column Type in Gephi's edge tables.
_DIRECTIONS = ("directed", "undirected")


@loader("table", *SUFFIXES, columns=True)
def load(path: Path, said: ColumnChoice = ColumnChoice()) -> StreamedGraph:  # noqa: B008  # it is frozen
    """Read an edge table, or a folder with ``edges.*`` and optional ``nodes.*`` (csv, tsv, either also .gz, parquet).

    A column's name decides its role, ignoring case, ``-``, ``_`` and spaces, unless ``said`` does (all names:
    mgg/graph/io/columns.py); columns may be in any order. The edge table has ``source`` (``src``, ``from``, ``src_id``,
    ``:START_ID``) and ``target`` (``dst``, ``to``, ``dst_id``, ``:END_ID``), and may have ``weight`` and ``type``
    (whole numbers from 0, with relations = the largest + 1; or Gephi's Directed or Undirected, the same in all rows).
    Two columns with unknown names are source and target, in this order, with a warning. A CSV file whose first line
    begins with two numbers has no header: the comment above it or ``said`` may name the columns; otherwise there must
    be two, source and target. CSV fields are divided by commas, tabs, semicolons (numbers may then have decimal commas)
    or spaces, and may be in double quotes; NetworkX's ``{}`` or ``{'weight': 0.5}`` may end a line. Without a node
    table, the ids that occur (0 to 2^63 - 1, also written as 1.0) are the nodes.

    A row of the node table is a node. Columns: ``id`` (``node_id``, ``:ID``, or pandas' index: any distinct 64-bit
    numbers; without it, a node's id is its row number from 0), ``label`` (``y``, ``class``: a whole number from 0;
    empty or -1: unlabeled; if all are, the graph has no labels), ``split`` (train, validation or val or valid, test,
    empty or none; or 0 to 3: none, train, validation, test) or ``train_mask``, ``val_mask`` and ``test_mask`` (true or
    false, 1 or 0). All other columns are features in their order, or one column has lists of equal length, quoted in
    CSV ("0.5,1"). A column whose name ends in ``id`` or suggests another role is refused until the user gives it a
    role; so is text.

    Raises:
        InputError: names the file, the column that is missing or unknown, and the option that decides. The stream's
            errors name file and line (Parquet: row, from 0) of a value that is no number, is out of range, or is a node
            that is not in the node table.
    """
    edges_file, nodes_file = _find(path)
    edges = open_table(edges_file, Headless(said.header, ("source", "target"), known_edges))
    table = None if nodes_file is None else open_table(nodes_file, Headless(known=known_nodes))
    found: dict[Kind, tuple[Path, Sequence[str]]] = {"edges": (edges.file, edges.names)}
    if table is not None:
        found["nodes"] = (table.file, table.names)
    check_said(said, found)
    placed = place(edges.file, "edges", edges.names, said)
    if placed.by_place:
        _log.warning(
            "%s: column %r is taken as source and %r as target, by their places: call them source and target to say it",
            edges.file, placed.one("source"), placed.one("target"),
        )  # fmt: skip
    kind = placed.one("type")
    direction = edges.first(kind).lower() if kind is not None else ""
    places = {} if edges.named else {name: f"column {number}" for number, name in enumerate(edges.names, 1)}
    columns: dict[str, dict[str, object]] = {"edges": placed.for_manifest(places)}
    if kind is not None and direction in _DIRECTIONS:
        columns["edges"] = {"direction" if role == "type" else role: name for role, name in columns["edges"].items()}
    nodes = None if table is None else _Nodes.read(table, place(table.file, "nodes", table.names, said), said)
    if nodes is not None:
        columns["nodes"] = nodes.placed.for_manifest()

    def read() -> Iterator[Arcs]:
        return _arcs(edges, placed, direction if direction in _DIRECTIONS else "", nodes)

    relations = _relations(edges, kind) if kind is not None and direction not in _DIRECTIONS else 0
    arcs = ArcStream(
        read,
        None if nodes is None else nodes.count,
        placed.one("weight") is not None,
        relations,
        undirected=direction == "undirected",
    )
    if nodes is None:
        return StreamedGraph(arcs, columns=columns)
    return StreamedGraph(arcs, nodes.features(), nodes.labels, nodes.splits, ids=nodes.source_ids(), columns=columns)


def _find(path: Path) -> tuple[Path, Path | None]:
    if not path.is_dir():
        return path, None
    names = {stem: tuple(stem + suffix for suffix in SUFFIXES) for stem in (EDGES, NODES)}
    found = {stem: [path / name for name in names[stem] if (path / name).exists()] for stem in names}
    for stem, files in found.items():
        if len(files) > 1:
            raise InputError(f"{path}: {listed([file.name for file in files])}: leave one table of {stem}")
    if not found[EDGES] and not found[NODES] and parquet_files(path) not in ([], [*path.glob("*.parquet")][:1]):
        return path, None  # the folder is the table
    edges = found[EDGES][0] if found[EDGES] else find_file(path, SUFFIXES)
    return edges, found[NODES][0] if found[NODES] else None


def _relations(edges: Table, name: str) -> int:
    place = edges.names.index(name)
    largest = -1
    for part in edges.read({name: "whole"}):
        types = part.ids(place, 0, np.iinfo(np.int32).max - 1)
        largest = max(largest, int(types.max(initial=-1)))
    return largest + 1


def _arcs(edges: Table, placed: Placed, direction: str, nodes: _Nodes | None) -> Iterator[Arcs]:
    names = {role: name for role in ("source", "target", "weight", "type") if (name := placed.one(role)) is not None}
    types = {name: _TYPES[role] for role, name in names.items()}
    if direction:
        types[names["type"]] = "text"
    at = {role: edges.names.index(name) for role, name in names.items()}
    seen = 0
    for part in edges.read(types):
        seen += part.count
        source, target = (
            part.ids(at[end], 0, MOST_IDS - 1) if nodes is None else nodes.numbers(part, at[end])
            for end in ("source", "target")
        )
        if direction:
            _check_direction(part, at.get("type", 0), direction)
        weights = part.weights(at["weight"]) if "weight" in at else None
        kinds = part.columns[at["type"]].astype(np.int32) if "type" in at and not direction else None
        yield Arcs(target, source, weights, kinds)
    if not seen and nodes is None:
        raise InputError(f"{edges.file}: has no arcs, so no nodes")


def _check_direction(part: TablePart, column: int, direction: str) -> None:
    """Raise InputError for the first edge whose direction differs from ``direction``."""
    values = part.columns[column].dictionary_encode()
    other = [number for number, name in enumerate(values.dictionary.to_pylist()) if name.lower() != direction]
    bad = np.flatnonzero(np.isin(values.indices.to_numpy(zero_copy_only=False), other))
    if bad.size:
        name = part.columns[column][int(bad[0])].as_py()
        raise part.error(int(bad[0]), f"{part.name(column)} is {name[:40]!r}, and {direction} above: one for all edges")


@dataclass(frozen=True)
class _Nodes:
    """The contents of the node table.

    Attributes:
        table: the file.
        placed: the roles of its columns.
        count: number of nodes.
        ids: int64 [nodes] in ascending order, and the node of each; None if ids are 0..nodes-1 in order.
        labels: int32 [nodes], not all -1, or None.
        splits: uint8 [nodes] or None.
    """

    table: Table
    placed: Placed
    count: int
    ids: tuple[np.ndarray, np.ndarray] | None
    labels: np.ndarray | None
    splits: np.ndarray | None

    @classmethod
    def read(cls, table: Table, placed: Placed, said: ColumnChoice) -> _Nodes:
        """Read all but the features, which are checked when they are streamed."""
        names = {role: name for role in _COLUMNS if (name := placed.one(role)) is not None}
        types = {name: _TYPES[role] for role, name in names.items()}
        # A table with features only is still read once to count its rows.
        first = table.names[0]
        counting: dict[str, Type] = types or {first: "vector" if table.vector_width(first) else "number"}
        found: dict[str, list[np.ndarray]] = {role: [] for role in names}
        count = 0
        for part in table.read(counting):
            count += part.count
            for role, name in names.items():
                found[role].append(_COLUMNS[role](part, table.names.index(name)))
            if sum(role in MASKS for role in names) > 1:
                _check_apart(part, {role: found[role][-1] for role in MASKS if role in names})
        if not count:
            raise InputError(f"{table.file}: has no nodes")
        whole = {role: np.concatenate(parts) for role, parts in found.items()}
        labels = whole.get("label")
        if labels is not None and labels.max() < 0:
            labels = None
        if labels is not None and "label" not in dict(said.roles):
            _check_names(placed, labels, whole.get("id"))
        ids = _sorted_ids(table, names["id"], whole["id"]) if "id" in whole else None
        return cls(table, placed, count, ids, labels, _merged(whole, count))

    def numbers(self, part: TablePart, column: int) -> np.ndarray:
        """Return the nodes that a column of ids names: int64 [rows]."""
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
        if self.ids is None:
            return None
        known, node = self.ids
        ids = np.empty_like(known)
        ids[node] = known
        return ids

    def features(self) -> FeatureStream | None:
        names = self.placed.by_role.get("feature", [])
        vectors = [name for name in names if self.table.vector_width(name)]
        if not names:
            return None
        if vectors and len(names) > 1:
            raise InputError(
                f"{self.table.file}: columns {listed(names)}: one of lists, or numbers, but not both; leave columns out"
                f" by --column ignore={next((name for name in names if name not in vectors), names[-1])}"
            )
        types: dict[str, Type] = dict.fromkeys(names, "vector" if vectors else "float32")
        places = [self.table.names.index(name) for name in names]

        def read() -> Iterator[np.ndarray]:
            for part in self.table.read(types):
                if vectors:
                    yield _finite_rows(part, places[0])
                else:
                    yield np.stack([part.finite(place) for place in places], axis=1)

        return FeatureStream(read, self.table.vector_width(names[0]) or len(names))


def _sorted_ids(table: Table, name: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if np.array_equal(ids, np.arange(len(ids))):
        return None
    order = np.argsort(ids, kind="stable")
    known = ids[order]
    again = np.flatnonzero(known[1:] == known[:-1])
    if again.size:
        row = int(order[again + 1].min())
        place = table.names.index(name)
        for part in table.read({name: "whole"}):
            if row < part.count:
                raise part.error(row, f"{part.name(place)} {part.columns[place][row]} is that of an earlier node, too")
            row -= part.count
    return known, order


def _labels(part: TablePart, column: int) -> np.ndarray:
    labels = np.nan_to_num(part.columns[column], nan=-1, posinf=np.inf, neginf=-np.inf)
    for row, text in part.lost(column).items():
        raise part.error(row, f"{part.name(column)} is {text}; expected a whole number from 0, or nothing")
    bad = np.flatnonzero((labels != np.floor(labels)) | (labels < -1) | (labels > np.iinfo(np.int32).max - 1))
    if bad.size:
        raise part.error(
            int(bad[0]), f"{part.name(column)} is {labels[bad[0]]:g}; expected a whole number from 0, or nothing"
        )
    return labels.astype(np.int32)


def _coded(part: TablePart, column: int, codes: dict[str, int], expected: str) -> np.ndarray:
    """Return the code of each text of a part: uint8 [rows]."""
    values = part.columns[column].dictionary_encode()
    names = values.dictionary.to_pylist()
    known = np.array([codes.get(name.strip().lower(), _UNKNOWN) for name in names] or [0], np.uint8)
    found = known[values.indices.to_numpy(zero_copy_only=False).astype(np.int64)]
    bad = np.flatnonzero(found == _UNKNOWN)
    if bad.size:
        name = part.columns[column][int(bad[0])].as_py()
        raise part.error(int(bad[0]), f"{part.name(column)} is {name[:40]!r}; expected {expected}")
    return found


def _splits(part: TablePart, column: int) -> np.ndarray:
    return _coded(part, column, _SPLITS, "train, validation, test, nothing, or 0 to 3")


def _ids(part: TablePart, column: int) -> np.ndarray:
    return part.columns[column]


def _flags(part: TablePart, column: int) -> np.ndarray:
    return _coded(part, column, _FLAGS, "true or false, 1 or 0").astype(bool)


_COLUMNS = {"id": _ids, "label": _labels, "split": _splits, **dict.fromkeys(MASKS, _flags)}


def _merged(columns: dict[str, np.ndarray], count: int) -> np.ndarray | None:
    """Return the split from its column or from masks: uint8 [nodes], or None."""
    masks = {number: columns[role] for number, role in enumerate(MASKS, 1) if role in columns}
    if not masks:
        return columns.get("split")
    splits = np.zeros(count, np.uint8)
    for number, mask in masks.items():
        splits[mask] = number
    return splits


def _check_apart(part: TablePart, masks: dict[str, np.ndarray]) -> None:
    bad = np.flatnonzero(np.sum(list(masks.values()), axis=0) > 1)
    if bad.size:
        both = " and ".join(role for role, mask in masks.items() if mask[bad[0]])
        raise part.error(int(bad[0]), f"the node is in the masks of {both}: it may be in one")


def _check_names(placed: Placed, labels: np.ndarray, ids: np.ndarray | None) -> None:
    """Raise InputError if labels repeat the nodes' ids: Gephi's labels are node names, and each would be a class."""
    if ids is not None and len(ids) > 2 and np.array_equal(labels, ids):
        name = placed.one("label")
        raise InputError(
            f"{placed.file}: {name!r} repeats the nodes' ids, so it names nodes, as in Gephi: say --column"
            f" ignore={name}, or --column label={name} if each node is a class of its own"
        )


def _finite_rows(part: TablePart, column: int) -> np.ndarray:
    rows: np.ndarray = part.columns[column]
    bad = np.argwhere(~np.isfinite(rows))
    if bad.size:
        row, place = (int(i) for i in bad[0])
        raise part.error(row, f"{part.name(column)}[{place}] is {rows[row, place]}, not a finite float32")
    return rows
