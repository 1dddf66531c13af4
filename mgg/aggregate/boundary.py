"""A random share p of each PE's halo, drawn anew in every epoch of a training (BNS-GCN, Wan et al., MLSys 2022).

Rows that are kept count 1/p, so that sums are right in the mean. Their gradients go back, and no others: each as the
sum over the PE's arcs from it (the way ``columns`` of ``covered.py``), so that as many rows cross and the transposed
product is that of the same sample. Whether a row is kept depends on seed, epoch, the row and the PE that works with it:
who sends draws what who receives draws, and nobody tells anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from mgg.aggregate.embeddings import Embeddings
from mgg.aggregate.memory_model import FLOAT, Case
from mgg.aggregate.plan import uploaded_csr
from mgg.aggregate.workgroups.cover import Leaving, Sent, sums_that_arrive
from mgg.aggregate.workgroups.memory import Told
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr, index_dtype
from mgg.kernel.random import STREAMS, uniform_at
from mgg.layout import PeLayout, Product


@dataclass(frozen=True)
class Coordinates:
    """Rows that may cross, and what decides about them.

    Attributes:
        ptr: int64 [P + 1]; those that PE q sends, or gets, are ``ptr[q] .. ptr[q + 1]``.
        nodes: int64, position of each in the layout's order.
        pes: int64, the PE that has it in its halo.
    """

    ptr: np.ndarray
    nodes: np.ndarray
    pes: np.ndarray


def kept(share: float, seed: int, epoch: int, nodes: np.ndarray, pes: np.ndarray) -> np.ndarray:
    """Which ``nodes`` of the halos of ``pes`` are in the sample of an epoch, bool; both integers [k]."""
    # Dropouts have the streams of an epoch from its first one on.
    return uniform_at(seed, (epoch + 1) * STREAMS - 1, nodes, pes) < np.float32(share)


def received(layout: PeLayout, product: Product, *, sums: bool) -> Coordinates:
    """Those of the halo of ``product``, whose rows are nodes, or ``sums`` for one of this PE's nodes each."""
    owner = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    if not sums:
        return Coordinates(product.halo_ptr, layout.bounds[owner] + product.halo_rows, np.full_like(owner, layout.rank))
    target = np.zeros(product.halo, np.int64)
    target[product.remote.indices] = np.repeat(layout.node_ids, np.diff(product.remote.indptr))
    return Coordinates(product.halo_ptr, target, owner)


def _leaving(layout: PeLayout, product: Product, sent: Leaving | None) -> tuple[Coordinates, np.ndarray]:
    """Those of what leaves this PE, and the rows of its matrix where that is."""
    ptr = product.send_ptr if sent is None else sent.sum_ptr
    pe = np.repeat(np.arange(layout.size), np.diff(ptr))
    if sent is None:
        return Coordinates(ptr, layout.lo + product.send_rows.astype(np.int64), pe), product.send_rows
    rows = layout.rows + np.arange(len(sent.targets))
    return Coordinates(ptr, layout.bounds[pe] + sent.targets, np.full_like(pe, layout.rank)), rows


def sampled(layout: PeLayout, direction: str, share: float, seed: int, epoch: int) -> Product:
    """The product whose arcs to other PEs' rows have the weights that an epoch's sample gives them."""
    product = layout.product(direction)
    remote = product.remote
    owner = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))[remote.indices]
    # A forward arc's source is in the halo of this PE; that of a transposed one is this PE's row, which others have.
    nodes, pes = np.repeat(layout.node_ids, np.diff(remote.indptr)), owner
    if direction == "forward":
        nodes, pes = layout.bounds[owner] + product.halo_rows[remote.indices], np.full_like(owner, layout.rank)
    weights = np.float32(1) if remote.weights is None else remote.weights
    weights = (weights * kept(share, seed, epoch, nodes, pes) / np.float32(share)).astype(np.float32)
    return replace(product, remote=replace(remote, weights=weights))


def boundary_bytes(case: Case, sent: Leaving | None) -> int:
    """Bytes that one PE's plan takes for samples: mailbox, outbox, arcs; where PEs told nothing, none sends more."""
    product = case.product
    leaves, arrives, arcs = len(product.send_rows), max(case.counts.halo_rows), product.remote.arcs
    if sent is not None:
        leaves, arcs = int(sent.crossing.sum()), sums_that_arrive(product)
        if case.told is not None:
            crossing = np.array([each.crossing for each in cast("list[Sent]", case.told)])
            leaves, arrives = int(crossing.sum(axis=1).max()), int(crossing.sum(axis=0).max())
            arcs = int(crossing.sum(axis=0)[case.rank])
    elif case.told is not None:
        leaves = max(each.sent for each in cast("list[Told]", case.told))
    ids = product.remote.indices.dtype.itemsize
    return case.embeddings(arrives + 1 + leaves) + (2 * ids + FLOAT) * arcs + case.pointers(case.rows)


class Sample:
    """What one plan computes while a sample is drawn (its methods are collective).

    Args:
        world: the PEs.
        layout, product: what this PE holds, and its product over what arrives.
        sent: the sums that leave it; None: rows do.
        share: p.
        embeddings: how rows lie.
        allocate: symmetric memory for so many rows.

    Attributes:
        share: p.
        drawn: products are those of a sample.
    """

    def __init__(
        self, world: World, layout: PeLayout, product: Product, sent: Leaving | None, share: float,
        embeddings: Embeddings, allocate: Callable[[int], SymmetricArray],
    ) -> None:  # fmt: skip
        self._world, self.share, self._embeddings, self.drawn = world, share, embeddings, False
        self._arriving = received(layout, product, sums=sent is not None)
        self._departing, self._rows = _leaving(layout, product, sent)
        told = world.exchange([int(first) for first in product.halo_ptr[:-1]])
        self._firsts = dict(enumerate(told))
        halos = world.gather((product.halo, len(self._rows)))
        self._room, leaves = (max(column) for column in zip(*halos, strict=True))
        self._mail, self._packed = allocate(self._room + 1), allocate(leaves)
        self._outbox: Outbox | None = None
        # Arcs to what is dropped go to a row of zeros, behind all that may arrive.
        dtype = np.promote_types(product.remote.indices.dtype, index_dtype(self._room + 1))
        weights = np.ones(product.remote.arcs, np.float32) if product.remote.weights is None else product.remote.weights
        remote = Csr(product.remote.indptr, product.remote.indices.astype(dtype), weights / np.float32(share), 0)
        self._local, self._remote = uploaded_csr(world, product.local), uploaded_csr(world, remote)
        self._indices = world.xp.empty(remote.arcs, dtype)

    def begin(self, seed: int, epoch: Array | None) -> None:
        """A pass begins: a training's draws the sample of ``epoch``, float64 [1] on the device; None: all rows count.

        No CUDA graph holds this, as each epoch sends other rows.
        """
        self.drawn = epoch is not None
        if epoch is None:
            return
        number = int(self._world.download(epoch)[0])
        leaves = kept(self.share, seed, number, self._departing.nodes, self._departing.pes)
        lists = {
            pe: self._rows[first:last][leaves[first:last]]
            for pe, (first, last) in enumerate(zip(self._departing.ptr[:-1], self._departing.ptr[1:], strict=True))
        }
        lists = {pe: rows for pe, rows in lists.items() if len(rows)}
        self._outbox = Outbox(self._world, lists, self._packed, self._embeddings) if lists else None
        arrives, ptr = kept(self.share, seed, number, self._arriving.nodes, self._arriving.pes), self._arriving.ptr
        before = np.append(0, np.cumsum(arrives))
        place = before[:-1] + np.repeat(ptr[:-1] - before[ptr[:-1]], np.diff(ptr))
        places = self._world.upload(np.where(arrives, place, self._room).astype(self._indices.dtype))
        self._indices[...] = places[self._remote.indices]

    def __call__(self, world: World, source: SymmetricArray, sums: Array) -> None:
        """``sums`` [rows, D] the product of the sample with all PEs' ``source`` [*, D]."""
        mail = self._embeddings.matrix(self._mail, self._room + 1, sums.shape[1])
        with world.aside() as work:
            if self._outbox is not None:
                self._outbox.send(world, source.local, mail, self._firsts)
        spmm, local, remote = world.operators.spmm_rows, self._local, self._remote
        spmm(local.indptr, local.indices, local.weights, source.local, sums, False)
        mail.local[self._room :] = 0
        work.wait()
        world.barrier()
        spmm(remote.indptr, self._indices, remote.weights, mail.local, sums, True)
