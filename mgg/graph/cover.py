"""Minimum vertex covers of bipartite graphs: the fewest rows to send if a row can go itself or in a sum (SHIRO)."""

from __future__ import annotations

import numba
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching


def least_cover(indptr: np.ndarray, indices: np.ndarray, targets: int) -> np.ndarray:
    """Return the targets in a minimum vertex cover; its sources are those with an arc to any other target.

    A maximum matching (Hopcroft and Karp) has as many arcs as a minimum cover has vertices. The targets are those that
    alternating paths reach from the unmatched sources (Koenig). They do not depend on which maximum matching was found
    (Dulmage and Mendelsohn), so the cover is the same everywhere: the minimum cover with the fewest targets.

    Args:
        indptr: int64 [sources + 1]; source s has the arcs ``indptr[s] .. indptr[s + 1]``.
        indices: integers [arcs], their targets; arcs may be repeated.
        targets: number of targets.

    Returns:
        bool [targets], True for targets in the cover.
    """
    matched = _matching(indptr, indices, targets)
    partner = np.full(targets, -1, np.int64)
    pairs = np.flatnonzero(matched >= 0)
    partner[matched[pairs]] = pairs
    return _reached(indptr, indices, matched, partner)


def cover_size(sources: np.ndarray, targets: np.ndarray) -> int:
    """Return the size of a minimum cover of the arcs ``sources[k]`` to ``targets[k]``, integers of any range."""
    if not len(sources):
        return 0
    order = np.argsort(sources, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(sources[order]) != 0))
    names, places = np.unique(targets[order], return_inverse=True)
    return int((_matching(np.append(first, len(order)), places, len(names)) >= 0).sum())


def _matching(indptr: np.ndarray, indices: np.ndarray, targets: int) -> np.ndarray:
    """Return each source's target in a maximum matching, -1 without one: int64 [sources]."""
    sources = len(indptr) - 1
    if not len(indices):
        return np.full(sources, -1, np.int64)
    # SciPy's search writes outside its memory if arcs repeat. A copy, because the given arrays may be mapped files.
    graph = csr_array((np.ones(len(indices), np.bool_), indices, indptr), (sources, targets), copy=True)
    graph.sum_duplicates()
    return np.asarray(maximum_bipartite_matching(graph, perm_type="column"), np.int64)


@numba.njit(cache=True, nogil=True)
def _reached(indptr, indices, matched, partner):  # type: ignore[no-untyped-def]
    """Find targets on alternating paths from unmatched sources; all are matched, or the matching could grow."""
    found = np.zeros(partner.size, np.bool_)
    stack = np.empty(matched.size, np.int64)
    height = 0
    for source in range(matched.size):
        if matched[source] < 0:
            stack[height] = source
            height += 1
    while height:
        height -= 1
        source = stack[height]
        for k in range(indptr[source], indptr[source + 1]):
            target = indices[k]
            if not found[target]:
                found[target] = True
                stack[height] = partner[target]
                height += 1
    return found
