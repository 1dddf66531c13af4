"""What a PE sends where sums may cross: its rows, sums of them, and sums that the PEs of its workgroup made together.

A row of a PE of another workgroup may have arcs to rows of several PEs of this one. Each of these sums what its own
rows contribute. The PE with the receiver's local rank, the combiner, adds their sums and sends one (SHIRO, between
workgroups). So the rows of a workgroup are covered together, and fewer rows and sums cross than if each PE covers its
own arcs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from mgg.aggregate.workgroups import mates_of
from mgg.backend import World
from mgg.graph.cover import least_cover
from mgg.graph.csr import Csr
from mgg.layout import PeLayout, Product
from mgg.layout.split import transposed
from mgg.layout.store import marked

Way = Literal["rows", "columns", "cover"]


@dataclass(frozen=True)
class LeavingSizes:
    """What a PE that sends sums reports to the other PEs.

    Attributes:
        height: number of its rows and of all sums that it makes.
        crossing, sums, arcs: by receiving PE, the rows and sums that cross, the sums among them, and the arcs that
            these sums replace.
        made, added: the sums that it makes, and the rows and sums that it adds for them.
        fetched: sums that it fetches from the PEs of its workgroup to add them.
        messages: rows and sums for each workgroup.
    """

    height: int
    crossing: np.ndarray
    sums: np.ndarray
    arcs: np.ndarray
    made: int
    added: int
    fetched: int
    messages: tuple[int, ...]


class Share(NamedTuple):
    """Sums of a PE for the rows of other workgroups for which this PE adds.

    Attributes:
        pe: the PE, of this workgroup; possibly this one.
        first: the first of them in its matrix, where they follow each other.
        places: int64, ascending, which of the combined sums each is part of.
    """

    pe: int
    first: int
    places: np.ndarray


@dataclass(frozen=True)
class Combined:
    """The sums that a PE adds up for its workgroup and sends to others.

    Attributes:
        ptr: int64 [P + 1]; those for PE q are ``ptr[q] .. ptr[q + 1]``.
        targets: integers, offset in PE q's rows of the row that each is for, ascending for each PE.
        arcs: int64 [P], arcs of PE q's rows that they replace.
        shares: what they are made of, in the order of the PEs.
    """

    ptr: np.ndarray
    targets: np.ndarray
    arcs: np.ndarray
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Leaving:
    """What one PE sends in one direction; arrays are indexed by the receiving PE.

    Attributes:
        sums: CSR of the sums; columns are this PE's rows, ascending within each sum. First those that PEs get as they
            are, then those for combiners.
        sum_ptr: int64 [P + 1]; the sums for PE q are ``sum_ptr[q] .. sum_ptr[q + 1]``.
        targets: integers [sums], offset in PE q's rows of the row that each sum is for, ascending for each PE.
        arcs: int64 [P], arcs of PE q's rows that these sums replace.
        rows: int64 [P], rows that cross to PE q unsummed.
        messages: int64 [workgroups], rows and sums that each workgroup gets, each row once for all of its PEs.
        combined: the sums added up for the workgroup; None: each PE sends its own.
    """

    sums: Csr
    sum_ptr: np.ndarray
    targets: np.ndarray
    arcs: np.ndarray
    rows: np.ndarray
    messages: np.ndarray
    combined: Combined | None = None

    @property
    def made(self) -> int:
        """All sums, which follow the PE's rows in its matrix."""
        return self.sums.rows + (0 if self.combined is None else len(self.combined.targets))

    @cached_property
    def crossing(self) -> np.ndarray:
        """Rows and sums that cross to each PE, int64 [P]."""
        return self.rows + self._sums

    @property
    def _sums(self) -> np.ndarray:
        own = np.diff(self.sum_ptr)
        return own if self.combined is None else own + np.diff(self.combined.ptr)

    def for_pe(self, pe: int) -> tuple[int, np.ndarray]:
        """Return the place of the first sum for ``pe`` among all sums, and the rows of ``pe`` that its sums are for."""
        first, last = self.sum_ptr[pe : pe + 2]
        if first == last and self.combined is not None:
            start, end = self.combined.ptr[pe : pe + 2]
            return self.sums.rows + int(start), self.combined.targets[start:end]
        return int(first), self.targets[first:last]

    def sizes(self, rank: int) -> LeavingSizes:
        """Return what the other PEs must know about it; ``rank``: this PE."""
        shares = () if self.combined is None else self.combined.shares
        arcs = self.arcs if self.combined is None else self.arcs + self.combined.arcs
        parts = sum(len(share.places) for share in shares)
        fetched = sum(len(share.places) for share in shares if share.pe != rank)
        messages = tuple(self.messages.tolist())
        height = self.sums.columns + self.made
        return LeavingSizes(
            height, self.crossing, self._sums, arcs, self.made, self.sums.arcs + parts, fetched, messages
        )


def sums_that_arrive(product: Product) -> int:
    """Return the number of received sums if only sums cross: one per row and PE that it has arcs to."""
    rows = np.repeat(np.arange(len(product.remote.indptr) - 1), np.diff(product.remote.indptr))
    owners = np.searchsorted(product.halo_ptr, product.remote.indices, "right")
    return len(np.unique(rows * (len(product.halo_ptr) + 1) + owners))


def gains(layout: PeLayout, way: Way) -> bool:
    """Return whether sums may help; a layout of a single direction has one column per arc, so rows always suffice."""
    return way != "rows" and layout.size > 1 and layout.transpose is not layout.forward


def leaving(
    layout: PeLayout, direction: str, members: int, way: Way, *, separate: bool = False, world: World | None = None
) -> Leaving:
    """Return what this PE sends in ``direction`` to workgroups of ``members`` PEs; cached in the layout.

    Args:
        separate: every PE sends its own sums, whatever its workgroup.
        world: the PEs, of which several workgroups of several PEs find together what crosses (collective). Without it,
            and before a call with it, the result is what would cross if every PE sent its own sums: an estimate.
    """
    key = direction, members, way, separate
    joint = world is not None and not separate and 1 < members < layout.size
    made: Leaving | None = layout.leaving.get(key)
    if made is None or (joint and made.combined is None):
        if joint:
            assert world is not None
            made = _jointly(world, layout, direction, members, way)
        else:
            made = _separately(layout, direction, members, way)
        layout.leaving[key] = made
    return made


@dataclass(frozen=True)
class _Out:
    """The arcs that begin at a PE's rows, by the rows of other PEs at which they end.

    Attributes:
        back: the product of the other direction, whose halo has these rows.
        owner: int64 [halo], the PE of each of them.
        members: PEs of a workgroup.
        groups: number of workgroups.
        rank: this PE.
    """

    back: Product
    owner: np.ndarray
    members: int
    groups: int
    rank: int

    @classmethod
    def of(cls, layout: PeLayout, direction: str, members: int) -> _Out:
        back = layout.product({"forward": "transpose", "transpose": "forward"}[direction])
        owner = np.repeat(np.arange(layout.size), np.diff(back.halo_ptr))
        return cls(back, owner, members, -(-layout.size // members), layout.rank)

    @property
    def group(self) -> np.ndarray:
        """The workgroup of each row."""
        return self.owner // self.members

    @property
    def near(self) -> np.ndarray:
        """Whether each row is one of this workgroup."""
        return self.group == self.rank // self.members

    def sent(self, chosen: np.ndarray, order: np.ndarray, direct: int) -> Leaving:
        """Return what leaves where sums are sent for the ``chosen`` rows, bool [halo]; messages are of rows alone.

        Args:
            order: the chosen rows in the order of their sums.
            direct: how many of them get this PE's sums as they are, first and in ascending order.
        """
        out, size = self.back.remote, len(self.back.halo_ptr) - 1
        taken = chosen[out.indices]
        ends = np.concatenate(([0], np.cumsum(taken)))
        weights = None if out.weights is None else out.weights[taken]
        turned = transposed(Csr(ends[out.indptr], out.indices[taken], weights, self.back.halo)).csr
        messages = _rows_that_stay(out, self.group, ~taken, self.groups)
        messages[self.rank // self.members] = 0
        given = order[:direct]
        in_sums = np.zeros(self.back.halo, bool)
        in_sums[given] = True
        return Leaving(
            sums=_picked_rows(turned, order),
            sum_ptr=np.searchsorted(given, self.back.halo_ptr),
            targets=self.back.halo_rows[given],
            arcs=np.bincount(self.owner[out.indices[in_sums[out.indices]]], minlength=size),
            rows=_rows_that_stay(out, self.owner, ~taken, size),
            messages=messages,
        )


def _separately(layout: PeLayout, direction: str, members: int, way: Way) -> Leaving:
    out = _Out.of(layout, direction, members)
    # A row crosses once to each mate that needs it, and once to each other workgroup.
    once = np.where(out.near, out.owner, out.group * members)
    chosen = _covered(layout, out, once, np.ones(out.back.halo, bool), way)
    at = np.flatnonzero(chosen)
    sent = out.sent(chosen, at, len(at))
    far = at[~out.near[at]]
    return replace(sent, messages=sent.messages + np.bincount(out.group[far], minlength=out.groups))


def _covered(layout: PeLayout, out: _Out, kind: np.ndarray, among: np.ndarray, way: Way) -> np.ndarray:
    """Return which rows ``among`` those of ``out``, bool [halo], get sums; arcs to rows of one ``kind`` are covered
    together.
    """
    if way == "columns":
        return among
    arcs = out.back.remote
    kept = among[arcs.indices]
    ends = np.concatenate(([0], np.cumsum(kept)))
    some = Csr(ends[arcs.indptr], arcs.indices[kept], None, out.back.halo)
    return among & marked(layout.folder, least_cover, _runs(some, kind), some.indices, count=out.back.halo)


def _jointly(world: World, layout: PeLayout, direction: str, members: int, way: Way) -> Leaving:
    """Return what this PE sends where its workgroup covers its arcs to each other one as a whole (collective)."""
    out, mates = _Out.of(layout, direction, members), mates_of(layout.rank, members)
    near, height = out.near, int(np.diff(layout.bounds).max())
    keys = out.owner * height + out.back.halo_rows  # ascending
    far = ~near if way == "columns" else _far_cover(world, layout, out, mates, keys, height)
    chosen = _covered(layout, out, out.owner, near, way) | far
    given, shared = np.flatnonzero(chosen & near), np.flatnonzero(chosen & ~near)
    # The sums for a combiner follow each other.
    combiner = out.owner[shared] % members
    shared = shared[np.argsort(combiner, kind="stable")]
    ends = len(given) + np.concatenate(([0], np.cumsum(np.bincount(combiner, minlength=members))))
    sent = out.sent(chosen, np.concatenate((given, shared)), len(given))
    lengths = np.diff(sent.sums.indptr)
    parcels: list[Any] = [None] * world.size
    for pe in mates:
        first, last = (int(end) for end in ends[pe - mates.start : pe - mates.start + 2])
        places = slice(first - len(given), last - len(given))
        parcels[pe] = layout.rows + first, keys[shared[places]], lengths[first:last]
    received = world.exchange(parcels)
    every = np.unique(np.concatenate([received[pe][1] for pe in mates]))
    pes, arcs = every // height, np.zeros(world.size, np.int64)
    shares = []
    for pe in mates:
        first, theirs, counts = received[pe]
        arcs += np.bincount(theirs // height, counts, world.size).astype(np.int64)
        if len(theirs):
            shares.append(Share(pe, first, np.searchsorted(every, theirs)))
    ptr = np.searchsorted(pes, np.arange(world.size + 1))
    combined = Combined(ptr, every % height, arcs, tuple(shares))
    messages = sent.messages + np.bincount(pes // members, minlength=out.groups)
    return replace(sent, messages=messages, combined=combined)


def _far_cover(world: World, layout: PeLayout, out: _Out, mates: range, keys: np.ndarray, height: int) -> np.ndarray:
    """Return for which rows of other workgroups, bool [halo], this workgroup sends sums (collective).

    Args:
        mates: the PEs of this workgroup, of which each finds the covers for every ``len(mates)``-th other workgroup.
        keys: int64 [halo], ascending, a number for each row, the same on every PE: ``height`` times its PE, plus its
            place there.
    """
    arcs = out.back.remote
    rows, group = np.repeat(np.arange(arcs.rows), np.diff(arcs.indptr)), out.group[arcs.indices]
    parcels: list[Any] = [None] * world.size
    for pe in mates:
        mine = (group != layout.rank // len(mates)) & (group % len(mates) == pe - mates.start)
        parcels[pe] = rows[mine], keys[arcs.indices[mine]]
    received = [arcs_of for arcs_of in world.exchange(parcels) if arcs_of is not None]
    targets = np.concatenate([each for _, each in received])
    names, places = np.unique(targets, return_inverse=True)
    # Each row of each mate is one source for each workgroup.
    sources = (
        np.repeat(np.arange(len(mates)), [len(each) for each, _ in received]),
        np.concatenate([each for each, _ in received]),
        targets // (height * len(mates)),
    )
    first = np.ones(len(targets) + 1, bool)
    first[1:-1] = np.logical_or.reduce([each[1:] != each[:-1] for each in sources])
    ptr = np.flatnonzero(first)
    found = names[marked(layout.folder, least_cover, ptr, places, count=len(names))]
    answers = world.exchange([found if pe in mates else None for pe in range(world.size)])
    wanted = np.concatenate([each for each in answers if each is not None])
    return ~out.near & np.isin(keys, wanted)


def _picked_rows(csr: Csr, rows: np.ndarray) -> Csr:
    """Return ``rows`` of ``csr``, in that order."""
    lengths = np.diff(csr.indptr)[rows]
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    arcs = np.arange(indptr[-1]) + np.repeat(csr.indptr[rows] - indptr[:-1], lengths)
    return Csr(indptr, csr.indices[arcs], None if csr.weights is None else csr.weights[arcs], csr.columns)


def _runs(csr: Csr, kind: np.ndarray) -> np.ndarray:
    """Return where each run of a row's arcs to columns of one ``kind`` (ascending) begins: int64 [runs + 1]."""
    kinds = kind[csr.indices]
    first = np.ones(csr.arcs + 1, bool)
    np.not_equal(kinds[1:], kinds[:-1], out=first[1:-1])
    first[csr.indptr] = True
    return np.flatnonzero(first)


def _rows_that_stay(csr: Csr, kind: np.ndarray, stays: np.ndarray, kinds: int) -> np.ndarray:
    """Count, by kind of column, the rows of ``csr`` with an arc that ``stays``: int64 [kinds]."""
    starts = _runs(csr, kind)[:-1]
    any_stays = np.logical_or.reduceat(stays, starts) if len(starts) else np.zeros(0, bool)
    return np.bincount(kind[csr.indices[starts[any_stays]]], minlength=kinds)
