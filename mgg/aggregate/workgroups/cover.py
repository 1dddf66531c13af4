"""Rows or sums: an owner sends a row, or, for a row of another PE, the sum over that row's arcs to the owner (SHIRO).

The owner decides for each PE of its workgroup, the workgroup for each other one (``leaving.py``). They find the arcs in
the product of the other direction, so PEs exchange only the rows that the sums are for. Sums are stored behind the rows
of the PE that makes them and from then on treated as rows: a PE that needs one has an arc of weight 1 to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from mgg.aggregate.plan import uploaded_csr
from mgg.aggregate.workgroups import WorkgroupOptions
from mgg.aggregate.workgroups.leaving import Leaving, LeavingSizes, Way, gains, leaving
from mgg.aggregate.workgroups.quantized_rows import WireType
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import SplitCounts
from mgg.graph.csr import Csr, index_dtype
from mgg.layout import PeLayout, Product


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


def arriving(world: World, layout: PeLayout, direction: str, sent: Leaving, members: int) -> Product:
    """Return this PE's product over the rows and sums of the other PEs (collective).

    It has no send lists, which no plan needs: PEs request what they need.
    """
    product, size = layout.product(direction), layout.size
    received = world.exchange([(layout.rows + first, targets) for first, targets in map(sent.for_pe, range(size))])
    remote, rows = product.remote, product.rows
    sums = np.array([len(targets) for _, targets in received])
    owner = np.repeat(np.arange(size), np.diff(product.halo_ptr))
    sender = owner
    if sent.combined is not None:  # another workgroup's sums come from the PE with this one's local rank
        groups = owner // members
        sender = np.where(groups == layout.rank // members, owner, groups * members + layout.rank % members)
    row_of = np.repeat(np.arange(rows), np.diff(remote.indptr))
    target = np.concatenate([targets for _, targets in received]).astype(np.int64)
    summed = np.repeat(np.arange(size), sums) * rows + target  # ascending: by owner, then by row
    stays = ~np.isin(sender[remote.indices] * rows + row_of, summed)
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
            sent = leaving(layout, direction, split.members, way, world=world)
            everyone = world.gather(sent.sizes(layout.rank))
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
        halo_rows=crossing.sum(axis=0) + np.array([each.fetched for each in everyone]),
        outside_arcs=split.outside_arcs - int(less[outside].sum()),
        outside_rows=int(crossing[outside].sum()),
        fused_rows=np.array([each.messages for each in everyone]).sum(axis=0),
        sums=np.array([each.made for each in everyone]),
        sum_arcs=np.array([each.added for each in everyone]),
        ways={},
    )


class SumsOfRows:
    """Makes a PE's sums and stores them behind its rows, where other PEs read them.

    Args:
        sent: what the PE sends.
        element: type of an embedding, to which sums are rounded.
    """

    def __init__(self, world: World, sent: Leaving, max_dim: int, element: type) -> None:
        self._world, self._sums, self._combined = world, uploaded_csr(world, sent.sums), sent.combined
        self._rounds, rows = element is not np.float32, 0
        # Sums are float32; for other types a separate buffer holds them before rounding.
        exact = sent.sums.rows if self._rounds else 0
        if sent.combined is not None:
            dtype = index_dtype(len(sent.combined.targets))
            self._places = [world.upload(share.places.astype(dtype)) for share in sent.combined.shares]
            rows = max((len(share.places) for share in sent.combined.shares), default=0)
            exact = max(exact, len(sent.combined.targets))
        empty = world.xp.empty
        self._exact, self._fetched = empty(exact * max_dim, np.float32), empty(rows * max_dim, element)
        self._widened = empty(rows * max_dim, np.float32) if self._rounds else self._fetched

    def __call__(self, source: SymmetricArray) -> None:
        """Write the sums of the first rows of ``source`` [*, D] behind them (collective)."""
        operators, sums, matrix = self._world.operators, self._sums, source.local
        out = matrix[sums.columns : sums.columns + sums.rows]
        exact = _matrix(self._exact, *out.shape) if self._rounds else out
        operators.spmm_rows(sums.indptr, sums.indices, sums.weights, matrix, exact, False)
        if self._rounds:
            operators.write(exact, out)
        if self._combined is not None:
            self._combine(source, sums.columns + sums.rows)

    def _combine(self, source: SymmetricArray, first: int) -> None:
        """Add the workgroup's sums, PE by PE, into the rows from ``first`` on."""
        assert self._combined is not None
        world, count, dim = self._world, len(self._combined.targets), source.local.shape[1]
        total = _matrix(self._exact, count, dim)
        total.fill(0)
        world.barrier()
        for share, places in zip(self._combined.shares, self._places, strict=True):
            rows = len(share.places)
            fetched, wide = _matrix(self._fetched, rows, dim), _matrix(self._widened, rows, dim)
            world.get_rows(source, share.pe, range(share.first, share.first + rows), fetched)
            if self._rounds:
                world.operators.widen_bf16(fetched, wide)
            world.operators.add_rows(wide, places, total)
        world.operators.write(total, source.local[first : first + count])


def _matrix(array: Array, rows: int, columns: int) -> Array:
    return array[: rows * columns].reshape(rows, columns)
