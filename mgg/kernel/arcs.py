"""Arc by arc on CPU ranks: numba loops over rows of arcs, for values that every arc has, one for each of H heads.

The columns of a matrix [*, H * F] are those of head 0, then those of head 1, and so on. Sums are taken in float64 in
the order of the arcs and rounded once; nothing of the size arcs x F is ever made.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def softmax(indptr, sources, to_target, to_source, slope, out):  # type: ignore[no-untyped-def]
    """``out`` [arcs, H]: for each row the softmax over its arcs of LeakyReLU(to_target[row] + to_source[source])."""
    for row in range(indptr.size - 1):
        for head in range(out.shape[1]):
            top = -np.inf
            for k in range(indptr[row], indptr[row + 1]):
                score = np.float64(to_target[row, head]) + to_source[sources[k], head]
                top = max(top, score if score > 0 else slope * score)
            total = 0.0
            for k in range(indptr[row], indptr[row + 1]):
                score = np.float64(to_target[row, head]) + to_source[sources[k], head]
                total += np.exp((score if score > 0 else slope * score) - top)
            for k in range(indptr[row], indptr[row + 1]):
                score = np.float64(to_target[row, head]) + to_source[sources[k], head]
                out[k, head] = np.exp((score if score > 0 else slope * score) - top) / total


@numba.njit(cache=True, nogil=True)
def softmax_backward(  # type: ignore[no-untyped-def]
    indptr, sources, shares, gradient, to_target, to_source, slope, by_arc, by_target
):
    """Gradients of ``softmax`` by the sum that each arc's LeakyReLU takes [arcs, H] and by ``to_target`` [rows, H]."""
    for row in range(indptr.size - 1):
        for head in range(shares.shape[1]):
            mean = 0.0
            for k in range(indptr[row], indptr[row + 1]):
                mean += np.float64(shares[k, head]) * gradient[k, head]
            total = 0.0
            for k in range(indptr[row], indptr[row + 1]):
                found = shares[k, head] * (gradient[k, head] - mean)
                if not np.float64(to_target[row, head]) + to_source[sources[k], head] > 0:
                    found *= slope
                by_arc[k, head] = found
                total += found
            by_target[row, head] = total


@numba.njit(cache=True, nogil=True)
def sums(ptr, order, values, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = sum of ``values[order[k]]`` for k in ptr[i]..ptr[i + 1], each [H]."""
    for i in range(ptr.size - 1):
        for head in range(values.shape[1]):
            total = 0.0
            for k in range(ptr[i], ptr[i + 1]):
                total += values[order[k], head]
            out[i, head] = total


@numba.njit(cache=True, nogil=True)
def aggregate(indptr, sources, weights, x, out):  # type: ignore[no-untyped-def]
    """``out[row]`` = sum over the row's arcs k of ``weights[k]`` times ``x[sources[k]]``, head by head."""
    total = np.empty(out.shape[1])
    heads = weights.shape[1]
    columns = out.shape[1] // heads
    for row in range(indptr.size - 1):
        total[:] = 0
        for k in range(indptr[row], indptr[row + 1]):
            source = sources[k]
            for head in range(heads):
                weight = np.float64(weights[k, head])
                for d in range(head * columns, (head + 1) * columns):
                    total[d] += weight * x[source, d]
        out[row] = total


@numba.njit(cache=True, nogil=True)
def aggregate_back(source_ptr, order, targets, weights, gradient, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = sum over the arcs k that begin at i of ``weights[k]`` times ``gradient[targets[k]]``."""
    total = np.empty(out.shape[1])
    heads = weights.shape[1]
    columns = out.shape[1] // heads
    for i in range(source_ptr.size - 1):
        total[:] = 0
        for j in range(source_ptr[i], source_ptr[i + 1]):
            k = order[j]
            row = targets[k]
            for head in range(heads):
                weight = np.float64(weights[k, head])
                for d in range(head * columns, (head + 1) * columns):
                    total[d] += weight * gradient[row, d]
        out[i] = total


@numba.njit(cache=True, nogil=True)
def inner(targets, sources, gradient, x, out):  # type: ignore[no-untyped-def]
    """``out[k]`` = inner products of ``gradient[targets[k]]`` and ``x[sources[k]]``, head by head (SDDMM)."""
    heads = out.shape[1]
    columns = x.shape[1] // heads
    for k in range(targets.size):
        for head in range(heads):
            total = 0.0
            for d in range(head * columns, (head + 1) * columns):
                total += np.float64(gradient[targets[k], d]) * x[sources[k], d]
            out[k, head] = total
