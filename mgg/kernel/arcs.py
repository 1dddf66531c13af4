"""Arc by arc on CPU ranks: numba loops over rows of arcs, for values that every arc has, one for each of H heads.

The columns of a matrix [*, H * F] are those of head 0, then those of head 1, and so on. Sums are taken in float64 in
the order of the arcs and rounded once; nothing of the size arcs x F is ever made.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, inline="always")
def _score(to_target, to_source, slope):  # type: ignore[no-untyped-def]
    score = np.float64(to_target) + to_source
    return score if score > 0 else slope * score


@numba.njit(cache=True, nogil=True)
def states(ptr, ends, to_target, to_source, slope, out):  # type: ignore[no-untyped-def]
    """``out`` [rows, H, 2]: the highest score of each row's arcs, LeakyReLU(to_target[row] + to_source[end]), and
    1 / (the sum of exp(score - highest)).
    """
    for row in range(ptr.size - 1):
        for head in range(out.shape[1]):
            top = -np.inf
            for k in range(ptr[row], ptr[row + 1]):
                top = max(top, _score(to_target[row, head], to_source[ends[k], head], slope))
            out[row, head, 0] = top
            top, total = np.float64(out[row, head, 0]), 0.0
            for k in range(ptr[row], ptr[row + 1]):
                total += np.exp(_score(to_target[row, head], to_source[ends[k], head], slope) - top)
            out[row, head, 1] = 1 / total if total else 0.0


@numba.njit(cache=True, nogil=True)
def shares(ptr, ends, turned, states, to_target, to_source, slope, out):  # type: ignore[no-untyped-def]
    """``out`` [arcs, H]: the softmax of the scores; ``turned``: arcs are listed by source, and end at targets."""
    for row in range(ptr.size - 1):
        for k in range(ptr[row], ptr[row + 1]):
            target, source = (ends[k], row) if turned else (row, ends[k])
            for head in range(out.shape[1]):
                score = _score(to_target[target, head], to_source[source, head], slope)
                out[k, head] = np.exp(score - states[target, head, 0]) * states[target, head, 1]


@numba.njit(cache=True, nogil=True)
def score_gradients(  # type: ignore[no-untyped-def]
    ptr, ends, states, to_target, to_source, slope, factors, gradient, x, by_target, by_source
):
    """Gradients by both parts of the scores, from that by the weighted sums of ``x``.

    ``factors`` [arcs, H] is what dropout multiplied the shares by, or has no rows. ``by_source`` is float64 and gets
    the sums added.
    """
    heads = by_target.shape[1]
    columns = x.shape[1] // heads
    longest = 0
    for row in range(ptr.size - 1):
        longest = max(longest, ptr[row + 1] - ptr[row])
    by_share, share = np.empty(longest), np.empty(longest)
    for row in range(ptr.size - 1):
        first = ptr[row]
        for head in range(heads):
            mean = 0.0
            for k in range(first, ptr[row + 1]):
                source, inner = ends[k], 0.0
                for d in range(head * columns, (head + 1) * columns):
                    inner += np.float64(gradient[row, d]) * x[source, d]
                score = _score(to_target[row, head], to_source[source, head], slope)
                share[k - first] = np.exp(score - states[row, head, 0]) * states[row, head, 1]
                by_share[k - first] = inner * factors[k, head] if factors.size else inner
                mean += share[k - first] * by_share[k - first]
            total = 0.0
            for k in range(first, ptr[row + 1]):
                found = share[k - first] * (by_share[k - first] - mean)
                if not np.float64(to_target[row, head]) + to_source[ends[k], head] > 0:
                    found *= slope
                total += found
                by_source[ends[k], head] += found
            by_target[row, head] = total


@numba.njit(cache=True, nogil=True)
def aggregate(ptr, ends, weights, x, out):  # type: ignore[no-untyped-def]
    """``out[row]`` = sum over the row's arcs k of ``weights[k]`` times ``x[ends[k]]``, head by head."""
    total = np.empty(out.shape[1])
    heads = weights.shape[1]
    columns = out.shape[1] // heads
    for row in range(ptr.size - 1):
        total[:] = 0
        for k in range(ptr[row], ptr[row + 1]):
            end = ends[k]
            for head in range(heads):
                weight = np.float64(weights[k, head])
                for d in range(head * columns, (head + 1) * columns):
                    total[d] += weight * x[end, d]
        out[row] = total
