"""Cut a graph into what each PE needs: local and remote CSR, halo, send lists, and the map of transposed arcs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from mgg.graph.csr import Csr
from mgg.layout.parts import Product


@dataclass(frozen=True)
class Arcs:
    """One direction of a whole graph, with the forward number of every arc.

    Attributes:
        csr: the adjacency (forward) or its transpose, global rows and columns.
        forward: int64 [arcs] or None: position of each transposed arc in the forward CSR.
    """

    csr: Csr
    forward: np.ndarray | None = None


def transposed(csr: Csr) -> Arcs:
    """The transpose of a CSR by one counting sort, rows ascending, with the position of each arc in ``csr``."""
    offsets = np.zeros(csr.columns + 1, np.int64)
    np.cumsum(np.bincount(csr.indices, minlength=csr.columns), out=offsets[1:])
    rows = np.empty_like(csr.indices)
    forward = np.empty(csr.arcs, np.int64)
    _scatter(csr.indptr, csr.indices, offsets[:-1].copy(), rows, forward)
    weights, types = (None if values is None else values[forward] for values in (csr.weights, csr.types))
    return Arcs(Csr(offsets, rows, weights, csr.rows, types), forward)


@numba.njit(cache=True, nogil=True)
def _scatter(indptr, indices, cursor, rows, forward):  # type: ignore[no-untyped-def]
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            at = cursor[indices[k]]
            cursor[indices[k]] = at + 1
            rows[at] = row
            forward[at] = k


def split(arcs: Arcs, bounds: np.ndarray) -> list[Product]:
    """Every PE's product, send lists included.

    Args:
        arcs: one direction of the whole graph.
        bounds: int64 [P + 1], row ranges of the PEs.
    """
    products = [split_one(arcs, bounds, pe) for pe in range(len(bounds) - 1)]
    return [
        with_sends(mine, [other.halo_of(pe) for other in products], [other.halo_ptr[pe] for other in products])
        for pe, mine in enumerate(products)
    ]


def split_one(arcs: Arcs, bounds: np.ndarray, pe: int) -> Product:
    """PE ``pe``'s local and remote CSR and halo; the send lists need the halos of all PEs: ``with_sends``."""
    csr = arcs.csr
    lo, hi = int(bounds[pe]), int(bounds[pe + 1])
    span = slice(csr.indptr[lo], csr.indptr[hi])
    indptr = csr.indptr[lo : hi + 1]
    columns = csr.indices[span]
    values = [None if each is None else each[span] for each in (csr.weights, csr.types)]
    remote = (columns < lo) | (columns >= hi)
    outside = columns[remote]
    halo = np.unique(outside)
    halo_ptr = np.searchsorted(halo, bounds).astype(np.int64)
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(halo_ptr))
    empty = np.empty(0, columns.dtype)
    return Product(
        local=_kept(indptr, ~remote, columns[~remote] - columns.dtype.type(lo), values[0], values[1], hi - lo),
        remote=_kept(
            indptr, remote, np.searchsorted(halo, outside).astype(columns.dtype), values[0], values[1], len(halo)
        ),
        halo_ptr=halo_ptr,
        halo_rows=(halo - bounds[owners]).astype(columns.dtype),
        send_ptr=np.zeros(len(bounds), np.int64),
        send_rows=empty,
        send_first=np.zeros(len(bounds) - 1, np.int64),
    )


def _kept(
    indptr: np.ndarray, keep: np.ndarray, columns: np.ndarray, weights: np.ndarray | None, types: np.ndarray | None,
    width: int,
) -> Csr:  # fmt: skip
    """The arcs of a row range that ``keep`` marks, as a CSR of their own with the given ``columns``."""
    before = np.zeros(len(keep) + 1, np.int64)
    np.cumsum(keep, out=before[1:])
    kept = [None if values is None else values[keep] for values in (weights, types)]
    return Csr(before[indptr - indptr[0]], columns, kept[0], width, kept[1])


def with_sends(product: Product, wanted: list[np.ndarray], first: list[int]) -> Product:
    """Add what the other PEs ask of this one.

    Args:
        product: this PE's.
        wanted: for each PE, the offsets in this PE's rows of the rows that it needs.
        first: for each PE, the position in its halo of the first of them.
    """
    return replace(
        product,
        send_ptr=np.concatenate(([0], np.cumsum([len(rows) for rows in wanted]))).astype(np.int64),
        send_rows=np.concatenate(wanted),
        send_first=np.array(first, np.int64),
    )


def numbered(forward: list[Product], arcs: Arcs, bounds: np.ndarray) -> np.ndarray:
    """The number of every forward arc on the PE that owns it (local CSR first, then remote CSR).

    Args:
        forward: every PE's forward product.
        arcs: the forward arcs of the whole graph.
        bounds: int64 [P + 1].

    Returns:
        int64 [arcs], in the order of the forward CSR.
    """
    numbers = np.empty(arcs.csr.arcs, np.int64)
    for pe, product in enumerate(forward):
        lo, hi = int(bounds[pe]), int(bounds[pe + 1])
        span = slice(arcs.csr.indptr[lo], arcs.csr.indptr[hi])
        columns = arcs.csr.indices[span]
        local = (columns >= lo) & (columns < hi)
        here = np.empty(len(columns), np.int64)
        here[local] = np.arange(product.local.arcs)
        here[~local] = product.local.arcs + np.arange(product.remote.arcs)
        numbers[span] = here
    return numbers


def with_arc_map(product: Product, arcs: Arcs, numbers: np.ndarray, bounds: np.ndarray, pe: int) -> Product:
    """Add to PE ``pe``'s transposed product the owner and number of each arc's forward arc.

    Args:
        product: the transposed product of ``pe``.
        arcs: the transposed arcs of the whole graph.
        numbers: what ``numbered`` returned.
        bounds: int64 [P + 1].
        pe: the PE.
    """
    assert arcs.forward is not None
    lo, hi = int(bounds[pe]), int(bounds[pe + 1])
    span = slice(arcs.csr.indptr[lo], arcs.csr.indptr[hi])
    columns = arcs.csr.indices[span]  # of the transpose: rows of the forward arcs
    local = (columns >= lo) & (columns < hi)
    order = np.concatenate((np.flatnonzero(local), np.flatnonzero(~local)))
    owners = np.searchsorted(bounds, columns[order], side="right") - 1
    return replace(
        product,
        arc_owner=owners.astype(np.int32),
        arc_position=numbers[arcs.forward[span][order]],
    )
