"""The operators on CPU ranks: numba loops that release the interpreter lock, so that PEs can be threads.

Products are summed in float64 and rounded once, so the error stays under one unit in the last place of float32 for rows
of any length, in whatever order a technique visits the arcs, and techniques and PE counts rarely differ in a bit.
"""

from __future__ import annotations

import numba
import numpy as np

from mgg.kernel import wire
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.cpu import sums
from mgg.kernel.random import Draws, stream_key
from mgg.kernel.threads import deal

_NONE = np.empty(0, np.float32)


@numba.njit(cache=True, nogil=True)
def _gather_rows(source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        row = rows[i]
        for d in range(source.shape[1]):
            out[i, d] = source[row, d]


def gather_rows(source: np.ndarray, rows: np.ndarray | range, out: np.ndarray) -> None:
    """Copy ``source[rows]`` into ``out`` [len(rows), columns] of its type; row ids of any integer type."""
    if isinstance(rows, range):
        out[...] = source[rows.start : rows.stop]
    else:
        _gather_rows(source, rows, out)


@numba.njit(cache=True, nogil=True)
def _add_rows(source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        row = rows[i]
        for d in range(source.shape[1]):
            out[row, d] += source[i, d]


def add_rows(source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Add ``source`` [len(rows), columns] to ``out[rows]`` of its type; row ids of any integer type."""
    _add_rows(source, rows, out)


def pack_rows(source: np.ndarray, rows: np.ndarray, ids: np.ndarray, draws: Draws, bits: int, out: np.ndarray) -> None:
    """Pack ``source[rows]`` into ``out`` uint32 [k, words] (``mgg.kernel.wire``)."""
    wire.pack_rows(source, rows, ids, stream_key(draws.seed, draws.stream), bits, out)


unpack_rows = wire.unpack_rows


def spmm_rows(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, b: np.ndarray, c: np.ndarray, accumulate: bool
) -> None:
    """Row-wise SpMM (CoLa 2.1) into ``c`` [rows, D], float32 or an accumulator; ``b`` float32 or bfloat16 [*, D]."""
    given = _NONE if weights is None else weights
    deal(indptr, lambda first, last: sums.spmm_rows(indptr, indices, given, b, c, accumulate, first, last))


def accumulator(rows: int, columns: int) -> np.ndarray:
    """float64 [rows, columns], uninitialized."""
    return np.empty((rows, columns), np.float64)


def spmm_partitions(
    rows: np.ndarray, starts: np.ndarray, stops: np.ndarray, indices: np.ndarray,
    weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray,
) -> None:  # fmt: skip
    """Add each neighbor partition's partial sum (MGG 4.1) to ``acc`` float64 [*, D]; arcs ``starts[i]..stops[i]``."""
    sums.spmm_partitions(rows, starts, stops, indices, _NONE if weights is None else weights, b, acc)


def spmm_columns(
    colptr: np.ndarray, rows: np.ndarray, weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray
) -> None:
    """Column-wise SpMM (CoLa algorithm 1) into ``acc`` float64; ``rows[0]`` is arc ``colptr[0]``."""
    sums.spmm_columns(colptr, rows, _NONE if weights is None else weights, b, acc)


def write(values: np.ndarray, out: np.ndarray) -> None:
    """Write float32 ``values`` into ``out``, float32 or bfloat16 (uint16), same shape."""
    out[...] = to_bf16(values) if out.dtype == np.uint16 else values


def widen_bf16(values: np.ndarray, out: np.ndarray) -> None:
    """Write bfloat16 ``values`` (uint16) into float32 ``out``, same shape."""
    out[...] = from_bf16(values)


def finish(acc: np.ndarray, c: np.ndarray) -> None:
    """Round ``acc`` float64 into ``c`` float32, same shape; nothing to do where they are one."""
    if acc is not c:
        c[...] = acc
