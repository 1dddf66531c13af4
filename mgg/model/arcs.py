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
class ArcList:
    """Arcs by one of their ends, on a PE's device.

    Attributes:
        ptr: int64 [n + 1], where the arcs of each of n nodes begin.
        ends: int32 or int64 [arcs], the other end of each.
        turned: the nodes are sources, and the ends targets.
        weights: [arcs, 1]; None where nobody asked for any.
        ids: int64, what the source of the graph calls the nodes at both ends; None where masks do not need it.
    """

    ptr: Array
    ends: Array
    turned: bool
    weights: Array | None = None
    ids: Array | None = None

    def on(self, arrays: Arrays) -> ArcList:
        """The list on the device of ``arrays``; ids are there already."""
        weights = None if self.weights is None else arrays.upload(self.weights)
        return replace(self, ptr=arrays.upload(self.ptr), ends=arrays.upload(self.ends), weights=weights)


@dataclass(frozen=True)
class ArcLists:
    """The same arcs by target and by source: what goes forward over the one goes back over the other."""

    by_target: ArcList
    by_source: ArcList


def arcs_with_loops(
    product: Product, halo: Halo, ids: np.ndarray, scale: np.ndarray | None, arrays: Arrays
) -> ArcLists:
    """The arcs that end at this PE's rows, and a loop at every row (collective).

    Sources are positions: rows of this PE, then those of its halo. Of each row come the arcs from this PE's rows, those
    from the halo, then the loop; loops of the graph are part of that.

    Args:
        product: the forward one.
        halo: of this PE.
        ids: int64 [rows].
        scale: D^-1/2 of this PE's rows, for the weights D^-1/2 (A + I) D^-1/2, of its type; None: no weights.
        arrays: of the PE's device.
    """
    csr = _joined(product.local, product.remote)
    if scale is None:
        csr = replace(csr, weights=None)
    else:
        scales = halo.host(scale.astype(np.float64))
        rows = np.repeat(np.arange(csr.rows, dtype=np.int32), np.diff(csr.indptr))
        assert csr.weights is not None
        csr = replace(csr, weights=(csr.weights * scales[rows] * scales[csr.indices])[:, None].astype(scale.dtype))
        del rows
    known = arrays.upload(halo.host(ids))
    by_source = transposed(csr).csr
    lists = (
        ArcList(each.indptr, each.indices, turned, each.weights, known)
        for each, turned in ((csr, False), (by_source, True))
    )
    return ArcLists(*(each.on(arrays) for each in lists))


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
