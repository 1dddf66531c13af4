"""A random share p of each PE's halo, drawn anew in every training epoch (BNS-GCN, Wan et al., MLSys 2022).

Sampled rows are weighted by 1/p, so that sums are right on average. Only their gradients return, each as the sum over
the PE's arcs from that row (the way ``columns`` of ``cover.py``). So as many rows cross as in the forward product, and
the transposed product uses the same sample. Whether a row is in the sample depends on the seed, the epoch, the row and
the PE that needs it: sender and receiver draw the same numbers, without communication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from mgg.aggregate.embeddings import Embeddings
from mgg.aggregate.memory_model import FLOAT, MemoryCase
from mgg.aggregate.plan import uploaded_csr
from mgg.aggregate.workgroups.leaving import Leaving, LeavingSizes, sums_that_arrive
from mgg.aggregate.workgroups.memory import HaloSizes
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr, index_dtype
from mgg.kernel.random import STREAMS, uniform_at
from mgg.layout import PeLayout, Product


@dataclass(frozen=True)
class Coordinates:
    """Rows that may cross, with the coordinates that decide whether they do.

    Attributes:
        ptr: int64 [P + 1]; the rows that PE q sends, or receives, are ``ptr[q] .. ptr[q + 1]``.
        nodes: int64, position of each row in the layout's order.
        pes: int64, the PE that has the row in its halo.
    """

    ptr: np.ndarray
    nodes: np.ndarray
    pes: np.ndarray


def kept(share: float, seed: int, epoch: int, nodes: np.ndarray, pes: np.ndarray) -> np.ndarray:
    """Return which ``nodes`` in the halos of ``pes`` are in an epoch's sample, bool; both arguments: integers [k]."""
    # Dropout uses an epoch's streams from the first one on, so this is the last one.
    return uniform_at(seed, (epoch + 1) * STREAMS - 1, nodes, pes) < np.float32(share)


def received(layout: PeLayout, product: Product, *, sums: bool) -> Coordinates:
    """Return the coordinates of the halo of ``product``: rows of nodes, or ``sums``, each for a node of this PE."""
    owner = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    if not sums:
        return Coordinates(product.halo_ptr, layout.bounds[owner] + product.halo_rows, np.full_like(owner, layout.rank))
    target = np.zeros(product.halo, np.int64)
    target[product.remote.indices] = np.repeat(layout.node_ids, np.diff(product.remote.indptr))
    return Coordinates(product.halo_ptr, target, owner)


def _leaving(layout: PeLayout, product: Product, sent: Leaving | None) -> tuple[Coordinates, np.ndarray]:
    """Return the coordinates of what leaves this PE, and its rows in this PE's matrix."""
    ptr = product.send_ptr if sent is None else sent.sum_ptr
    pe = np.repeat(np.arange(layout.size), np.diff(ptr))
    if sent is None:
        return Coordinates(ptr, layout.lo + product.send_rows.astype(np.int64), pe), product.send_rows
    rows = layout.rows + np.arange(len(sent.targets))
    return Coordinates(ptr, layout.bounds[pe] + sent.targets, np.full_like(pe, layout.rank)), rows


def sampled(layout: PeLayout, direction: str, share: float, seed: int, epoch: int) -> Product:
    """Return the product with remote weights of one epoch's sample: 0, or scaled by 1/p."""
    product = layout.product(direction)
    remote = product.remote
    owner = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))[remote.indices]
    # The source of a forward arc is in this PE's halo; the source of a transposed arc is this PE's row in other halos.
    nodes, pes = np.repeat(layout.node_ids, np.diff(remote.indptr)), owner
    if direction == "forward":
        nodes, pes = layout.bounds[owner] + product.halo_rows[remote.indices], np.full_like(owner, layout.rank)
    weights = np.float32(1) if remote.weights is None else remote.weights
    weights = (weights * kept(share, seed, epoch, nodes, pes) / np.float32(share)).astype(np.float32)
    return replace(product, remote=replace(remote, weights=weights))


def boundary_bytes(case: MemoryCase, sent: Leaving | None) -> int:
    """Return the bytes that samples take in one PE's plan; without an exchange, no PE is assumed to send more."""
    product = case.product
    leaves, arrives, arcs = len(product.send_rows), max(case.counts.halo_rows), product.remote.arcs
    if sent is not None:
        leaves, arcs = int(sent.crossing.sum()), sums_that_arrive(product)
        if case.exchanged_sizes is not None:
            crossing = np.array([each.crossing for each in cast("list[LeavingSizes]", case.exchanged_sizes)])
            leaves, arrives = int(crossing.sum(axis=1).max()), int(crossing.sum(axis=0).max())
            arcs = int(crossing.sum(axis=0)[case.rank])
    elif case.exchanged_sizes is not None:
        leaves = max(each.sent for each in cast("list[HaloSizes]", case.exchanged_sizes))
    ids = product.remote.indices.dtype.itemsize
    return case.embeddings(arrives + 1 + leaves) + (2 * ids + FLOAT) * arcs + case.pointers(case.rows)


class BoundarySample:
    """The sampled product of one plan (its methods are collective).

    Args:
        layout, product: this PE's part of the graph, and its product over the received rows.
        sent: the sums that leave the PE; None: rows leave.
        share: p.
        allocate: allocates symmetric memory for a number of rows.

    Attributes:
        share: p.
        drawn: the current products use a sample.
    """

    def __init__(
        self, world: World, layout: PeLayout, product: Product, sent: Leaving | None, share: float,
        embeddings: Embeddings, allocate: Callable[[int], SymmetricArray],
    ) -> None:  # fmt: skip
        self._world, self.share, self._embeddings, self.drawn = world, share, embeddings, False
        self._arriving = received(layout, product, sums=sent is not None)
        self._departing, self._rows = _leaving(layout, product, sent)
        firsts = world.exchange([int(first) for first in product.halo_ptr[:-1]])
        self._firsts = dict(enumerate(firsts))
        halos = world.gather((product.halo, len(self._rows)))
        self._room, leaves = (max(column) for column in zip(*halos, strict=True))
        self._mail, self._packed = allocate(self._room + 1), allocate(leaves)
        self._outbox: Outbox | None = None
        # Arcs to dropped rows point to a row of zeros behind the largest mailbox.
        dtype = np.promote_types(product.remote.indices.dtype, index_dtype(self._room + 1))
        weights = np.ones(product.remote.arcs, np.float32) if product.remote.weights is None else product.remote.weights
        remote = Csr(product.remote.indptr, product.remote.indices.astype(dtype), weights / np.float32(share), 0)
        self._local, self._remote = uploaded_csr(world, product.local), uploaded_csr(world, remote)
        self._indices = world.xp.empty(remote.arcs, dtype)

    def begin(self, seed: int, epoch: Array | None) -> None:
        """Start a pass: draw the sample of training ``epoch``, float64 [1] on the device; None: use all rows.

        This never runs inside a CUDA graph, because each epoch sends other rows.
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
        """Set ``sums`` [rows, D] to the product of the sample with all PEs' ``source`` [*, D]."""
        mail = self._embeddings.matrix(self._mail, self._room + 1, sums.shape[1])
        with world.side_stream() as work:
            if self._outbox is not None:
                self._outbox.send(world, source.local, mail, self._firsts)
        spmm, local, remote = world.operators.spmm_rows, self._local, self._remote
        spmm(local.indptr, local.indices, local.weights, source.local, sums, False)
        mail.local[self._room :] = 0
        work.wait()
        world.barrier()
        spmm(remote.indptr, self._indices, remote.weights, mail.local, sums, True)
