"""The operators on CPU ranks: numba loops that release the interpreter lock, so that PEs can be threads.

Products are summed in float64 and rounded once, so the error stays under one unit in the last place of float32 for rows
of any length, in whatever order a technique visits the arcs, and techniques and PE counts rarely differ in a bit.
"""

from __future__ import annotations

import numba
import numpy as np

from mgg.kernel.bf16 import from_bf16, to_bf16

_NONE = np.empty(0, np.float32)


@numba.njit(cache=True, nogil=True)
def _gather_rows(source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        row = rows[i]
        for d in range(source.shape[1]):
            out[i, d] = source[row, d]


@numba.njit(cache=True, nogil=True, inline="always")
def _add_arcs(start, stop, indices, weights, b, acc):  # type: ignore[no-untyped-def]
    """``acc += sum of weights[k] * b[indices[k]]`` for k in start..stop; empty weights mean ones."""
    if weights.size:
        for k in range(start, stop):
            row, weight = indices[k], np.float64(weights[k])
            for d in range(acc.size):
                acc[d] += weight * b[row, d]
    else:
        for k in range(start, stop):
            row = indices[k]
            for d in range(acc.size):
                acc[d] += b[row, d]


@numba.njit(cache=True, nogil=True)
def _spmm_rows(indptr, indices, weights, b, c, accumulate):  # type: ignore[no-untyped-def]
    acc = np.empty(c.shape[1], np.float64)
    for r in range(indptr.size - 1):
        if accumulate:
            if indptr[r] == indptr[r + 1]:
                continue
            acc[:] = c[r]
        else:
            acc[:] = 0.0
        _add_arcs(indptr[r], indptr[r + 1], indices, weights, b, acc)
        for d in range(acc.size):
            c[r, d] = acc[d]  # rounds, where c is float32


@numba.njit(cache=True, nogil=True)
def _spmm_partitions(rows, starts, stops, indices, weights, b, acc):  # type: ignore[no-untyped-def]
    partial = np.empty(acc.shape[1], np.float64)
    for i in range(rows.size):
        partial[:] = 0.0
        _add_arcs(starts[i], stops[i], indices, weights, b, partial)
        row = rows[i]
        for d in range(partial.size):
            acc[row, d] += partial[d]


@numba.njit(cache=True, nogil=True)
def _spmm_columns(colptr, rows, weights, b, acc):  # type: ignore[no-untyped-def]
    first = colptr[0]
    for j in range(colptr.size - 1):
        for k in range(colptr[j] - first, colptr[j + 1] - first):
            row = rows[k]
            weight = np.float64(weights[k]) if weights.size else 1.0
            for d in range(acc.shape[1]):
                acc[row, d] += weight * b[j, d]


def gather_rows(source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Copy ``source[rows]`` into ``out`` [len(rows), columns] of its type; row ids of any integer type."""
    _gather_rows(source, rows, out)


def spmm_rows(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, b: np.ndarray, c: np.ndarray, accumulate: bool
) -> None:
    """Row-wise SpMM (CoLa 2.1) into ``c`` [rows, D], float32 or an accumulator; ``b`` float32 or bfloat16 [*, D]."""
    b = from_bf16(b) if b.dtype == np.uint16 else b
    _spmm_rows(indptr, indices, _NONE if weights is None else weights, b, c, accumulate)


def accumulator(rows: int, columns: int) -> np.ndarray:
    """float64 [rows, columns], uninitialized."""
    return np.empty((rows, columns), np.float64)


def spmm_partitions(
    rows: np.ndarray, starts: np.ndarray, stops: np.ndarray, indices: np.ndarray,
    weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray,
) -> None:  # fmt: skip
    """Add each neighbor partition's partial sum (MGG 4.1) to ``acc`` float64 [*, D]; arcs ``starts[i]..stops[i]``."""
    _spmm_partitions(rows, starts, stops, indices, _NONE if weights is None else weights, b, acc)


def spmm_columns(
    colptr: np.ndarray, rows: np.ndarray, weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray
) -> None:
    """Column-wise SpMM (CoLa algorithm 1) into ``acc`` float64; ``rows[0]`` is arc ``colptr[0]``."""
    _spmm_columns(colptr, rows, _NONE if weights is None else weights, b, acc)


def round_to_bf16(values: np.ndarray, out: np.ndarray) -> None:
    """Round float32 ``values`` to bfloat16 ``out`` (uint16), same shape."""
    out[...] = to_bf16(values)


def widen_bf16(values: np.ndarray, out: np.ndarray) -> None:
    """Write bfloat16 ``values`` (uint16) into float32 ``out``, same shape."""
    out[...] = from_bf16(values)


def finish(acc: np.ndarray, c: np.ndarray) -> None:
    """Round ``acc`` float64 into ``c`` float32, same shape; nothing to do where they are one."""
    if acc is not c:
        c[...] = acc
