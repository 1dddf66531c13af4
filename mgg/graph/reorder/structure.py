"""Which arcs a stored graph has, without their weights."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from mgg.graph.store import Graph, Shard

#: Parts that are read at once; more would hold more memory and wait for the same disk.
READERS = 4


def adjacency(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The whole graph: offsets int64 [nodes + 1] and column ids [arcs] of the graph's index type.

    Raises:
        InputError: a part is missing, truncated, altered or not what the manifest says.
    """
    offsets = graph.offsets()
    indices = np.empty(graph.manifest.arcs, graph.manifest.index_dtype)

    def fill(part: Shard) -> None:
        lo, hi = part.first, part.first + part.rows
        indices[offsets[lo] : offsets[hi]] = graph.rows(lo, hi).indices

    with ThreadPoolExecutor(min(READERS, len(os.sched_getaffinity(0)))) as pool:
        # Each part is read once. The list raises what a reader raised.
        list(pool.map(fill, (part for _, part in graph.manifest.parts("adjacency"))))
    return offsets, indices


def both_directions(offsets: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A + A^T of a square matrix: each row's own columns, then the rows that name it; repeats stay.

    Args:
        offsets: int64 [n + 1].
        indices: integers [arcs].

    Returns:
        int64 [n + 1] and integers [2 arcs] of the type of ``indices``.
    """
    return _both_directions(offsets, indices)


@numba.njit(cache=True, nogil=True)
def _both_directions(offsets, indices):  # type: ignore[no-untyped-def]
    n = offsets.size - 1
    sums = np.zeros(n + 1, np.int64)
    for k in range(indices.size):
        sums[indices[k] + 1] += 1
    for v in range(n):
        sums[v + 1] += sums[v] + offsets[v + 1] - offsets[v]
    out = np.empty(2 * indices.size, indices.dtype)
    place = sums[:-1].copy()
    for v in range(n):
        for k in range(offsets[v], offsets[v + 1]):
            out[place[v]] = indices[k]
            place[v] += 1
    for v in range(n):
        for k in range(offsets[v], offsets[v + 1]):
            u = indices[k]
            out[place[u]] = v
            place[u] += 1
    return sums, out
