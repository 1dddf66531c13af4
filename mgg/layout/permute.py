"""The adjacency in the order of a partition."""

from __future__ import annotations

import numba
import numpy as np

from mgg.graph.csr import Csr

_NONE = np.empty(0, np.float32)


def permuted(csr: Csr, order: np.ndarray) -> Csr:
    """The square matrix with row and column v at position ``order[v]``; the columns of each row ascend.

    Args:
        csr: the matrix.
        order: integers [rows], a permutation.
    """
    nodes = inverse(order)
    indptr = np.zeros(csr.rows + 1, np.int64)
    np.cumsum(np.diff(csr.indptr)[nodes], out=indptr[1:])
    indices = np.empty_like(csr.indices)
    weights = None if csr.weights is None else np.empty_like(csr.weights)
    _move(
        csr.indptr,
        csr.indices,
        _NONE if csr.weights is None else csr.weights,
        nodes,
        order,
        indptr,
        indices,
        _NONE if weights is None else weights,
    )
    return Csr(indptr, indices, weights, csr.columns)


@numba.njit(cache=True, nogil=True)
def _move(indptr, indices, weights, nodes, order, new_indptr, new_indices, new_weights):  # type: ignore[no-untyped-def]
    for row in range(nodes.size):
        begin, end = indptr[nodes[row]], indptr[nodes[row] + 1]
        at = new_indptr[row]
        columns = order[indices[begin:end]]
        by = np.argsort(columns)
        for k in range(by.size):
            new_indices[at + k] = columns[by[k]]
            if weights.size:
                new_weights[at + k] = weights[begin + by[k]]


def inverse(order: np.ndarray) -> np.ndarray:
    """The node at each position, of the type of ``order``, the position of each node."""
    nodes = np.empty_like(order)
    nodes[order] = np.arange(len(order), dtype=order.dtype)
    return nodes
