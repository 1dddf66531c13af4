"""The adjacency in the order of a partition."""

from __future__ import annotations

import numba
import numpy as np

from mgg.graph.csr import Csr
from mgg.graph.permutation import inverse


def permuted(csr: Csr, order: np.ndarray) -> Csr:
    """The square matrix with row and column v at position ``order[v]``; the columns of each row ascend.

    Arcs that join the same two nodes, which only types tell apart, stay in their order.

    Args:
        csr: the matrix.
        order: integers [rows], a permutation.
    """
    nodes = inverse(order)
    indptr = np.zeros(csr.rows + 1, np.int64)
    np.cumsum(np.diff(csr.indptr)[nodes], out=indptr[1:])
    indices = np.empty_like(csr.indices)
    valued = csr.weights is not None or csr.types is not None
    places = np.empty(csr.arcs if valued else 0, np.int64)
    _move(
        csr.indptr,
        csr.indices,
        nodes,
        order,
        indptr,
        indices,
        places,
    )
    weights, types = (None if values is None else values[places] for values in (csr.weights, csr.types))
    return Csr(indptr, indices, weights, csr.columns, types)


@numba.njit(cache=True, nogil=True)
def _move(indptr, indices, nodes, order, new_indptr, new_indices, places):  # type: ignore[no-untyped-def]
    for row in range(nodes.size):
        begin, end = indptr[nodes[row]], indptr[nodes[row] + 1]
        at = new_indptr[row]
        columns = order[indices[begin:end]]
        if not places.size:
            columns.sort()
            new_indices[at : at + columns.size] = columns
            continue
        by = np.argsort(columns, kind="mergesort")
        for k in range(by.size):
            new_indices[at + k] = columns[by[k]]
            places[at + k] = begin + by[k]
