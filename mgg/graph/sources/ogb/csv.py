"""The ``.csv.gz`` files of an OGB data set: headerless tables of numbers, one line per node or arc."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit

from mgg.errors import InputError
from mgg.graph.check import UNKNOWN, split_vector
from mgg.graph.io.text import LineFormat, TextColumn, counted, lines, read_rows, width_of
from mgg.graph.sources import Arcs, FeatureStream

#: Rows per block of features that are computed or zero.
ROWS = 2**16
#: Maximum nodes of a graph, and maximum arcs that a file may announce.
MOST_NODES = 2**32
MOST_ARCS = 2**62

_ENDS = LineFormat((TextColumn("source"), TextColumn("target")), ",", comments=b"")


def count(file: Path, most: int = MOST_ARCS) -> int:
    """Return the only number of a ``num-*-list.csv.gz``.

    Raises:
        InputError: the number is above ``most``, or the file has several (a collection of graphs) or none.
    """
    layout = LineFormat((TextColumn("count"),), ",", comments=b"")
    found: list[int] = []
    for rows in read_rows(file, layout):
        found += rows.ids(0, 0, most)[:2].tolist()
        if len(found) > 1:  # the rest may be long
            break
    if len(found) != 1:
        raise InputError(f"{file}: holds {'several counts' if found else 'no count'}; expected that of one graph")
    return found[0]


def arcs(
    file: Path,
    sources: int,
    targets: int,
    expected: int,
    offsets: tuple[int, int] = (0, 0),
    relation: int | None = None,
) -> Iterator[Arcs]:
    """Stream an ``edge.csv.gz``.

    Args:
        file: lines ``u,v``: an arc from u to v.
        sources: number of nodes that u may name.
        targets: number of nodes that v may name.
        expected: number of lines.
        offsets: the graph's ids of the first source and of the first target.
        relation: type of all arcs, or None.

    Raises:
        InputError: names the wrong line, or states how many lines there are.
    """
    for rows in counted(read_rows(file, _ENDS), file, expected, "num-edge-list.csv.gz"):
        ends = [rows.ids(0, 0, sources - 1), rows.ids(1, 0, targets - 1)]
        ends = [ids + offset if offset else ids for ids, offset in zip(ends, offsets, strict=True)]
        types = None if relation is None else np.full(rows.count, relation, np.int32)
        yield Arcs(ends[1], ends[0], types=types)


def table(file: Path, expected: int, announced: str) -> FeatureStream:
    """Stream the finite float32 rows of a file of ``expected`` lines, the number in the file ``announced``."""
    width = width_of(file)
    layout = LineFormat(tuple(TextColumn(f"feature {i}", "float32") for i in range(width)), ",", comments=b"")

    def read() -> Iterator[np.ndarray]:
        for rows in counted(read_rows(file, layout), file, expected, announced):
            yield np.stack([rows.finite(column) for column in range(width)], axis=1)

    return FeatureStream(read, width)


def labels(file: Path, nodes: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Read a ``node-label.csv.gz``: labels int32 [nodes] from one column, or tasks uint8 [nodes, columns]."""
    width = width_of(file)
    layout = LineFormat(tuple(TextColumn(f"label {i}", "float64", empty=True) for i in range(width)), ",", comments=b"")
    convert = classes if width == 1 else tasks
    found = np.empty((nodes, width), np.int32 if width == 1 else np.uint8)
    at = 0
    for rows in counted(read_rows(file, layout), file, nodes, "num-node-list.csv.gz"):
        found[at : at + rows.count] = convert(np.stack(rows.columns, axis=1), rows.error)
        at += rows.count
    return (found[:, 0], None) if width == 1 else (None, found)


def classes(values: np.ndarray, error: Callable[[int, str], InputError]) -> np.ndarray:
    """Convert numbers [rows, 1] to labels int32, nan to -1; raises ``error(row, problem)`` for any other number."""
    known = np.where(np.isnan(values), -1, values)
    bad = np.argwhere((known != np.floor(known)) | (known < -1) | (known >= np.iinfo(np.int32).max))
    if bad.size:
        raise error(int(bad[0, 0]), f"label is {values[tuple(bad[0])]:g}; expected a whole number from 0, or nan")
    return known.astype(np.int32)


def tasks(values: np.ndarray, error: Callable[[int, str], InputError]) -> np.ndarray:
    """Convert numbers [rows, tasks] to uint8 0, 1, or 255 for nan; raises ``error(row, problem)`` for any other."""
    known = np.where(np.isnan(values), UNKNOWN, values)
    bad = np.argwhere(~np.isin(known, (0, 1, UNKNOWN)) | (values == UNKNOWN))
    if bad.size:
        raise error(int(bad[0, 0]), f"label {bad[0, 1]} is {values[tuple(bad[0])]:g}; expected 0, 1 or nan")
    return known.astype(np.uint8)


def splits(folder: Path, nodes: int, first: int = 0, among: int | None = None) -> np.ndarray:
    """Read the split from ``train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz``: uint8 [nodes].

    Args:
        folder: has the three files, with one node id per line.
        nodes: number of nodes of the graph.
        first: the graph's id of the files' node 0.
        among: number of nodes that the files may name; None: all.

    Raises:
        InputError: names file and line of an id out of range, or a node that is in two splits or twice in one.
    """
    last = (nodes if among is None else among) - 1
    layout = LineFormat((TextColumn("node"),), ",", comments=b"")

    def members(name: str) -> np.ndarray:
        parts = [rows.ids(0, 0, last) + first for rows in read_rows(folder / f"{name}.csv.gz", layout)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    return split_vector(nodes, str(folder), train=members("train"), validation=members("valid"), test=members("test"))


def mean_of_arcs(raw: Path, nodes: int, expected: int) -> FeatureStream:
    """Return node features computed from arc features: the mean over a node's arcs in both directions.

    OGB's baselines for ogbn-proteins do the same: its arcs are listed once but count both ways. A node without arcs
    gets zeros. Takes 8 bytes per number.
    """
    values = table(raw / "edge-feat.csv.gz", expected, "num-edge-list.csv.gz")
    return FeatureStream(partial(_means, raw / "edge.csv.gz", values, nodes, expected), values.width)


def _means(edges: Path, values: FeatureStream, nodes: int, expected: int) -> Iterator[np.ndarray]:
    sums, counts = np.zeros((nodes, values.width)), np.zeros(nodes, np.int64)
    ends = (np.stack([part.sources, part.targets], axis=1) for part in arcs(edges, nodes, nodes, expected))
    for pairs, rows in _side_by_side(ends, values.read()):
        _add(sums, counts, pairs, rows)
    sums /= np.maximum(counts, 1)[:, None]
    for lo in range(0, nodes, ROWS):
        yield sums[lo : lo + ROWS].astype(np.float32)


def _side_by_side(first: Iterator[np.ndarray], second: Iterator[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of equally many rows from both, which have the same total or raise an error themselves."""
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        count = min(len(one), len(other))
        yield one[:count], other[:count]
        one = one[count:] if len(one) > count else next(first, None)
        other = other[count:] if len(other) > count else next(second, None)


@njit(cache=True, nogil=True)
def _add(sums: np.ndarray, counts: np.ndarray, pairs: np.ndarray, rows: np.ndarray) -> None:  # pragma: no cover
    for arc in range(len(pairs)):
        for end in range(2):
            node = pairs[arc, end]
            counts[node] += 1
            for column in range(rows.shape[1]):
                sums[node, column] += rows[arc, column]


def names(file: Path) -> list[tuple[int, list[str]]]:
    """Return the line number and fields of every line of a small file of names."""
    return [(number, [field.strip() for field in line.split(",")]) for number, line in lines(file) if line.strip()]
