"""Sums of weighted rows on CPU ranks: the loops of products and of what goes arc by arc; and copies of single rows.

Sums are float64, in the order of the arcs. Four arcs at a time: sums are loaded and stored once for all four, in the
same order, so with the same bits. Rows are views: numba makes no vector instructions of a loop over part of a matrix.
All of it is in one file, since numba does not compile a function anew when another file that is inlined changes.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, inline="always")
def _add_row(sums, weight, row):  # type: ignore[no-untyped-def]
    for d in range(sums.size):
        sums[d] += weight * row[d]


@numba.njit(cache=True, nogil=True, inline="always")
def _add_rows(sums, weights, rows):  # type: ignore[no-untyped-def]
    (t, u, v, w), (p, q, r, s) = weights, rows
    for d in range(sums.size):
        sums[d] = sums[d] + t * p[d] + u * q[d] + v * r[d] + w * s[d]


@numba.njit(cache=True, nogil=True, inline="always")
def _add_arcs(start, stop, indices, weights, b, acc):  # type: ignore[no-untyped-def]
    """``acc += sum of weights[k] * b[indices[k]]`` for k in start..stop; empty weights mean ones."""
    rest, one = stop - (stop - start) % 4, np.float64(1)
    if weights.size:
        for k in range(start, rest, 4):
            i, j, m, n = indices[k], indices[k + 1], indices[k + 2], indices[k + 3]
            t, u = np.float64(weights[k]), np.float64(weights[k + 1])
            v, w = np.float64(weights[k + 2]), np.float64(weights[k + 3])
            _add_rows(acc, (t, u, v, w), (b[i], b[j], b[m], b[n]))
        for k in range(rest, stop):
            _add_row(acc, np.float64(weights[k]), b[indices[k]])
    else:
        for k in range(start, rest, 4):
            i, j, m, n = indices[k], indices[k + 1], indices[k + 2], indices[k + 3]
            _add_rows(acc, (one, one, one, one), (b[i], b[j], b[m], b[n]))
        for k in range(rest, stop):
            _add_row(acc, one, b[indices[k]])


@numba.njit(cache=True, nogil=True)
def spmm_rows(indptr, indices, weights, b, c, accumulate):  # type: ignore[no-untyped-def]
    """``mgg.kernel.cpu.spmm_rows`` without its conversions; ``weights`` are empty where all are one."""
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
def spmm_partitions(rows, starts, stops, indices, weights, b, acc):  # type: ignore[no-untyped-def]
    """``mgg.kernel.cpu.spmm_partitions``, likewise."""
    partial = np.empty(acc.shape[1], np.float64)
    for i in range(rows.size):
        partial[:] = 0.0
        _add_arcs(starts[i], stops[i], indices, weights, b, partial)
        _add_row(acc[rows[i]], 1.0, partial)


@numba.njit(cache=True, nogil=True)
def spmm_columns(colptr, rows, weights, b, acc):  # type: ignore[no-untyped-def]
    """``mgg.kernel.cpu.spmm_columns``, likewise."""
    first = colptr[0]
    for j in range(colptr.size - 1):
        for k in range(colptr[j] - first, colptr[j + 1] - first):
            _add_row(acc[rows[k]], np.float64(weights[k]) if weights.size else 1.0, b[j])


@numba.njit(cache=True, nogil=True)
def pick_rows(x, places, out):  # type: ignore[no-untyped-def]
    """``out[k] = x[places[k]]``, several times as fast as NumPy where rows are narrow."""
    for k in range(places.size):
        place = places[k]
        for d in range(x.shape[1]):
            out[k, d] = x[place, d]


@numba.njit(cache=True, nogil=True)
def put_rows(x, places, out):  # type: ignore[no-untyped-def]
    """``out[places[k]] = x[k]``, likewise."""
    for k in range(places.size):
        place = places[k]
        for d in range(x.shape[1]):
            out[place, d] = x[k, d]
