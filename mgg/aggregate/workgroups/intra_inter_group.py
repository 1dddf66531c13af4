"""A product in two parts: rows of the PEs of a workgroup, and rows that arrive from other workgroups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mgg.aggregate.workgroups import Workgroups
from mgg.graph.csr import Csr
from mgg.layout import Product


@dataclass(frozen=True)
class GroupArcs:
    """Some of the arcs of a PE's rows, with the location of their input rows in the matrices of a few PEs.

    Attributes:
        pes: these PEs, including this one.
        local: CSR of the arcs to rows of this PE's own matrix.
        remote: CSR of the other arcs; columns are positions in the halo.
        halo_ptr: int64 [len(pes) + 1]; halo rows of ``pes[i]`` are ``halo_ptr[i] .. halo_ptr[i + 1]``.
        halo_rows: integers [H]; row of each halo row in its holder's matrix, ascending for each holder.
    """

    pes: range
    local: Csr
    remote: Csr
    halo_ptr: np.ndarray
    halo_rows: np.ndarray

    @property
    def halo(self) -> int:
        """Number of halo rows."""
        return len(self.halo_rows)


def near_part(product: Product, pes: range) -> GroupArcs:
    """Return the arcs to rows that ``pes``, including this PE, own."""
    if len(pes) == len(product.halo_ptr) - 1:
        return GroupArcs(pes, product.local, product.remote, product.halo_ptr, product.halo_rows)
    first, last = int(product.halo_ptr[pes.start]), int(product.halo_ptr[pes.stop])
    positions = np.arange(product.halo) - first
    near = (positions >= 0) & (positions < last - first)
    return GroupArcs(
        pes,
        product.local,
        _picked(product.remote, near, positions, last - first),
        product.halo_ptr[pes.start : pes.stop + 1] - first,
        product.halo_rows[first:last],
    )


def far_part(product: Product, groups: Workgroups, firsts: Mapping[int, int], rows: int) -> GroupArcs:
    """Return the arcs to rows of other workgroups, which lie in the mates' mailboxes.

    Args:
        groups: maps halo rows to mates and positions.
        firsts: PE of another workgroup -> where its rows begin in the mailbox of the mate with its local rank.
        rows: number of rows of a mailbox.
    """
    holder, place = np.full(product.halo, -1, np.int64), np.zeros(product.halo, np.int64)
    for owner, places in groups.places.items():
        span = slice(int(product.halo_ptr[owner]), int(product.halo_ptr[owner + 1]))
        holder[span], place[span] = groups.mate_of(owner), firsts[owner] + places
    mine = holder == groups.rank
    theirs = (holder >= 0) & ~mine
    order = np.flatnonzero(theirs)
    order = order[np.lexsort((place[order], holder[order]))]
    columns = place.copy()
    columns[order] = np.arange(len(order))
    pes = groups.mates
    return GroupArcs(
        pes,
        _picked(product.remote, mine, columns, rows),
        _picked(product.remote, theirs, columns, len(order)),
        np.searchsorted(holder[order], np.arange(pes.start, pes.stop + 1)),
        place[order],
    )


def _picked(csr: Csr, keep: np.ndarray, columns: np.ndarray, width: int) -> Csr:
    """Return the arcs of ``csr`` whose column c has ``keep[c]``, in order; c becomes ``columns[c]`` of ``width``."""
    kept = keep[csr.indices]
    ends = np.concatenate(([0], np.cumsum(kept)))
    indices = columns[csr.indices[kept]].astype(csr.indices.dtype)
    return Csr(ends[csr.indptr], indices, None if csr.weights is None else csr.weights[kept], width)
