"""Rabbit order: communities, and communities of communities, become ranges of ids.

Source: J. Arai, H. Shiokawa, T. Yamamuro, M. Onizuka, S. Iwamura: Rabbit Order, IPDPS 2016. Beyond the paper:

- The first aggregation stops early, at a resolution that keeps communities small, and after every aggregation single
  vertices change sides. Both mend early merges, which have little to go by: at first all arcs count 1.
- The communities, which the paper numbers in no particular order, are aggregated again and again, with a resolution
  that falls until all that is connected is one tree. So ranges of ids far larger than a community have few arcs that
  leave them, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mgg.graph.permutation import inverse
from mgg.graph.reorder import index_bytes, order
from mgg.graph.reorder.communities import contract, refine
from mgg.graph.reorder.merge import merge, walk
from mgg.graph.reorder.structure import adjacency, both_directions
from mgg.graph.store import Graph

#: Resolution of the first aggregation.
FINE = 4.0
#: Most sweeps of a refinement, all but the first of which look at few vertices.
SWEEPS = 10
#: The resolution halves when an aggregation leaves more than this share of its vertices unmerged.
STUCK = 0.9


class Level(NamedTuple):
    """One aggregation: its vertices depth first, and the vertex of the next level that each belongs to."""

    sequence: np.ndarray
    community: np.ndarray


def memory(nodes: int, arcs: int, symmetric: bool) -> int:
    """Bytes at the peak."""
    ids = index_bytes(nodes)
    # The graph, and the arcs that are merged with what they count; a directed graph's arcs are there both ways.
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
        indices: integers [arcs], a symmetric structure, in which repeats count and loops say nothing.

    Returns:
        ``rank`` [n] of the type of ``indices``, the new id of each node, and ``community`` [n], integers from 0 on:
        what was joined at resolution 1. Each community is a range of ranks.
    """
    strength = np.diff(offsets).astype(np.float64)
    space = indices.copy(), np.empty(len(indices), np.float32)
    tree = merge(offsets, *space, strength, resolution=FINE, ones=True)
    sequence = walk(tree)
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
    """Rank of every vertex of a weighted graph, and its community at resolution 1."""
    levels: list[Level] = []
    resolution, joined = 1.0, np.arange(len(strength), dtype=indices.dtype)
    while len(indices):
        tree = merge(offsets, indices.copy(), weights.copy(), strength, resolution=resolution)
        moved = refine(offsets, indices, weights, strength, tree.root, resolution=resolution, sweeps=SWEEPS)
        community, count = _numbered(moved)
        levels.append(Level(walk(tree), community))
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
    """Communities by any distinct names below n [n] -> the same named 0, 1, ... in that order, and how many."""
    used = np.zeros(len(community), np.bool_)
    used[community] = True
    names = np.cumsum(used, dtype=community.dtype)
    return names[community] - community.dtype.type(1), int(names[-1])


def _ranks_within(level: Level, coarse: np.ndarray) -> np.ndarray:
    """Ranks that follow ``coarse``, the communities' own, and the depth-first sequence within a community."""
    return inverse(level.sequence[np.argsort(coarse[level.community[level.sequence]], kind="stable")])
