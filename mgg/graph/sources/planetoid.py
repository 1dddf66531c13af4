"""Planetoid: the citation graphs Cora, Citeseer and Pubmed with their public split.

Files and split: Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016
(github.com/kimiyoung/planetoid, README); ``ind.NAME.{x,y,tx,ty,allx,ally,graph}`` are Python 2 pickles.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its subpackages load at first use

from mgg.errors import InputError
from mgg.graph.check import split_vector
from mgg.graph.io.unpickle import read_pickle
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, FeatureStream, StreamedGraph, loader
from mgg.graph.sources.npz import BLOCK_VALUES, MOST_COLUMNS

#: Number of validation nodes, which follow the training nodes.
VALIDATION = 500


@dataclass(frozen=True)
class _Files:
    """The files of one data set, found by the one that ends in ``.graph``."""

    folder: Path
    prefix: str

    def path(self, part: str) -> Path:
        return self.folder / f"{self.prefix}.{part}"

    def matrix(self, part: str) -> scipy.sparse.csr_matrix:
        value = read_pickle(self.path(part))
        if not scipy.sparse.issparse(value):
            raise InputError(f"{self.path(part)}: expected a sparse feature matrix, found {type(value).__name__}")
        if not 1 <= value.shape[1] <= MOST_COLUMNS:
            raise InputError(f"{self.path(part)}: {value.shape[1]} feature columns, expected 1..{MOST_COLUMNS}")
        matrix = value.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(matrix.data))
        if bad.size:
            row, column = (int(ids[bad[0]]) for ids in matrix.tocoo().coords)
            raise InputError(f"{self.path(part)}: feature of row {row}, column {column} is {matrix.data[bad[0]]}")
        return matrix

    def one_hot(self, part: str, rows: int) -> np.ndarray:
        value = read_pickle(self.path(part))
        if not isinstance(value, np.ndarray) or value.ndim != 2 or len(value) != rows:
            raise InputError(f"{self.path(part)}: expected {rows} rows of one-hot labels")
        if not np.isin(value, (0, 1)).all() or (value.sum(axis=1) > 1).any():
            bad = np.flatnonzero(~np.isin(value, (0, 1)).all(axis=1) | (value.sum(axis=1) > 1))[0]
            raise InputError(f"{self.path(part)}: row {bad} names no class or several: it is not one-hot")
        return value.astype(np.int32)


@loader("planetoid")
def load(path: Path) -> StreamedGraph:
    """Read a folder of the eight ``ind.NAME.*`` files.

    Each pair in the adjacency lists stands for both directions (the published files list most pairs both ways, and
    self-loops twice). Features are not normalized. The split: the rows of ``y`` train, the next 500 nodes validate,
    ``test.index`` lists the test nodes. Ids between the smallest and the largest test id that ``test.index`` leaves out
    are isolated nodes (Citeseer has 15): no features, no label, in no split.

    Raises:
        InputError: names the file that is missing, truncated, not a Planetoid file or does not fit the others.
    """
    files = _find(path)
    allx, tx = files.matrix("allx"), files.matrix("tx")
    if tx.shape[1] != allx.shape[1]:
        raise InputError(f"{files.path('tx')}: {tx.shape[1]} feature columns, allx has {allx.shape[1]}")
    ally, ty = files.one_hot("ally", allx.shape[0]), files.one_hot("ty", tx.shape[0])
    train = _training_nodes(files, allx, ally)
    if ty.shape[1] != ally.shape[1]:
        raise InputError(f"{files.path('ty')}: {ty.shape[1]} classes, ally has {ally.shape[1]}")
    graph = _graph(files)
    test = _test_nodes(files, tx.shape[0], allx.shape[0], len(graph))
    nodes = len(graph)
    labels = np.full(nodes, -1, np.int32)
    for ids, hot in ((np.arange(allx.shape[0]), ally), (test, ty)):
        labels[ids] = np.where(hot.any(axis=1), hot.argmax(axis=1), -1)
    splits = split_vector(
        nodes,
        str(files.path("test.index")),
        train=np.arange(train),
        validation=np.arange(train, train + VALIDATION),
        test=test,
    )
    arcs = ArcStream(partial(_arcs, graph), nodes, undirected=True)
    return StreamedGraph(arcs, _features(allx, tx, test, nodes), labels, splits, ally.shape[1])


def _find(path: Path) -> _Files:
    found = sorted(path.glob("ind.*.graph")) if path.is_dir() else []
    if len(found) != 1:
        raise InputError(f"{path}: expected a folder with one file ind.NAME.graph, found {len(found)}")
    return _Files(path, found[0].name.removesuffix(".graph"))


def _training_nodes(files: _Files, allx: scipy.sparse.csr_matrix, ally: np.ndarray) -> int:
    """Return the number of training nodes, which ``x`` and ``y`` list and ``allx`` and ``ally`` begin with."""
    x = files.matrix("x")
    y = files.one_hot("y", x.shape[0])
    count = len(y)
    if count + VALIDATION > allx.shape[0]:
        raise InputError(
            f"{files.path('y')}: {count} training and {VALIDATION} validation nodes, {allx.shape[0]} known"
        )
    if x.shape[1] != allx.shape[1] or (x != allx[:count]).nnz or not np.array_equal(y, ally[:count]):
        raise InputError(f"{files.path('x')}: not the first {count} rows of allx and ally")
    return count


def _graph(files: _Files) -> dict[int, list[int]]:
    graph: Any = read_pickle(files.path("graph"))
    if not isinstance(graph, dict):
        raise InputError(f"{files.path('graph')}: expected a dictionary of neighbor lists")
    for node, neighbors in graph.items():
        if (
            type(node) is not int
            or not isinstance(neighbors, list)
            or any(type(other) is not int for other in neighbors)
        ):
            raise InputError(f"{files.path('graph')}: node {node!r}: expected a whole number and a list of them")
    if not graph or min(graph) != 0 or max(graph) != len(graph) - 1:
        raise InputError(f"{files.path('graph')}: its keys are not the node ids 0..{len(graph) - 1}")
    for node, neighbors in graph.items():
        if neighbors and (min(neighbors) < 0 or max(neighbors) >= len(graph)):
            bad = next(other for other in neighbors if not 0 <= other < len(graph))
            raise InputError(f"{files.path('graph')}: node {node}: neighbor {bad} is outside 0..{len(graph) - 1}")
    return graph


def _arcs(graph: dict[int, list[int]]) -> Iterator[Arcs]:
    """Yield the lists of all nodes in order; they may be far longer than the file, as a pickle may share lists."""
    rows, columns = array("q"), array("q")
    for node, neighbors in graph.items():
        for lo in range(0, len(neighbors), CHUNK_ARCS):
            some = neighbors[lo : lo + CHUNK_ARCS]
            if len(rows) + len(some) > CHUNK_ARCS:
                yield Arcs(np.frombuffer(rows, np.int64), np.frombuffer(columns, np.int64))
                rows, columns = array("q"), array("q")
            rows.extend(repeat(node, len(some)))
            columns.extend(some)
    if rows:
        yield Arcs(np.frombuffer(rows, np.int64), np.frombuffer(columns, np.int64))


def _features(
    known: scipy.sparse.csr_matrix, tested: scipy.sparse.csr_matrix, test: np.ndarray, nodes: int
) -> FeatureStream:
    """Stream the rows of the known nodes, then of the test nodes at their places, with zeros in the gaps."""
    width = known.shape[1]
    stacked = scipy.sparse.vstack([known, tested, scipy.sparse.csr_matrix((1, width), dtype=np.float32)], "csr")
    place = np.full(nodes, stacked.shape[0] - 1)
    place[: known.shape[0]] = np.arange(known.shape[0])
    place[test] = known.shape[0] + np.arange(len(test))
    rows = max(1, BLOCK_VALUES // width)
    return FeatureStream(lambda: (stacked[place[lo : lo + rows]].toarray() for lo in range(0, nodes, rows)), width)


def _test_nodes(files: _Files, count: int, known: int, nodes: int) -> np.ndarray:
    path = files.path("test.index")
    try:
        lines = path.read_text(encoding="ascii").split()
        test = np.array([int(line) for line in lines], np.int64)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: expected one node id a line: {error}") from None
    if len(test) != count:
        raise InputError(f"{path}: {len(test)} test nodes, tx has {count} rows")
    bad = np.flatnonzero((test < known) | (test >= nodes))
    if bad.size:
        raise InputError(f"{path}: line {bad[0] + 1}: test node {test[bad[0]]} is outside {known}..{nodes - 1}")
    return test
