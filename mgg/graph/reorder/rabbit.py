"""Rabbit order: communities, and communities of communities, become ranges of ids.

Source: J. Arai, H. Shiokawa, T. Yamamuro, M. Onizuka, S. Iwamura: Rabbit Order, IPDPS 2016. Beyond the paper:

- The first aggregation stops early, at a resolution that keeps communities small, and after every aggregation single
  vertices change communities. Both correct early merges, which have little information: at first all arcs count 1.
- The communities, which the paper numbers in no particular order, are aggregated repeatedly, with a falling resolution,
  until each connected component is one tree. So few arcs also leave ranges of ids much larger than a community.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mgg.graph.csr import index_dtype, inverse
from mgg.graph.reorder import order
from mgg.graph.reorder.communities import contract, refine
from mgg.graph.reorder.merge import merge, walk
from mgg.graph.reorder.structure import adjacency, both_directions
from mgg.graph.store import Graph

#: Resolution of the first aggregation.
FINE = 4.0
#: Maximum sweeps of a refinement; all but the first visit few vertices.
SWEEPS = 10
#: The resolution halves when an aggregation leaves more than this share of its vertices unmerged.
STUCK = 0.9


class Level(NamedTuple):
    """One aggregation: its vertices depth first, and each vertex's community, a vertex of the next level."""

    sequence: np.ndarray
    community: np.ndarray


def memory(nodes: int, arcs: int, symmetric: bool) -> int:
    """Return the peak bytes."""
    ids = index_dtype(nodes).itemsize
    # The graph, and the arcs that are merged with their weights; a directed graph's arcs are stored in both directions.
    by_arc = (2 * ids + 4) * (1 if symmetric else 2)
    # The first aggregation takes six arrays of 8 bytes and eight of ids. Where few nodes merge, the second one needs
    # almost as much for the communities, beside the offsets, strengths, sequence and community of the nodes.
    return arcs * by_arc + nodes * (9 * 8 + 10 * ids)


@order("rabbit", memory)
def rank(graph: Graph) -> tuple[str, np.ndarray]:
    """Number by :func:`cluster`."""
    offsets, indices = adjacency(graph)
    if not graph.manifest.symmetric:
        offsets, indices = both_directions(offsets, indices)
    return "rabbit", cluster(offsets, indices)[0]


def cluster(offsets: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find communities and numbers at once.

    Args:
        offsets: int64 [n + 1].
        indices: integers [arcs], a symmetric structure; repeats count, loops are ignored.

    Returns:
        ``rank`` [n] of the dtype of ``indices``, the new id of each node, and ``community`` [n], integers from 0 on,
        the communities at resolution 1. Each community is a range of ranks.
    """
    strength = np.diff(offsets).astype(np.float64)
    space = indices.copy(), np.empty(len(indices), np.float32)
    tree = merge(offsets, *space, strength, resolution=FINE, ones=True)
    sequence = walk(*tree)
    moved = refine(offsets, indices, None, strength, tree.root, resolution=1.0, sweeps=SWEEPS)
    del tree
    community, count = _numbered(moved)
    between = contract(offsets, indices, None, community, count, space)
    del space
    coarse, joined = _cluster_communities(*between, np.bincount(community, strength, count))
    return _ranks_within(Level(sequence, community), coarse), joined[community]


def _cluster_communities(
    offsets: np.ndarray, indices: np.ndarray, weights: np.ndarray, strength: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank of every vertex of a weighted graph, and its community at resolution 1."""
    levels: list[Level] = []
    resolution, joined = 1.0, np.arange(len(strength), dtype=indices.dtype)
    while len(indices):
        tree = merge(offsets, indices.copy(), weights.copy(), strength, resolution=resolution)
        moved = refine(offsets, indices, weights, strength, tree.root, resolution=resolution, sweeps=SWEEPS)
        community, count = _numbered(moved)
        levels.append(Level(walk(*tree), community))
        if resolution == 1.0:
            joined = community[joined]
        if count > STUCK * len(strength):
            resolution /= 2
        space = np.empty_like(indices), np.empty_like(weights)
        offsets, indices, weights = contract(offsets, indices, weights, community, count, space)
        strength = np.bincount(community, strength, count)
    rank = np.arange(len(strength), dtype=indices.dtype)
    for level in reversed(levels):
        rank = _ranks_within(level, rank)
    return rank, joined


def _numbered(community: np.ndarray) -> tuple[np.ndarray, int]:
    """Renumber communities [n] with any numbers below n to 0, 1, ... in the same order; also return how many."""
    used = np.zeros(len(community), np.bool_)
    used[community] = True
    names = np.cumsum(used, dtype=community.dtype)
    return names[community] - community.dtype.type(1), int(names[-1])


def _ranks_within(level: Level, coarse: np.ndarray) -> np.ndarray:
    """Return ranks that follow the communities' ranks ``coarse``, and the depth-first order within a community."""
    return inverse(level.sequence[np.argsort(coarse[level.community[level.sequence]], kind="stable")])
