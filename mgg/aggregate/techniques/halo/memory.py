"""GPU memory of technique ``halo``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from mgg.aggregate.memory_model import POINTER, MemoryCase, PlanMemory
from mgg.aggregate.workgroups import makes_groups, mates_of
from mgg.aggregate.workgroups.leaving import Leaving, LeavingSizes, sums_that_arrive
from mgg.aggregate.workgroups.memory import HaloSizes, LargestSizes, halo_sizes, known, room
from mgg.aggregate.workgroups.quantized_rows import crossing_bytes
from mgg.graph.csr import index_dtype


def sizes_of_halo(case: MemoryCase, members: int, sent: Leaving | None) -> HaloSizes | LeavingSizes | None:
    """Return what the other PEs must know about this PE; ``sent``: what leaves the PE, if sums may cross."""
    if sent is not None:
        return sent.sizes(case.rank)
    return halo_sizes(case, members) if makes_groups(case.size, members) else None


def need_of_halo(case: MemoryCase, members: int, sent: Leaving | None) -> PlanMemory:
    """Return the GPU memory: one matrix of rows and halo, and reordered arcs, but not the layout's own arcs.

    Several workgroups add the near part's matrix, the mailbox, all messages and the arc order of both parts. Sums add
    the operator that computes them. If sums may cross and the PEs have exchanged nothing yet, the received rows are
    estimated as the halo rows; only for ``columns`` is the number of received sums known.
    """
    product, remote_arcs, halo = case.product, case.product.remote.arcs, case.product.halo
    groups, height = makes_groups(case.size, members), int(case.heights.max())
    most = room(case, members) if groups and (sent is None or case.exchanged_sizes is None) else None
    near = max(case.counts.halo_rows) if most is None else most.near
    if sent is not None and case.exchanged_sizes is not None:
        everyone = cast(Sequence[LeavingSizes], case.exchanged_sizes)
        height, most = max(each.height for each in everyone), _room_of_sums(everyone, members)
        near, halo = most.near, sum(int(each.crossing[case.rank]) for each in everyone)
        remote_arcs += sum(int(each.sums[case.rank] - each.arcs[case.rank]) for each in everyone)
    elif sent is not None:
        height = max(height, case.rows + sent.made)
        remote_arcs = sums_that_arrive(case.product) if case.options.way(case.direction) == "columns" else remote_arcs
    arcs = case.arc * (product.local.arcs + remote_arcs) + POINTER * halo
    packed, held, lengths = 0, height + near, [np.diff(csr.indptr) for csr in (product.local, product.remote)]
    if groups and most is not None:
        held += most.mailbox + most.far
        crosses = crossing_bytes(case.options, case.dtype, most.mailbox + most.sent, case.dim)
        held += most.sent if crosses is None else 0
        messages = halo_sizes(case, members).messages if sent is None else sent.messages
        listed = product.send_rows.dtype.itemsize + (0 if crosses is None else POINTER)
        arcs += listed * int(sum(messages))
        packed = crosses or 0
        lengths = [lengths[0], *_near_and_far(case, members)]
    columns, cuts = case.embeddings(held) + case.matrix(case.rows) + packed, case.cut(lengths[0])
    cuts += sum(case.cut(each[each > 0]) for each in lengths[1:])
    if sent is not None:
        arcs += case.pointers(sent.sums.rows) + case.arc * sent.sums.arcs
        columns += _added(case, sent)
        cuts += case.cut(np.diff(sent.sums.indptr))
    return PlanMemory(0, columns, arcs, cuts)


def _added(case: MemoryCase, sent: Leaving) -> int:
    """Return the bytes in which sums are added before they are rounded, and of the workgroup's sums meanwhile."""
    if sent.combined is None:
        return case.rounded(sent.sums.rows)
    shares = [len(share.places) for share in sent.combined.shares]
    most, total = max(shares, default=0), len(sent.combined.targets)
    room = max(total, sent.sums.rows if case.rounded(1) else 0)
    return case.matrix(room) + case.sent(most) + case.rounded(most) + index_dtype(total).itemsize * sum(shares)


def _room_of_sums(everyone: Sequence[LeavingSizes], members: int) -> LargestSizes:
    pes = np.arange(len(everyone))
    crossing = np.array([each.crossing for each in everyone])
    mates = pes[:, None] // members == pes // members
    counterparts = pes[:, None] % members == pes % members
    near, far = (crossing * mates).sum(axis=0), (crossing * ~(mates | counterparts)).sum(axis=0)
    return known([HaloSizes(int(near[pe]), int(far[pe]), each.messages) for pe, each in enumerate(everyone)], members)


def _near_and_far(case: MemoryCase, members: int) -> list[np.ndarray]:
    """Return the remote arcs of each row: those to rows of mates, and those to other rows."""
    product, owners, mates = case.product, np.arange(case.size), mates_of(case.rank, members)
    near = (owners >= mates.start) & (owners < mates.stop)
    is_near = np.repeat(near, np.diff(product.halo_ptr))[product.remote.indices]
    rows = np.repeat(np.arange(case.rows), np.diff(product.remote.indptr))
    return [np.bincount(rows[kept], minlength=case.rows) for kept in (is_near, ~is_near)]
