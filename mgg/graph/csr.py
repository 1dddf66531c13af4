"""Compressed sparse rows (CSR) in memory: a range of rows of an adjacency matrix, as every later stage reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its subpackages load at first use
from numpy.typing import DTypeLike

from mgg.errors import InputError

#: Node ids are 32-bit below this many nodes.
NARROW_NODES = 2**31
#: ``row * n + column`` fits a signed 64-bit integer up to this many nodes.
KEY_NODES = 3_037_000_499
#: Rows per block in ``has_loops``.
_ROWS = 2**16


@dataclass(frozen=True)
class Csr:
    """Rows of an adjacency matrix; row v has the in-neighbours of v, ascending and without repeats.

    Attributes:
        indptr: int64 [rows + 1], ``indptr[0] == 0``.
        indices: int32 (int64 from 2^31 nodes on) [arcs], column ids.
        weights: float32 [arcs], or None if every arc weighs 1.
        columns: number of columns.
        types: int32 [arcs], or None if arcs have no types. Arcs of different types may join the same two nodes; the
            lower type comes first.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    columns: int
    types: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    @property
    def arcs(self) -> int:
        """Return the number of stored arcs."""
        return len(self.indices)

    def to_scipy(self, dtype: DTypeLike = np.float32) -> scipy.sparse.csr_matrix:
        """Return a SciPy matrix [rows, columns] of ``dtype``; arcs without weights become ones."""
        values = np.ones(self.arcs, dtype) if self.weights is None else self.weights.astype(dtype)
        return scipy.sparse.csr_matrix((values, self.indices, self.indptr), shape=(self.rows, self.columns))


def index_dtype(nodes: int) -> np.dtype:
    """Return the dtype of node ids: int32 below 2^31 nodes, else int64."""
    return np.dtype(np.int32 if nodes < NARROW_NODES else np.int64)


def from_arcs(
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    n: int,
    weights: np.ndarray | None = None,
    symmetrize: bool = False,
    drop_loops: bool = False,
) -> Csr:
    """Sort arcs into a square matrix [n, n] and drop repeats.

    Args:
        rows: integers [arcs], the arcs' targets.
        columns: integers [arcs], the arcs' sources.
        n: number of nodes.
        weights: float [arcs]; the first of several repeated arcs decides their weight.
        symmetrize: add the reverse of every arc; the first of all arcs that join two nodes, in either direction,
            decides the weight of both directions.
        drop_loops: leave out arcs from a node to itself.

    Raises:
        InputError: an id is negative, not below ``n`` or not an integer; the arrays differ in length; or ``n`` is
            above KEY_NODES.
    """
    rows, columns = _ids(rows, n), _ids(columns, n)
    if len(rows) != len(columns) or (weights is not None and len(weights) != len(rows)):
        raise InputError(f"arcs: {len(rows)} targets, {len(columns)} sources, weights must be as many")
    if drop_loops:
        keep = rows != columns
        rows, columns = rows[keep], columns[keep]
        weights = None if weights is None else weights[keep]
    if n > KEY_NODES:
        raise InputError(f"{n} nodes: at most {KEY_NODES} are supported")
    if weights is None:
        keys = _keys(rows, columns, n, symmetrize)
        keys.sort()
        fresh = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        return _split_keys(keys[fresh], None, n)
    return _weighted(rows, columns, np.asarray(weights, np.float32), n, symmetrize)


def is_symmetric(csr: Csr) -> bool:
    """Return whether the square matrix equals its transpose, weights included."""
    matrix = csr.to_scipy(np.int8 if csr.weights is None else np.float32)
    other = matrix.T.tocsr()
    return bool(
        np.array_equal(matrix.indptr, other.indptr)
        and np.array_equal(matrix.indices, other.indices)
        and np.array_equal(matrix.data, other.data)
    )


def has_loops(csr: Csr) -> bool:
    """Return whether an arc joins a node to itself."""
    for lo in range(0, csr.rows, _ROWS):
        ends = csr.indptr[lo : lo + _ROWS + 1]
        rows = np.repeat(np.arange(lo, lo + len(ends) - 1), np.diff(ends))
        if (rows == csr.indices[ends[0] : ends[-1]]).any():
            return True
    return False


def row_ids(csr: Csr) -> np.ndarray:
    """Return the row of every arc: [arcs], with the dtype of the column ids."""
    return np.repeat(np.arange(csr.rows, dtype=csr.indices.dtype), np.diff(csr.indptr))


def inverse(order: np.ndarray) -> np.ndarray:
    """Return the inverse of a permutation, integers [n]: given each node's position, the node at each position."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order), dtype=order.dtype)
    return found


def _ids(ids: np.ndarray, n: int) -> np.ndarray:
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise InputError(f"arcs: node ids must be a vector of integers, found {ids.dtype} of shape {ids.shape}")
    if ids.size and (ids.min() < 0 or ids.max() >= n):
        arc = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
        raise InputError(f"arc {arc}: node id {ids[arc]} is outside 0..{n - 1}")
    return ids


def _keys(rows: np.ndarray, columns: np.ndarray, n: int, symmetrize: bool) -> np.ndarray:
    """Return ``row * n + column`` of every arc and, if asked, its reverse, in one array: the only copy of the arcs."""
    count = len(rows)
    keys = np.empty(count * (2 if symmetrize else 1), np.int64)
    forward, reverse = keys[:count], keys[count:]
    np.multiply(rows, n, out=forward, dtype=np.int64)
    np.add(forward, columns, out=forward, casting="unsafe")
    if symmetrize:
        np.multiply(columns, n, out=reverse, dtype=np.int64)
        np.add(reverse, rows, out=reverse, casting="unsafe")
    return keys


def _weighted(rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, n: int, symmetrize: bool) -> Csr:
    if symmetrize:
        low, high = np.minimum(rows, columns), np.maximum(rows, columns)
        keys, first = np.unique(_keys(low, high, n, False), return_index=True)
        low, high, weights = keys // n, keys % n, weights[first]
        off = low != high
        rows, columns = np.concatenate([low, high[off]]), np.concatenate([high, low[off]])
        weights = np.concatenate([weights, weights[off]])
    keys, first = np.unique(_keys(rows, columns, n, False), return_index=True)
    return _split_keys(keys, weights[first], n)


def _split_keys(keys: np.ndarray, weights: np.ndarray | None, n: int) -> Csr:
    """Turn sorted unique keys into a Csr; n + 1 searches give the row pointers, so no row id per arc is stored."""
    indptr = np.searchsorted(keys, np.arange(n + 1, dtype=np.int64) * n).astype(np.int64)
    np.remainder(keys, max(n, 1), out=keys)
    return Csr(indptr, keys.astype(index_dtype(n)), weights, n)
