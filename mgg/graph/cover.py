"""Least vertex covers of bipartite graphs: what has to cross where a row may go itself or in a sum (SHIRO)."""

from __future__ import annotations

import numba
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching


def least_cover(indptr: np.ndarray, indices: np.ndarray, targets: int) -> np.ndarray:
    """The targets of a least vertex cover; with them, the sources that have an arc to another target cover all arcs.

    A greatest matching (Hopcroft and Karp) has as many arcs as a least cover has vertices; what alternating paths reach
    from the sources that it leaves alone says which these are (Koenig). That does not depend on which greatest matching
    was found (Dulmage and Mendelsohn), so the cover is the same everywhere: of all least ones the one with the fewest
    targets.

    Args:
        indptr: int64 [sources + 1]; source s has the arcs ``indptr[s] .. indptr[s + 1]``.
        indices: integers [arcs], their targets; arcs may be repeated.
        targets: number of targets.

    Returns:
        bool [targets], which of them the cover has.
    """
    matched = _matching(indptr, indices, targets)
    partner = np.full(targets, -1, np.int64)
    pairs = np.flatnonzero(matched >= 0)
    partner[matched[pairs]] = pairs
    return _reached(indptr, indices, matched, partner)


def cover_size(sources: np.ndarray, targets: np.ndarray) -> int:
    """Vertices of a least cover of the arcs ``sources[k]`` to ``targets[k]``, integers of any range: of each side."""
    if not len(sources):
        return 0
    order = np.argsort(sources, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(sources[order]) != 0))
    names, places = np.unique(targets[order], return_inverse=True)
    return int((_matching(np.append(first, len(order)), places, len(names)) >= 0).sum())


def _matching(indptr: np.ndarray, indices: np.ndarray, targets: int) -> np.ndarray:
    """The target of each source in a greatest matching, -1 without one: int64 [sources]."""
    sources = len(indptr) - 1
    if not len(indices):
        return np.full(sources, -1, np.int64)
    # SciPy's search writes beyond its memory where an arc is there twice. The copy: what is given may be mapped.
    graph = csr_array((np.ones(len(indices), np.bool_), indices, indptr), (sources, targets), copy=True)
    graph.sum_duplicates()
    return np.asarray(maximum_bipartite_matching(graph, perm_type="column"), np.int64)


@numba.njit(cache=True, nogil=True)
def _reached(indptr, indices, matched, partner):  # type: ignore[no-untyped-def]
    """Targets on alternating paths from sources without a partner; each of these has one, or the matching could grow"""
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
