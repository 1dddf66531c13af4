"""This PE's arcs, local and remote as one, for models whose arcs have values of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from mgg.backend.api import Array
from mgg.graph.csr import Csr
from mgg.layout import Product
from mgg.layout.split import transposed
from mgg.model.arrays import Arrays
from mgg.model.halo import Halo


@dataclass(frozen=True)
class ArcLists:
    """Arcs both ways round, on a PE's device.

    Attributes:
        indptr: int64 [rows + 1], where each row's arcs begin.
        targets: int32 [arcs], row of each arc.
        sources: int32 or int64 [arcs], where each arc begins.
        source_ptr: int64 [sources + 1], where the arcs of each source begin, counted by source.
        order: int64 [arcs], the number of each arc, counted by source; ascending for each.
        weights: [arcs, 1].
    """

    indptr: Array
    targets: Array
    sources: Array
    source_ptr: Array
    order: Array
    weights: Array


@dataclass(frozen=True)
class Arcs(ArcLists):
    """The arcs that end at this PE's rows, and a loop at every row.

    Sources are positions: rows of this PE, then those of its halo. Of each row come the arcs from this PE's rows, those
    from the halo, then the loop; loops of the graph are part of that. Weights are D^-1/2 (A + I) D^-1/2.

    Attributes:
        ids: int64 [rows + halo], what the source of the graph calls the nodes.
    """

    ids: Array

    @classmethod
    def with_loops(cls, product: Product, halo: Halo, ids: np.ndarray, scale: np.ndarray, arrays: Arrays) -> Arcs:
        """Put the arcs of ``product`` together (collective).

        Args:
            product: the forward one.
            halo: of this PE.
            ids: int64 [rows].
            scale: D^-1/2 of this PE's rows, of the type that the weights get.
            arrays: of the PE's device.
        """
        csr = _joined(product.local, product.remote)
        rows = np.repeat(np.arange(csr.rows, dtype=np.int32), np.diff(csr.indptr))
        by_source = transposed(csr)
        assert csr.weights is not None and by_source.forward is not None
        scales = halo.host(scale.astype(np.float64))
        weights = (csr.weights * scales[rows] * scales[csr.indices])[:, None].astype(scale.dtype)
        host = cls(csr.indptr, rows, csr.indices, by_source.csr.indptr, by_source.forward, weights, halo.host(ids))
        return replace(host, **{name: arrays.upload(array) for name, array in vars(host).items()})


def _joined(local: Csr, remote: Csr) -> Csr:
    """One CSR with a loop at the end of each row; weights float64, 1 added to those of loops."""
    arcs = local.arcs + remote.arcs + local.rows
    indptr, width = np.zeros(local.rows + 1, np.int64), np.int32 if local.rows + remote.columns < 2**31 else np.int64
    indices, weights = np.empty(arcs, width), np.empty(arcs)
    none = np.empty(0)
    _join(
        local.indptr, local.indices, none if local.weights is None else local.weights,
        remote.indptr, remote.indices, none if remote.weights is None else remote.weights,
        indptr, indices, weights,
    )  # fmt: skip
    used = int(indptr[-1])
    return Csr(indptr, indices[:used], weights[:used], local.rows + remote.columns)


@numba.njit(cache=True, nogil=True)
def _join(lptr, lidx, lw, rptr, ridx, rw, indptr, indices, weights):  # type: ignore[no-untyped-def]
    rows, at = lptr.size - 1, 0
    for row in range(rows):
        loop = 1.0
        for k in range(lptr[row], lptr[row + 1]):
            weight = lw[k] if lw.size else 1.0
            if lidx[k] == row:
                loop += weight
            else:
                indices[at], weights[at] = lidx[k], weight
                at += 1
        for k in range(rptr[row], rptr[row + 1]):
            indices[at], weights[at] = rows + ridx[k], rw[k] if rw.size else 1.0
            at += 1
        indices[at], weights[at] = row, loop
        at += 1
        indptr[row + 1] = at
