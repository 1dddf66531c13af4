"""Who sums which arcs: the schedule of the row-wise kernel (kernels/aggregate/rows.cu), made once a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.errors import InputError

#: Most pieces of a task: each lane of a warp keeps one.
PIECES_PER_TASK = 32
#: Work of a task and longest piece, arcs: tasks shrink on small matrices, so that these fill a GPU, too.
SMALLEST_TASK, LARGEST_TASK = 64, 512
#: Arcs of a panel of rows whose arcs are taken in bands of columns, and panels that a matrix must have for that.
SMALLEST_PANEL, LARGEST_PANEL, MANY_PANELS = 2**14, 2**16, 528
#: Arcs of a panel that are looked at to find its bands, and most bands: a panel may be one row of millions of arcs.
SAMPLES, MOST_BANDS = 256, 32
#: Tasks that a large GPU should get at least: four a warp of 132 multiprocessors. A constant, not the GPU at hand: the
#: schedule fixes the order of the sums, so every GPU gets the same bits.
MANY_TASKS = 132 * 32 * 4


@dataclass(frozen=True)
class RowSchedule:
    """A CSR cut into pieces and tasks.

    A piece is a row or part of one. Pieces follow one another without gaps.

    Attributes:
        begin: int64 [pieces + 1], first arc of each piece.
        target: int32 [pieces], the row that a piece is, or ``-1 - slot`` for a partial sum.
        tasks: int32 [tasks, 2], first piece and number of pieces, at most 32; in the order of work.
        panels: int64 [panels + 1], first task of each panel; empty for a matrix without panels.
        split_rows: int32 [s], rows that were cut, ascending.
        split_first: int32 [s + 1], first slot of each; its slots are consecutive.
    """

    begin: np.ndarray
    target: np.ndarray
    tasks: np.ndarray
    panels: np.ndarray
    split_rows: np.ndarray
    split_first: np.ndarray

    @property
    def slots(self) -> int:
        """Number of partial sums."""
        return int(self.split_first[-1])

    def blocks(self, most: int) -> np.ndarray:
        """int32 [blocks + 1], first task of each thread block: a panel, or ``most`` tasks without panels."""
        if len(self.panels):
            return self.panels.astype(np.int32)
        return np.append(np.arange(0, len(self.tasks), most), len(self.tasks)).astype(np.int32)


def row_schedule(
    indptr: np.ndarray, task: int | None = None, indices: np.ndarray | None = None, band: int = 0,
    panel: int | None = None,
) -> RowSchedule:  # fmt: skip
    """Cut the rows of a CSR, long ones also where the bands of their panel begin.

    With ``band``, a matrix of many long rows is cut into panels of rows. The columns of a panel's arcs are cut into
    bands of equally many arcs, about ``band`` a row, and all rows' arcs of a band are summed before those of the next
    one: the rows of B that a band names are few enough for L1, where a whole panel's are not.

    Args:
        indptr: integers [rows + 1], ascending; the first one may be above 0 (a slice of a larger CSR).
        task: work of a task and longest piece in arcs, at least 32; chosen from the matrix without it.
        indices: integers, the columns; ascending in each row, or bands do not help. ``indices[k]`` is arc k's. Needed
            with ``band``.
        band: arcs of a row in a band; 0: no panels.
        panel: arcs of a panel; chosen from the matrix without it.

    Raises:
        InputError: 2^31 pieces or more.
    """
    begin = np.asarray(indptr, np.int64)
    rows, arcs = len(begin) - 1, int(begin[-1] - begin[0])
    if task is None:
        work = arcs + rows * (LARGEST_TASK // PIECES_PER_TASK)
        task = SMALLEST_TASK
        while task < LARGEST_TASK and task * 2 * MANY_TASKS <= work:
            task *= 2
    row_of, start, band_of, panel_of = np.arange(rows), begin[:-1], None, None
    if indices is not None and worth_bands(rows, arcs, band, panel):
        panel_of = (start - begin[0]) // (panel or _panel(arcs))
        row_of, start, band_of = _banded(begin, indices, panel_of, band)
    lengths = np.diff(start, append=begin[-1])
    pieces = np.maximum(-(-lengths // task), 1)
    total = int(pieces.sum())
    if total >= 2**31:
        raise InputError(f"{rows} rows on one PE make {total} pieces of work; 2^31 - 1 are possible: use more PEs")
    if total > len(row_of):
        part_of = np.repeat(np.arange(len(row_of)), pieces)
        start = start[part_of] + (np.arange(total) - (np.cumsum(pieces) - pieces)[part_of]) * task
        row_of = row_of[part_of]
        band_of = None if band_of is None else band_of[part_of]
    begin = np.append(start, begin[-1])
    pieces = np.bincount(row_of, minlength=rows)
    cut = np.flatnonzero(pieces > 1)
    split_first = np.zeros(len(cut) + 1, np.int32)
    np.cumsum(pieces[cut], out=split_first[1:])
    target = row_of.astype(np.int32)
    target[pieces[row_of] > 1] = -1 - np.arange(int(split_first[-1]), dtype=np.int32)
    panels = np.empty(0, np.int64)
    if band_of is None or panel_of is None:
        tasks = _tasks(begin, task)
    else:
        place = panel_of[row_of]
        order = np.lexsort((band_of, place))
        tasks = np.column_stack((order, np.ones_like(order))).astype(np.int32)
        panels = np.append(np.flatnonzero(np.diff(place[order], prepend=-1)), total)
    return RowSchedule(begin, target, tasks, panels, cut.astype(np.int32), split_first)


def worth_bands(rows: int, arcs: int, band: int, panel: int | None = None) -> bool:
    """Whether a matrix is cut into panels and bands: enough panels to fill a GPU, and rows of two bands or more."""
    return band > 0 and arcs >= 2 * band * rows and arcs >= MANY_PANELS * (panel or SMALLEST_PANEL)


def _panel(arcs: int) -> int:
    panel = SMALLEST_PANEL
    while panel < LARGEST_PANEL and 2 * panel * MANY_PANELS <= arcs:
        panel *= 2
    return panel


def _banded(
    begin: np.ndarray, indices: np.ndarray, panel_of: np.ndarray, band: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, first arc and band of each part: a row is cut where the bands of its panel begin, empty parts left out."""
    rows = len(begin) - 1
    first = np.flatnonzero(np.diff(panel_of, prepend=-1))
    number = np.cumsum(np.diff(panel_of, prepend=-1) > 0) - 1  # of the row's panel; panels without rows do not count
    start, stop = begin[first], begin[np.append(first[1:], rows)]
    bands = np.clip((stop - start) // np.diff(np.append(first, rows)) // band, 1, MOST_BANDS)
    # Where bands begin: quantiles of a sample of the panel's columns.
    sample = start[:, None] + (stop - start)[:, None] * np.arange(SAMPLES) // SAMPLES
    columns = np.sort(indices[np.minimum(sample, begin[-1] - 1)], axis=1)
    most = int(bands.max())
    cuts = np.empty((most, rows + 1), np.int64)
    cuts[0] = begin
    for k in range(1, most):
        bound = np.take_along_axis(columns, np.minimum(k * SAMPLES // bands, SAMPLES - 1)[:, None], axis=1)[:, 0]
        bound = np.where(k < bands, bound, np.iinfo(bound.dtype).max)
        cuts[k, :-1] = _lower_bound(indices, cuts[k - 1, :-1], begin[1:], bound[number])
    flat = cuts[:, :-1].T.ravel()  # row by row
    row_of, band_of = np.divmod(np.arange(rows * most), most)
    keep = np.diff(flat, append=begin[-1]) > 0
    keep[np.flatnonzero(np.diff(begin) == 0) * most] = True  # a row without arcs is a piece, too
    return row_of[keep], flat[keep], band_of[keep]


def _lower_bound(indices: np.ndarray, low: np.ndarray, high: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """First k of each ``low .. high`` with ``indices[k] >= bound``, or ``high``."""
    low, high = low.copy(), high.copy()
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) // 2
        open_ = low < high
        less = open_ & (indices[np.minimum(middle, len(indices) - 1)] < bound)
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    return low


def _tasks(begin: np.ndarray, task: int) -> np.ndarray:
    """int32 [tasks, 2]: runs of pieces that start in the same ``task`` units of work; a piece costs a 32nd or more."""
    cost = np.diff(begin) + -(-task // PIECES_PER_TASK)
    bin_of = (np.cumsum(cost) - cost) // task
    starts = np.flatnonzero(np.diff(bin_of, prepend=-1))
    return np.column_stack((starts, np.diff(starts, append=len(cost)))).astype(np.int32)


def remote_sources(halo: np.ndarray, halo_ptr: np.ndarray, halo_rows: np.ndarray) -> np.ndarray:
    """Where the row of each remote arc is: uint64 [arcs], the owner's PE in the upper 16 bits, the row there below.

    Args:
        halo: integers [arcs], position in the halo of each remote arc's column.
        halo_ptr: int64 [P + 1], first halo row of each owner.
        halo_rows: integers [H], offset of each halo row in its owner's rows.
    """
    owners = np.repeat(np.arange(len(halo_ptr) - 1, dtype=np.uint64), np.diff(halo_ptr))
    return ((owners << np.uint64(48)) | halo_rows.astype(np.uint64))[halo]
