"""Rows or sums: an owner sends a row, or, for a row of another PE, the sum over that row's arcs to the owner (SHIRO).

The owner decides, separately for each PE of its workgroup and for each other workgroup, which gets a row once. It finds
the arcs in the product of the other direction, so PEs exchange only the rows that the sums are for. Sums are stored
behind the owner's rows and from then on treated as rows: a PE that needs one has an arc of weight 1 to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mgg.aggregate.plan import uploaded_csr
from mgg.aggregate.workgroups import WorkgroupOptions, mates_of
from mgg.aggregate.workgroups.wire import WireType
from mgg.backend import World
from mgg.backend.api import Array
from mgg.cost.product import SplitCounts
from mgg.graph.cover import least_cover
from mgg.graph.csr import Csr, index_dtype
from mgg.layout import PeLayout, Product
from mgg.layout.split import transposed
from mgg.layout.store import marked

Way = Literal["rows", "columns", "cover"]


class HaloOptions(WorkgroupOptions):
    """Which PEs address each other's memory, and what crosses between PEs, and when."""

    split: Way = Field(
        "rows",
        description="what crosses: rows, as they are needed; columns: for each row with arcs to another PE's rows the"
        " sum over these; cover: of both whatever is least (SHIRO)",
    )
    stale: int = Field(
        0,
        ge=0,
        le=1,
        description="epochs by which rows of other workgroups are late in training: 0, or 1 as in PipeGCN, so that they"
        " cross beside all of an epoch; evaluations take them as they are",
    )
    boundary: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of a PE's halo rows that it works with in training, drawn anew in each epoch (BNS-GCN); 1:"
        " all of them, as evaluations take",
    )
    wire: WireType | None = Field(
        None,
        description="type in which rows, or sums of rows, cross between workgroups: bf16, or int8, int4, int2 with a"
        " scale for every 32 columns and rounded at random; none: that of the embeddings",
    )

    @model_validator(mode="after")
    def _rows_alone_are_late(self) -> Self:
        if self.stale and self.split != "rows":
            raise ValueError(
                f"stale: sums are never late, and split: {self.split} sends some: leave one of the two out"
            )
        others = {"stale": self.stale, f"split: {self.split}": self.split != "rows", f"wire: {self.wire}": self.wire}
        if self.boundary < 1 and any(others.values()):
            other = next(name for name, given in others.items() if given)
            raise ValueError(f"boundary: rows of this epoch are sampled, and {other} is not for those: leave one out")
        return self

    @property
    def per_direction(self) -> bool:
        """Whether sums cross, which each direction chooses, or rows are late, sampled or rounded at random."""
        return self.split != "rows" or bool(self.stale) or self.boundary < 1 or self.wire is not None

    def way(self, direction: str) -> Way:
        """Return what crosses in ``direction``; gradients of sampled rows return as sums."""
        return "columns" if self.boundary < 1 and direction == "transpose" else self.split


@dataclass(frozen=True)
class LeavingSizes:
    """What a PE that sends sums reports to the other PEs.

    Attributes:
        height: number of its rows and sums.
        crossing, sums, arcs: by receiving PE, the rows and sums that cross, the sums among them, and the arcs that
            these sums replace.
        messages: rows and sums for each workgroup.
    """

    height: int
    crossing: np.ndarray
    sums: np.ndarray
    arcs: np.ndarray
    messages: tuple[int, ...]


@dataclass(frozen=True)
class Leaving:
    """What one PE sends in one direction; arrays are indexed by the receiving PE.

    Attributes:
        sums: CSR of the sums; columns are this PE's rows, ascending within each sum.
        sum_ptr: int64 [P + 1]; the sums for PE q are ``sum_ptr[q] .. sum_ptr[q + 1]``.
        targets: integers [sums], offset in PE q's rows of the row that each sum is for, ascending for each PE.
        arcs: int64 [P], arcs of PE q's rows that sums replace.
        rows: int64 [P], rows that cross to PE q unsummed.
        messages: int64 [workgroups], rows and sums that each workgroup gets, each row once for all of its PEs.
    """

    sums: Csr
    sum_ptr: np.ndarray
    targets: np.ndarray
    arcs: np.ndarray
    rows: np.ndarray
    messages: np.ndarray

    @cached_property
    def crossing(self) -> np.ndarray:
        """Rows and sums that cross to each PE, int64 [P]."""
        return self.rows + np.diff(self.sum_ptr)

    def sizes(self) -> LeavingSizes:
        """Return what the other PEs must know about it."""
        height, messages = self.sums.columns + self.sums.rows, tuple(self.messages.tolist())
        return LeavingSizes(height, self.crossing, np.diff(self.sum_ptr), self.arcs, messages)


def sums_that_arrive(product: Product) -> int:
    """Return the number of received sums if only sums cross: one per row and PE that it has arcs to."""
    rows = np.repeat(np.arange(len(product.remote.indptr) - 1), np.diff(product.remote.indptr))
    owners = np.searchsorted(product.halo_ptr, product.remote.indices, "right")
    return len(np.unique(rows * (len(product.halo_ptr) + 1) + owners))


def gains(layout: PeLayout, way: Way) -> bool:
    """Return whether sums may help; a layout of a single direction has one column per arc, so rows always suffice."""
    return way != "rows" and layout.size > 1 and layout.transpose is not layout.forward


def leaving(layout: PeLayout, direction: str, members: int, way: Way) -> Leaving:
    """Return what this PE sends in ``direction`` to workgroups of ``members`` PEs; cached in the layout."""
    key = direction, members, way
    if key not in layout.leaving:
        layout.leaving[key] = _leaving(layout, direction, members, way)
    made: Leaving = layout.leaving[key]
    return made


def _leaving(layout: PeLayout, direction: str, members: int, way: Way) -> Leaving:
    back = layout.product({"forward": "transpose", "transpose": "forward"}[direction])
    out, size = back.remote, layout.size
    owner = np.repeat(np.arange(size), np.diff(back.halo_ptr))
    group, mates = owner // members, mates_of(layout.rank, members)
    # A row crosses once to each mate that needs it, and once to each other workgroup.
    once = np.where((owner >= mates.start) & (owner < mates.stop), owner, group * members)
    columns = way == "columns"
    chosen = np.ones(back.halo, bool)
    if not columns:
        chosen = marked(layout.folder, least_cover, _runs(out, once), out.indices, count=back.halo)
    taken = chosen[out.indices]
    ends = np.concatenate(([0], np.cumsum(taken)))
    weights = None if out.weights is None else out.weights[taken]
    turned = transposed(Csr(ends[out.indptr], out.indices[taken], weights, back.halo)).csr
    at = np.flatnonzero(chosen)
    sum_ptr = np.searchsorted(at, back.halo_ptr)
    groups = -(-size // members)
    messages = _rows_that_stay(out, group, ~taken, groups) + np.bincount(group[at], minlength=groups)
    messages[layout.rank // members] = 0
    return Leaving(
        sums=Csr(np.append(0, turned.indptr[at + 1]), turned.indices, turned.weights, layout.rows),
        sum_ptr=sum_ptr,
        targets=back.halo_rows[at],
        arcs=np.bincount(owner[out.indices[taken]], minlength=size),
        rows=_rows_that_stay(out, owner, ~taken, size),
        messages=messages,
    )


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


def arriving(world: World, layout: PeLayout, direction: str, sent: Leaving) -> Product:
    """Return this PE's product over the rows and sums of the other PEs (collective).

    It has no send lists, which no plan needs: PEs request what they need.
    """
    product, size = layout.product(direction), layout.size
    received = world.exchange(
        [
            (layout.rows + int(sent.sum_ptr[pe]), sent.targets[sent.sum_ptr[pe] : sent.sum_ptr[pe + 1]])
            for pe in range(size)
        ]
    )
    remote, rows = product.remote, product.rows
    sums = np.array([len(targets) for _, targets in received])
    owner = np.repeat(np.arange(size), np.diff(product.halo_ptr))
    row_of = np.repeat(np.arange(rows), np.diff(remote.indptr))
    target = np.concatenate([targets for _, targets in received]).astype(np.int64)
    summed = np.repeat(np.arange(size), sums) * rows + target  # ascending: by owner, then by row
    stays = ~np.isin(owner[remote.indices] * rows + row_of, summed)
    used = np.zeros(product.halo, bool)
    used[remote.indices[stays]] = True
    kept = np.bincount(owner[used], minlength=size)
    halo_ptr = np.concatenate(([0], np.cumsum(kept + sums)))
    # Each owner's rows come first, then its sums, as in its memory.
    place = np.cumsum(used) - 1 - np.concatenate(([0], np.cumsum(kept)))[owner] + halo_ptr[owner]
    place_of_sums = np.arange(len(target)) + np.repeat(halo_ptr[1:] - np.cumsum(sums), sums)
    halo_rows = np.empty(int(halo_ptr[-1]), np.int64)
    halo_rows[place[used]] = product.halo_rows[used]
    halo_rows[place_of_sums] = np.concatenate([np.arange(len(targets)) + first for first, targets in received])
    all_rows = np.concatenate([row_of[stays], target])
    columns = np.concatenate([place[remote.indices[stays]], place_of_sums])
    order = np.lexsort((columns, all_rows))
    weights = None
    if remote.weights is not None:
        weights = np.concatenate([remote.weights[stays], np.ones(len(target), np.float32)])[order]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(all_rows, minlength=rows))))
    highest = int(halo_rows.max(initial=0)) + 1
    return Product(
        local=product.local,
        remote=Csr(indptr, columns[order].astype(remote.indices.dtype), weights, len(halo_rows)),
        halo_ptr=halo_ptr,
        halo_rows=halo_rows.astype(np.promote_types(product.halo_rows.dtype, index_dtype(highest))),
        send_ptr=np.zeros(size + 1, np.int64),
        send_rows=product.send_rows[:0],
        send_first=np.zeros(size, np.int64),
    )


def with_ways(world: World, layout: PeLayout, direction: str, split: SplitCounts, ways: Collection[Way]) -> SplitCounts:
    """Return ``split`` with the volumes of ``ways`` added (collective); it already has those of rows."""
    counted: dict[str, SplitCounts] = {}
    for way in ways:
        if gains(layout, way):
            everyone = world.gather(leaving(layout, direction, split.members, way).sizes())
            counted[way] = _counted(split, everyone)
        elif way != "rows":
            counted[way] = split
    return replace(split, ways=counted)


def _counted(split: SplitCounts, everyone: Sequence[LeavingSizes]) -> SplitCounts:
    crossing, sums, arcs = (
        np.array([getattr(each, name) for each in everyone]) for name in ("crossing", "sums", "arcs")
    )
    groups = np.arange(split.pes) // split.members
    outside, less = groups[:, None] != groups, arcs - sums
    return replace(
        split,
        arcs=split.arcs - less.sum(axis=0),
        remote_arcs=split.remote_arcs - less.sum(axis=0),
        halo_rows=crossing.sum(axis=0),
        outside_arcs=split.outside_arcs - int(less[outside].sum()),
        outside_rows=int(crossing[outside].sum()),
        fused_rows=np.array([each.messages for each in everyone]).sum(axis=0),
        sums=sums.sum(axis=1),
        sum_arcs=arcs.sum(axis=1),
        ways={},
    )


class SumsOfRows:
    """Computes a PE's sums and stores them behind its rows, where other PEs read them.

    Args:
        sums: as in ``Leaving``, in host memory.
        element: type of an embedding, to which sums are rounded.
    """

    def __init__(self, world: World, sums: Csr, max_dim: int, element: type) -> None:
        self._operators, self._sums = world.operators, uploaded_csr(world, sums)
        # Sums are float32; for other types a separate buffer holds them before rounding.
        self._exact = None if element is np.float32 else world.xp.empty(sums.rows * max_dim, np.float32)

    def __call__(self, matrix: Array) -> None:
        """Write the sums of the first rows of ``matrix`` [*, D] behind them."""
        sums, dim = self._sums, matrix.shape[1]
        out = matrix[sums.columns : sums.columns + sums.rows]
        exact = out if self._exact is None else self._exact[: sums.rows * dim].reshape(sums.rows, dim)
        self._operators.spmm_rows(sums.indptr, sums.indices, sums.weights, matrix, exact, False)
        if exact is not out:
            self._operators.write(exact, out)
