"""Improves communities: moves single vertices between them, and contracts communities to vertices.

Source: V. Traag, L. Waltman, N. J. van Eck: From Louvain to Leiden, Scientific Reports 9, 2019 (the fast local move).
"""

from __future__ import annotations

import numba
import numpy as np

#: The refinement ends when a sweep moves less than this share of the vertices.
SETTLED = 0.001


def refine(
    offsets: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, strength: np.ndarray, community: np.ndarray,
    *, resolution: float, sweeps: int,
) -> np.ndarray:  # fmt: skip
    """Move single vertices, the weakest first, to the neighboring community of the largest modularity gain.

    Sweeps after the first visit only neighbors of vertices that moved. Modularity never falls.

    Args:
        offsets: int64 [n + 1].
        indices: integers [arcs], a symmetric structure.
        weights: float32 [arcs], or None where every arc counts 1.
        strength: float64 [n], ends of arcs at each vertex.
        community: integers [n], from 0 to n - 1.
        resolution: 1 for modularity.
        sweeps: maximum number of sweeps; fewer if the vertices settle.

    Returns:
        The community of each vertex, with the dtype of ``community``.
    """
    turns = np.argsort(strength, kind="stable").astype(indices.dtype, copy=False)
    given = np.empty(0, np.float32) if weights is None else weights
    found, ends = community.copy(), np.bincount(community, strength, len(strength))
    dirty = np.ones(len(strength), np.bool_)
    for _ in range(sweeps):
        moved = _sweep(offsets, indices, given, strength, turns, found, ends, dirty, resolution)
        if moved <= SETTLED * len(strength):
            break
    return found


def contract(
    offsets: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, community: np.ndarray, count: int,
    space: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the graph whose vertices are the communities, with arcs between two communities summed and no loops.

    Args:
        offsets: int64 [n + 1].
        indices: integers [arcs].
        weights: float32 [arcs], or None where every arc counts 1.
        community: integers [n], from 0 to count - 1.
        count: number of communities.
        space: [arcs] of the dtype of ``indices`` and float32 [arcs], which are overwritten.

    Returns:
        offsets int64 [count + 1], indices and weights float32 of the arcs between communities.
    """
    members = np.argsort(community, kind="stable").astype(indices.dtype, copy=False)
    firsts = np.searchsorted(community[members], np.arange(count + 1))
    given = np.empty(0, np.float32) if weights is None else weights
    bounds = _contract(offsets, indices, given, community, members, firsts, *space)
    return bounds, space[0][: bounds[-1]].copy(), space[1][: bounds[-1]].copy()


@numba.njit(cache=True, nogil=True)
def _sweep(offsets, indices, weights, strength, turns, community, ends, dirty, resolution):  # type: ignore[no-untyped-def]
    """Give every dirty vertex one turn; return how many moved."""
    n, total, moved, ones = offsets.size - 1, strength.sum(), 0, weights.size == 0
    links, near = np.zeros(n, np.float64), np.empty(n, indices.dtype)
    for v in turns:
        if not dirty[v] or offsets[v] == offsets[v + 1]:
            continue
        dirty[v] = False
        count, home = 0, community[v]
        for k in range(offsets[v], offsets[v + 1]):
            if indices[k] != v:
                c = community[indices[k]]
                if links[c] == 0.0:
                    near[count] = c
                    count += 1
                links[c] += 1.0 if ones else weights[k]
        scale = resolution * strength[v] / total
        best, most = home, links[home] - scale * (ends[home] - strength[v])
        for c in near[:count]:
            gain = links[c] - scale * ends[c]
            if c != home and gain > most:
                best, most = c, gain
            links[c] = 0.0
        if best != home:
            moved += 1
            community[v] = best
            ends[home] -= strength[v]
            ends[best] += strength[v]
            for k in range(offsets[v], offsets[v + 1]):
                if community[indices[k]] != best:
                    dirty[indices[k]] = True
    return moved


@numba.njit(cache=True, nogil=True)
def _contract(offsets, indices, weights, community, members, firsts, to, between):  # type: ignore[no-untyped-def]
    """Fill ``to`` and ``between`` with the arcs of every community; return where each community's arcs begin."""
    count = firsts.size - 1
    bounds = np.zeros(count + 1, np.int64)
    links = np.zeros(count, np.float64)
    ones, stop = weights.size == 0, 0
    for home in range(count):
        start = stop
        for v in members[firsts[home] : firsts[home + 1]]:
            for k in range(offsets[v], offsets[v + 1]):
                c = community[indices[k]]
                if c != home:
                    if links[c] == 0.0:
                        to[stop] = c
                        stop += 1
                    links[c] += 1.0 if ones else weights[k]
        for k in range(start, stop):
            between[k] = links[to[k]]
            links[to[k]] = 0.0
        bounds[home + 1] = stop
    return bounds
