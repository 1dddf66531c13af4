"""Averaged edge span: how far apart the ends of an arc are numbered (GNNAdvisor, OSDI'21, section 5.1)."""

from __future__ import annotations

import math

import numba
import numpy as np

from mgg.graph.csr import Csr
from mgg.graph.store import Graph


def averaged_edge_span(graph: Graph) -> float:
    """Return the mean of |source - target| over all arcs (equation 4), 0 without arcs; reads one part at a time.

    Raises:
        InputError: a part of the graph is damaged.
    """
    total = 0
    for lo, csr in graph.blocks():
        total += block_span(lo, csr)
    return total / max(graph.manifest.arcs, 1)


def block_span(first: int, csr: Csr) -> int:
    """Return the sum of |source - target| over rows of a graph from row ``first`` on; column ids are the graph's."""
    return int(_span(csr.indptr, csr.indices, first))


def span_of(offsets: np.ndarray, indices: np.ndarray, rank: np.ndarray) -> float:
    """Return the averaged edge span of a graph in memory numbered by ``rank``; offsets int64 [n + 1], ids [arcs]."""
    return int(_span_ranked(offsets, indices, rank)) / max(len(indices), 1)


def pays(span: float, nodes: int) -> bool:
    """Return whether reordering is likely to pay off: sqrt(AES) > floor(sqrt(nodes) / 100).

    The paper fitted this to the graphs that it profiled. Below 10,000 nodes the right side is 0, so every graph with
    an arc between two nodes is reordered.
    """
    return math.sqrt(span) > math.isqrt(nodes) // 100


@numba.njit(cache=True, nogil=True)
def _span(indptr, indices, first):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            total += abs(np.int64(indices[k]) - (first + row))
    return total


@numba.njit(cache=True, nogil=True)
def _span_ranked(indptr, indices, rank):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            total += abs(np.int64(rank[indices[k]]) - np.int64(rank[row]))
    return total
