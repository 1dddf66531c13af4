"""Reads the arcs of a stored graph without their weights."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.graph.external import kernels
from mgg.graph.store import Graph, Shard

#: Parts that are read at once; more would take more memory and wait for the same disk.
READERS = 4


def adjacency(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Read the whole graph: offsets int64 [nodes + 1] and column ids [arcs] of the graph's index type.

    If the manifest says that the graph is symmetric, its arcs are checked to be (their weights are ignored).

    Raises:
        InputError: a part is missing, truncated, altered or not what the manifest says.
    """
    symmetric = graph.manifest.symmetric
    offsets = graph.offsets()
    indices = np.empty(graph.manifest.arcs, graph.manifest.index_dtype)

    def fill(part: Shard) -> list[int]:
        lo, hi = part.first, part.first + part.rows
        csr = graph.rows(lo, hi)
        indices[offsets[lo] : offsets[hi]] = csr.indices
        return _fingerprint(lo, csr) if symmetric else [0] * 4

    with ThreadPoolExecutor(min(READERS, len(os.sched_getaffinity(0)))) as pool:
        # Each part is read once. The list re-raises a reader's exception.
        made = list(pool.map(fill, (part for _, part in graph.manifest.parts("adjacency"))))
    sums = [sum(part[k] for part in made) % 2**64 for k in range(4)]
    # With a wrong manifest, the loops that trust it would write outside their arrays or never end.
    if sums[:2] != sums[2:]:
        raise InputError(f"{graph.path}: says that it is symmetric, and is not; make it again")
    return offsets, indices


def _fingerprint(first: int, csr: Csr) -> list[int]:
    """Return sums over the arcs of these rows, and over their reverses (see kernels.fingerprint)."""
    sums = np.zeros(4, np.uint64)
    unlooked = np.empty(0, np.uint32), np.empty(0, np.int32)
    kernels.fingerprint(first, np.diff(csr.indptr), csr.indices, *unlooked, sums)
    return [int(value) for value in sums]


@numba.njit(cache=True, nogil=True)
def both_directions(offsets, indices):  # type: ignore[no-untyped-def]
    """Return A + A^T of a square matrix: each row's own columns, then the rows that have it as a column; repeats stay.

    Args:
        offsets: int64 [n + 1].
        indices: integers [arcs].

    Returns:
        Offsets int64 [n + 1] and column ids [2 arcs] of the dtype of ``indices``.
    """
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
