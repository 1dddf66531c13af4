"""Incremental aggregation by modularity gain, and the walk over the resulting dendrogram.

Source: J. Arai, H. Shiokawa, T. Yamamuro, M. Onizuka, S. Iwamura: Rabbit Order, IPDPS 2016, section III; here
sequential, so that the same graph gives the same dendrogram.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np


class Dendrogram(NamedTuple):
    """A forest over n vertices; all arrays are [n] and of one integer type; -1: no such vertex.

    Attributes:
        root: the root of each vertex's tree, itself for a root.
        child: the vertex that was merged into each vertex last.
        sibling: the vertex that was merged into the same parent just before.
    """

    root: np.ndarray
    child: np.ndarray
    sibling: np.ndarray


def merge(
    offsets: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    strength: np.ndarray,
    *,
    resolution: float = 1.0,
    ones: bool = False,
) -> Dendrogram:
    """Merge every vertex, the weakest first, into the neighboring tree of the largest positive modularity gain.

    The gain of merging v into u is, up to a factor, w_uv - resolution s_u s_v / s: w_uv counts the arcs between their
    trees, s_u and s_v the ends of arcs at them, s all ends. The arcs of merged vertices are combined only when the
    vertex that took them has its turn. They overwrite the arcs that were read, in the rows of the tree's vertices,
    which form a linked list, so no memory is allocated. The tree's next parent reads each list once, so the work is the
    arcs plus the lengths of all lists.

    Args:
        offsets: int64 [n + 1].
        indices: integers [arcs], a symmetric structure; loops are ignored. Overwritten.
        weights: float32 [arcs], weight of each arc. Overwritten; the contents do not matter if ``ones``.
        strength: float64 [n], ends of arcs at each vertex, loops included.
        resolution: 1 for modularity; less merges more.
        ones: every arc counts 1.
    """
    turns = np.argsort(strength, kind="stable").astype(indices.dtype, copy=False)
    return Dendrogram(*_merge(offsets, indices, weights, strength.copy(), turns, resolution, ones))


@numba.njit(cache=True, nogil=True)
def _merge(offsets, indices, weights, strength, turns, resolution, ones):  # type: ignore[no-untyped-def]
    n, total = offsets.size - 1, strength.sum()
    root = np.empty(n, indices.dtype)
    for v in range(n):
        root[v] = v
    # A tree's arcs are in its root's row, then in the row ``after`` each row, up to ``tail`` of the root.
    tail, after = root.copy(), np.full(n, -1, indices.dtype)
    held = np.zeros(n, np.int64)
    child, sibling = after.copy(), after.copy()
    # One extra element, as the loop also writes the place after the end of the list.
    links, near = np.zeros(n, np.float64), np.empty(n + 1, indices.dtype)
    for v in turns:
        count = _gather(v, offsets, indices, weights, ones, root, after, held, links, near)
        if count == 0:
            continue
        best = _best(near[:count], links, strength, resolution * strength[v] / total)
        tail[v] = _store(v, offsets, indices, weights, after, held, links, near[:count])
        if best >= 0:
            root[v] = best
            sibling[v], child[best] = child[best], v
            strength[best] += strength[v]
            after[tail[best]], tail[best] = v, tail[v]
    for v in range(n):
        root[v] = _find(root, v)
    return root, child, sibling


# Branches that depend on a value from memory cost most here, so the code keeps them predictable: roots are mostly one
# step away, and a tree that is new to the list only moves the list's end.


@numba.njit(cache=True, nogil=True, inline="always")
def _find(root, v):  # type: ignore[no-untyped-def]
    """Return the root of v, and halve the path to it."""
    above = root[v]
    over = root[above]
    while above != over:
        root[v] = over
        v = over
        above = root[v]
        over = root[above]
    return above


@numba.njit(cache=True, nogil=True, inline="always")
def _gather(v, offsets, indices, weights, ones, root, after, held, links, near):  # type: ignore[no-untyped-def]
    """Sum the links [n] of v's tree to every other tree, list these and v in ``near``, and return their number."""
    count, row, stop, unit = 0, v, offsets[v + 1], ones
    while row >= 0:
        for k in range(offsets[row], stop):
            u = _find(root, indices[k])
            known = links[u]
            near[count] = u
            count += known == 0.0
            links[u] = known + (1.0 if unit else weights[k])
        row = after[row]
        if row >= 0:
            stop, unit = offsets[row] + held[row], False
    links[v] = 0.0
    return count


@numba.njit(cache=True, nogil=True, inline="always")
def _best(near, links, strength, scale):  # type: ignore[no-untyped-def]
    """Return the tree with the largest positive gain, the first of equals; -1 if there is none."""
    best, most = -1, 0.0
    for u in near:
        gain = links[u] - scale * strength[u]
        if gain > most:
            best, most = u, gain
    return best


@numba.njit(cache=True, nogil=True, inline="always")
def _store(v, offsets, indices, weights, after, held, links, near):  # type: ignore[no-untyped-def]
    """Write the arcs of v's tree into the tree's rows and clear ``links``; return the last row used."""
    row, first, stop = v, offsets[v], offsets[v + 1]
    k = first
    for u in near:
        if u == v:
            continue
        while k == stop:
            held[row] = k - first
            row = after[row]
            first, stop = offsets[row], offsets[row + 1]
            k = first
        indices[k], weights[k] = u, links[u]
        k += 1
        links[u] = 0.0
    held[row] = k - first
    after[row] = -1
    return row


@numba.njit(cache=True, nogil=True)
def walk(root, child, sibling):  # type: ignore[no-untyped-def]
    """Return all vertices [n] depth first: each before those merged into it, the latest merge first; roots ascend."""
    # A vertex is on the stack at most once, so the stack and the result share one array from its two ends.
    n = root.size
    listed = np.empty(n, root.dtype)
    done, top = 0, n
    for start in range(n):
        if root[start] != start:
            continue
        top -= 1
        listed[top] = start
        while top < n:
            v = listed[top]
            top += 1
            listed[done] = v
            done += 1
            if v != start and sibling[v] >= 0:
                top -= 1
                listed[top] = sibling[v]
            if child[v] >= 0:
                top -= 1
                listed[top] = child[v]
    return listed
