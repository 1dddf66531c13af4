"""Modularity: how much more arcs stay inside communities than chance would have it."""

from __future__ import annotations

import numba
import numpy as np

from mgg.graph.csr import Csr


def modularity(csr: Csr, community: np.ndarray) -> float:
    """Newman's modularity Q of a graph whose arcs count 1 each, in both directions (weights do not matter).

    Q = inside / m - sum over c of ((out_c + in_c) / 2 m)^2, m being the arcs, ``inside`` those within a community and
    out_c, in_c those that leave and enter nodes of community c. For a symmetric graph this is the usual formula; for a
    directed one it is that of A + A^T.

    Args:
        csr: a whole square matrix.
        community: integers [nodes], from 0 to nodes - 1.

    Returns:
        Q, from -1/2 to 1; 0 without arcs.
    """
    if csr.arcs == 0:
        return 0.0
    inside, ends = _count(csr.indptr, csr.indices, np.asarray(community))
    share = ends / (2 * csr.arcs)
    return float(inside / csr.arcs - np.dot(share, share))


@numba.njit(cache=True, nogil=True)
def _count(indptr, indices, community):  # type: ignore[no-untyped-def]
    inside, ends = 0, np.zeros(indptr.size - 1, np.int64)
    for v in range(indptr.size - 1):
        home = community[v]
        ends[home] += indptr[v + 1] - indptr[v]
        for k in range(indptr[v], indptr[v + 1]):
            other = community[indices[k]]
            ends[other] += 1
            inside += home == other
    return inside, ends
