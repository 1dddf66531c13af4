"""Assignment of arcs to lanes for short rows of B: the order of work of kernels/aggregate/narrow_rows.cu.

A piece is a row, or a part of a long row. A bundle holds neighboring pieces of similar length, one per group of a
warp's lanes; a long piece gets its own bundle and the whole warp sums it. The bundle of a piece changes no bit of its
sum.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from mgg.kernel.column_tiles import power
from mgg.kernel.schedule import check_pieces

#: Largest number of loads per row of B for which this order pays off: 128 bytes with 16-byte loads (on an H100).
NARROW = 8
#: Bits of a piece's start, relative to its block's, and of its length; target of unused places. As in bundles.cuh.
START_BITS, LENGTH_BITS, NO_TARGET = 20, 11, -(2**31)
#: Cost of a piece besides its arcs, in arcs, for writing its sum.
PIECE = 6
#: Rows ordered at a time; extra bytes that ordering takes per piece, and per place in a bundle, besides the result.
SLAB, OF_PIECE, OF_PLACE = 1 << 18, 160, 32


@dataclass(frozen=True)
class BundleTuning:
    """How rows are cut and ordered; only ``longest`` and ``whole`` affect the order of a sum.

    Attributes:
        longest: largest number of arcs in a piece; longer rows are cut.
        whole: the whole warp sums pieces with more arcs than this.
        task: arcs of a warp's task, including idle lanes, per four groups of the warp.
        window: arcs of a window; its pieces are ordered by length.
        block: arcs of a thread block of whole windows, whose warps share rows of B in L1.
    """

    longest: int = 512
    whole: int = 128
    task: int = 256
    window: int = 16_384
    block: int = 98_304


TUNING = BundleTuning()


@dataclass(frozen=True)
class Bundles:
    """A CSR's rows in the order of work, as NumPy or CuPy arrays.

    Attributes:
        pieces: uint32 [*, 2], ``Piece`` of bundles.cuh; a bundle has one for each group of a warp's lanes.
        tasks: int32 [tasks, 2], first piece and number of pieces of a warp's task.
        blocks: int32 [blocks + 1], first task of each thread block.
        begin: int64 [blocks], the arc to which the starts of each block's pieces are relative.
        split_rows, split_first: rows that were cut, and the first slot of each, as in ``RowSchedule``.
        slots: number of partial sums.
    """

    pieces: Any
    tasks: Any
    blocks: Any
    begin: Any
    split_rows: Any
    split_first: Any
    slots: int

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self, each.name).nbytes for each in fields(self) if each.name != "slots")


def bundled(
    xp: Any, indptr: Any, groups: int, tuning: BundleTuning = TUNING, processors: int = 132, *, empty: bool = True
) -> Bundles:
    """Cut the rows of a CSR and order them by length within windows of neighboring rows.

    Args:
        xp: numpy or cupy.
        indptr: int64 [rows + 1], ascending, an array of ``xp``; the first entry may be above 0.
        groups: number of pieces that a warp sums side by side, a power of two in 1..32.
        processors: multiprocessors of the GPU; each gets at least eight blocks if there is enough work.
        empty: rows without arcs are pieces, too, because their sums of 0 must be written.

    Raises:
        InputError: 2^31 pieces or more.
    """
    assert tuning.longest < 1 << LENGTH_BITS and tuning.block + tuning.window + tuning.longest < 1 << START_BITS
    rows, arcs = len(indptr) - 1, int(indptr[-1] - indptr[0])
    # A long piece has a place for each group; besides its pieces of `longest` arcs, a row has at most one.
    check_pieces(rows, groups * (rows + arcs // tuning.longest))
    most = max((arcs + PIECE * rows) // (processors * 8), 64)  # work per block
    made, at = [], _At()
    for row in range(0, rows, SLAB):
        cut = _cut(xp, indptr[row : row + SLAB + 1].astype(np.int64), tuning.longest, at.slots, row, empty)
        if len(cut.start):
            made.append((*_ordered(xp, cut, groups, tuning, most, at), cut.split_rows, cut.split_first))
            at = _At(at.pieces + len(made[-1][0]), at.tasks + len(made[-1][1]), at.slots + cut.slots)
    if not made:
        none, zero = xp.zeros((0, 2), np.int32), xp.zeros(1, np.int32)
        return Bundles(none.view(np.uint32), none, zero, zero[:0].astype(np.int64), zero[:0], zero, 0)
    pieces, tasks, blocks, begin, split_rows, split_first = zip(*made, strict=True)
    last_task, last_slot = (xp.full(1, end, np.int32) for end in (at.tasks, at.slots))
    return Bundles(
        xp.concatenate(pieces), xp.concatenate(tasks), xp.concatenate((*blocks, last_task)), xp.concatenate(begin),
        xp.concatenate(split_rows), xp.concatenate((*split_first, last_slot)), at.slots,
    )  # fmt: skip


class _At(NamedTuple):
    """Number of pieces, tasks and slots before a slab."""

    pieces: int = 0
    tasks: int = 0
    slots: int = 0


class _Cut(NamedTuple):
    """The pieces of some rows, in row order, int64 [pieces]; and the fields of ``Bundles`` that follow from them."""

    start: Any
    length: Any
    target: Any
    split_rows: Any
    split_first: Any
    slots: int


def _cut(xp: Any, begin: Any, longest: int, slot: int, row: int, empty: bool) -> _Cut:
    """Cut the rows from ``row`` on; ``begin``: their arc pointers; ``slot``: the first free slot."""
    lengths = xp.diff(begin)
    counts = xp.maximum(-(-lengths // longest), int(empty))
    split = xp.flatnonzero(counts > 1)
    ends = xp.cumsum(counts[split])
    split_rows, split_first = (each.astype(np.int32) for each in (split + row, ends - counts[split] + slot))
    slots = int(ends[-1]) if len(split) else 0
    if not len(split) and empty:
        return _Cut(begin[:-1], lengths, xp.arange(row, row + len(lengths)), split_rows, split_first, 0)
    ends = xp.cumsum(counts)
    total = int(ends[-1])
    if not total:
        return _Cut(lengths[:0], lengths[:0], lengths[:0], split_rows, split_first, 0)
    places = xp.arange(total)
    row_of = xp.searchsorted(ends, places, side="right")
    size = -(-lengths // xp.maximum(counts, 1))[row_of]  # all parts of a row have the same size
    start = begin[:-1][row_of] + (places - (ends - counts)[row_of]) * size
    length = xp.minimum(size, begin[1:][row_of] - start)
    parted = counts[row_of] > 1
    target = xp.where(parted, -slot - xp.cumsum(parted.astype(np.int64)), row_of + row)
    return _Cut(start, length, target, split_rows, split_first, slots)


def _ordered(xp: Any, cut: _Cut, groups: int, tuning: BundleTuning, most: int, at: _At) -> tuple[Any, Any, Any, Any]:
    """Return a slab's pieces, tasks, blocks without their end, and ``begin``."""
    start, length, target = cut[:3]
    total = len(start)
    # Windows: runs of pieces of about equal work; blocks: runs of windows.
    cost = length + PIECE
    work = xp.cumsum(cost) - cost
    window = min(tuning.window, most)
    window_of = work // window
    block_of = window_of // max(1, min(tuning.block, most) // window)
    heads = _changes(xp, block_of)
    begin = start[heads]
    places = xp.arange(total)
    relative = start - begin[xp.searchsorted(heads, places, side="right") - 1]
    # Longest first within a window, so pieces of more than `whole` arcs precede the others.
    order = xp.argsort(window_of * (tuning.longest + 1) + (tuning.longest - length), kind="stable")
    length, target = length[order], target[order]
    whole = length > tuning.whole if groups > 1 else xp.zeros(total, bool)
    word = relative[order] | (length << START_BITS) | (whole.astype(np.int64) << (START_BITS + LENGTH_BITS))
    # A bundle is one piece for the whole warp, or one piece per group.
    kind = window_of * 2 + ~whole
    place = places - xp.searchsorted(kind, kind)  # within its window and kind
    lead = xp.flatnonzero(whole | (place % groups == 0))
    size = xp.diff(xp.concatenate((lead, xp.full(1, total))))
    alone = whole[lead]
    lane = xp.arange(groups)
    there = alone[:, None] | (lane < size[:, None])
    source = (lead[:, None] + lane * (there & ~alone[:, None])).ravel()
    there = there.ravel()
    pieces = xp.empty((len(source), 2), np.uint32)
    pieces[:, 0] = xp.where(there, word[source], 0).astype(np.uint32)
    pieces[:, 1] = xp.where(there, target[source], NO_TARGET).astype(np.int32).view(np.uint32)
    # Tasks: runs of bundles of a window and kind, of about equal work; idle lanes count as work.
    cost = xp.where(alone, length[lead] + PIECE * groups, (length[lead] + PIECE) * groups)
    bin_of = (xp.cumsum(cost) - cost) // (tuning.task * max(1, groups // 4))
    first = _changes(xp, kind[lead], bin_of)
    counts = xp.diff(xp.concatenate((first, xp.full(1, len(lead)))))
    tasks = xp.stack((first * groups + at.pieces, counts * groups), axis=1).astype(np.int32)
    blocks = _changes(xp, block_of[lead][first]) + at.tasks
    return pieces, tasks, blocks.astype(np.int32), begin


def _changes(xp: Any, *arrays: Any) -> Any:
    """Return the positions where any of the arrays, all of one length, differs from its previous entry; and 0."""
    new = xp.ones(len(arrays[0]), bool)
    new[1:] = False
    for each in arrays:
        new[1:] |= each[1:] != each[:-1]
    return xp.flatnonzero(new)


def lanes_of(columns: int, vector: int) -> int:
    """Return the lanes per row of B in ``narrow_rows.cu``, for loads of ``vector`` elements; 0: rows are too long."""
    loads = -(-columns // vector)
    return power(loads) if loads <= NARROW else 0


def bundle_bytes(lengths: np.ndarray, groups: int) -> int:
    """Return the bytes of ``Bundles`` for rows of ``lengths`` arcs, and of the temporary arrays that make them."""
    pieces = np.maximum(-(-lengths // TUNING.longest), 1)
    whole = int(pieces[lengths > TUNING.whole].sum()) if groups > 1 else 0
    places = whole * groups + int(pieces.sum()) - whole
    work = int(lengths.sum()) + PIECE * places
    made = 8 * places + 8 * work // (TUNING.task * max(1, groups // 4))
    return made + int((OF_PLACE * places + OF_PIECE * int(pieces.sum())) * min(1, SLAB / max(len(lengths), 1)))
