"""Neighbor groups of GNNAdvisor (OSDI'21, sections 4 and 5.2): the groups of each block, and where their sums go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WARP = 32
#: Largest shared memory of a block in bytes: what every GPU offers by default.
SHARED = 48 * 1024


@dataclass(frozen=True)
class GroupSetting:
    """Parameters of the kernel.

    Attributes:
        ngs: arcs per neighbor group; the last group of a row may have fewer.
        dw: dimension workers: threads that share a group's columns, 1..32.
        tpb: threads per block, a multiple of 32.
        aligned: each group has its own warp (figure 6b); otherwise groups are consecutive across warps (figure 6a).
        leader: groups of a row within a block combine in shared memory, and one of them writes.
        ordered: sums of a row are combined in a fixed order; otherwise by atomics.
    """

    ngs: int
    dw: int
    tpb: int
    aligned: bool = True
    leader: bool = True
    ordered: bool = True

    @property
    def lanes(self) -> int:
        """Threads from one group of a block to the next."""
        return WARP if self.aligned else self.dw

    @property
    def a_block(self) -> int:
        """Groups per block."""
        return self.tpb // self.lanes


@dataclass(frozen=True)
class GroupCounts:
    """Numbers of groups and writes of a matrix under a setting.

    Attributes:
        groups: neighbor groups.
        writes: sums written to memory: one per group; with a leader, one for all groups of a row within a block.
        slots: writes of rows that have several.
        split: rows that have several writes.
    """

    groups: int
    writes: int
    slots: int
    split: int

    def atomics(self, setting: GroupSetting, dim: int) -> int:
        """Return the atomic float additions of a product of ``dim`` columns."""
        return 0 if setting.ordered else self.writes * dim


@dataclass(frozen=True)
class Groups:
    """The neighbor groups of a CSR, in row order.

    Attributes:
        targets: int32 [groups], row of each group.
        starts: int64 [groups + 1], first arc of each group; it ends where the next one starts.
        to: int32 [groups], where a group that writes puts its sum: a row of the result, or slot s as ``~s``.
        split_rows: int32 [split], rows with sums in several slots.
        split_first: int32 [split + 1], their first slots; the slots of a row are consecutive.
        counts: numbers of groups and writes.
    """

    targets: np.ndarray
    starts: np.ndarray
    to: np.ndarray
    split_rows: np.ndarray
    split_first: np.ndarray
    counts: GroupCounts


def count(lengths: np.ndarray, setting: GroupSetting) -> GroupCounts:
    """Return the counts of ``groups_of`` from the number of arcs of each row."""
    writes = _writes(-(-lengths // setting.ngs), setting)
    several = writes > 1
    groups = int((-(-lengths // setting.ngs)).sum())
    return GroupCounts(groups, int(writes.sum()), int(writes[several].sum()), int(np.count_nonzero(several)))


def _writes(pieces: np.ndarray, setting: GroupSetting) -> np.ndarray:
    """Return the number of sums that rows with ``pieces`` groups write to memory, int64 [rows]."""
    if not setting.leader:
        return pieces
    last = np.cumsum(pieces, dtype=np.int64) - 1
    first = last + 1 - pieces
    return np.where(pieces > 0, last // setting.a_block - first // setting.a_block + 1, 0)


def groups_of(indptr: np.ndarray, setting: GroupSetting) -> Groups:
    """Cut the rows of a CSR, ``indptr`` int64 [rows + 1] from 0 on, into groups; rows without arcs have none.

    Raises:
        ValueError: there are 2^31 rows or groups, or more.
    """
    lengths = np.diff(indptr)
    pieces = -(-lengths // setting.ngs)
    total = int(pieces.sum())
    if max(total, len(lengths)) >= 2**31:
        raise ValueError(f"{total} groups of {len(lengths)} rows: both must be below 2^31")
    targets = np.repeat(np.arange(len(lengths), dtype=np.int32), pieces)
    first = np.cumsum(pieces) - pieces
    starts = np.empty(total + 1, np.int64)
    starts[:-1] = indptr[targets] + (np.arange(total) - first[targets]) * setting.ngs
    starts[-1] = indptr[-1]
    writes = _writes(pieces, setting)
    split = np.flatnonzero(writes > 1).astype(np.int32)
    split_first = np.concatenate(([0], np.cumsum(writes[split]))).astype(np.int32)
    to = targets
    if setting.ordered:
        to = targets.copy()
        writers = np.ones(total, np.bool_)
        if setting.leader:
            writers[1:] = (targets[1:] != targets[:-1]) | (np.arange(1, total) % setting.a_block == 0)
        shared = writers & (writes > 1)[targets]
        to[shared] = ~np.arange(np.count_nonzero(shared), dtype=np.int32)
    return Groups(targets, starts, to, split, split_first, count(lengths, setting))


def tiling(dim: int, widest: int, setting: GroupSetting) -> tuple[int, int, int]:
    """Return how a launch covers ``dim`` columns: floats per load, columns per tile, tiles side by side.

    Loads have the smallest width that minimizes the workers' steps, so that more workers have work. With a leader, a
    tile is no wider than fits the block's shared memory.

    Args:
        widest: floats per load that the rows allow: 1, 2 or 4.
    """
    choices = [floats for floats in (1, 2, 4) if floats <= widest]
    floats = min(choices, key=lambda each: -(-dim // (each * setting.dw)))
    whole = -(-dim // floats) * floats
    room = SHARED // 4 // setting.a_block
    if not setting.leader or whole <= room:
        return floats, whole, 1
    step = floats * setting.dw if floats * setting.dw <= room else floats
    tiles = -(-whole // (room // step * step))
    tile = -(-whole // tiles // step) * step
    return floats, tile, -(-whole // tile)


def shared_bytes(tile: int, setting: GroupSetting) -> int:
    """Return the shared memory of a block in bytes: equation 5 with the columns of a tile instead of all columns."""
    return 4 * tile * setting.a_block if setting.leader else 0
