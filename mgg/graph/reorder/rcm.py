"""Reverse Cuthill-McKee: breadth-first numbering that keeps arcs near the diagonal (SciPy's routine)."""

from __future__ import annotations

import numba
import numpy as np
import scipy  # its subpackages load at first use

from mgg.errors import InputError
from mgg.graph.csr import index_dtype, inverse
from mgg.graph.reorder import order
from mgg.graph.reorder.structure import adjacency, both_directions
from mgg.graph.store import Graph

#: SciPy's routine holds offsets as int32.
MOST_ARCS = 2**31 - 1


def _memory(nodes: int, arcs: int, symmetric: bool) -> int:
    # Two copies of the arcs; a directed graph has twice as many. Per node: offsets of both copies, our places and
    # degrees, and SciPy's offsets, degrees, order, marks and sorting space.
    return (2 if symmetric else 4) * arcs * index_dtype(nodes).itemsize + 60 * nodes


@order("rcm", _memory)
def rank(graph: Graph) -> tuple[str, np.ndarray]:
    """Number by SciPy's reverse Cuthill-McKee.

    Raises:
        InputError: the graph has more arcs, both directions counted, than SciPy can take.
    """
    manifest = graph.manifest
    arcs = manifest.arcs if manifest.symmetric else 2 * manifest.arcs
    if arcs > MOST_ARCS or manifest.nodes > MOST_ARCS:
        raise InputError(
            f"{graph.path}: order rcm: SciPy takes at most {MOST_ARCS} arcs and nodes, here are {arcs} arcs (both "
            f"directions counted) and {manifest.nodes} nodes; choose rabbit or degree"
        )
    offsets, indices = adjacency(graph)
    if not manifest.symmetric:
        offsets, indices = both_directions(offsets, indices)
    indices = _rows_by_degree(offsets, indices, np.argsort(np.diff(offsets), kind="stable"))
    # SciPy never reads the values, so one byte stands for all of them.
    values = np.broadcast_to(np.int8(1), len(indices))
    matrix = scipy.sparse.csr_matrix((values, indices, offsets), shape=(manifest.nodes, manifest.nodes))
    sequence = scipy.sparse.csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)
    return "rcm", inverse(sequence.astype(manifest.index_dtype, copy=False))


@numba.njit(cache=True, nogil=True)
def _rows_by_degree(offsets, indices, ascending):  # type: ignore[no-untyped-def]
    """Return the symmetric matrix with the columns of each row by ascending degree.

    SciPy sorts the neighbors of each row by insertion, which takes quadratic time in a hub's degree unless sorted.
    """
    out = np.empty_like(indices)
    place = offsets[:-1].copy()
    for u in ascending:
        for k in range(offsets[u], offsets[u + 1]):
            row = indices[k]
            out[place[row]] = u
            place[row] += 1
    return out
