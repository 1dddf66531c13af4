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
def shares(ptr, ends, states, to_target, to_source, slope, out):  # type: ignore[no-untyped-def]
    """``out`` [arcs, H]: the softmax of the scores."""
    for row in range(ptr.size - 1):
        for k in range(ptr[row], ptr[row + 1]):
            for head in range(out.shape[1]):
                score = _score(to_target[row, head], to_source[ends[k], head], slope)
                out[k, head] = np.exp(score - states[row, head, 0]) * states[row, head, 1]


@numba.njit(cache=True, nogil=True)
def signed_shares(ptr, ends, states, to_target, to_source, slope, out, sums):  # type: ignore[no-untyped-def]
    """``shares`` with the sign of the score, and ``sums`` [rows, H] of those with a minus."""
    total = np.empty(out.shape[1])
    for row in range(ptr.size - 1):
        total[:] = 0
        for k in range(ptr[row], ptr[row + 1]):
            for head in range(out.shape[1]):
                score = _score(to_target[row, head], to_source[ends[k], head], slope)
                share = np.exp(score - states[row, head, 0]) * states[row, head, 1]
                if score > 0:
                    out[k, head] = share
                else:
                    out[k, head] = -share
                    total[head] += share
        sums[row] = total


@numba.njit(cache=True, nogil=True)
def signed_shares_back(  # type: ignore[no-untyped-def]
    ptr, ends, states, to_target, to_source, slope, means, out, sums
):
    """The same of arcs that are listed by source, and end at targets: ``sums`` [sources, H] of each share times the
    derivative of LeakyReLU times the target's entry of ``means`` [targets, H].
    """
    total = np.empty(out.shape[1])
    for row in range(ptr.size - 1):
        total[:] = 0
        for k in range(ptr[row], ptr[row + 1]):
            target = ends[k]
            for head in range(out.shape[1]):
                score = _score(to_target[target, head], to_source[row, head], slope)
                share = np.exp(score - states[target, head, 0]) * states[target, head, 1]
                mean = np.float64(means[target, head])
                if score > 0:
                    out[k, head] = share
                    total[head] += share * mean
                else:
                    out[k, head] = -share
                    total[head] += share * slope * mean
        sums[row] = total
