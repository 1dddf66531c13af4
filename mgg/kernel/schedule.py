"""Assignment of arcs to warps: the schedule of the row-wise kernel (kernels/aggregate/rows.cu), one per matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mgg.errors import InputError

#: Largest number of pieces per task: each lane of a warp keeps one.
PIECES_PER_TASK = 32
#: Bounds of a task's work and longest piece, in arcs: tasks are smaller on small matrices, so that these fill a GPU.
SMALLEST_TASK, LARGEST_TASK = 64, 512
#: Least number of tasks for a large GPU: four per warp of 132 multiprocessors. This is a constant, not the actual GPU's
#: size: the schedule fixes the order of the sums, so every GPU gets the same bits.
MANY_TASKS = 132 * 32 * 4


class Splits(NamedTuple):
    """The rows of a schedule that were cut, in host memory: see ``RowSchedule``."""

    rows: np.ndarray
    first: np.ndarray

    def before(self, row: int) -> tuple[int, int]:
        """Return the numbers of pieces and of cut rows before ``row``, where rows without arcs are pieces, too."""
        cut = int(np.searchsorted(self.rows, row))
        return row - cut + int(self.first[cut]), cut


@dataclass(frozen=True)
class RowSchedule:
    """A CSR cut into pieces and tasks.

    A piece is a row or part of a row. Pieces are consecutive, without gaps.

    Attributes:
        begin: int64 [pieces + 1], first arc of each piece.
        target: int32 [pieces], the row of a whole piece, or ``-1 - slot`` for a partial sum.
        tasks: int32 [tasks, 2], first piece and number of pieces, at most 32; in the order of work.
        split_rows: int32 [s], rows that were cut, ascending.
        split_first: int32 [s + 1], first slot of each; the slots of a row are consecutive.
    """

    begin: np.ndarray
    target: np.ndarray
    tasks: np.ndarray
    split_rows: np.ndarray
    split_first: np.ndarray

    @property
    def slots(self) -> int:
        """Number of partial sums."""
        return int(self.split_first[-1])

    @property
    def splits(self) -> Splits:
        """The rows that were cut."""
        return Splits(self.split_rows, self.split_first)

    def blocks(self, most: int) -> np.ndarray:
        """Return the first task of each thread block of ``most`` tasks, int32 [blocks + 1]."""
        return np.append(np.arange(0, len(self.tasks), most), len(self.tasks)).astype(np.int32)


def row_schedule(indptr: np.ndarray, task: int | None = None, *, empty: bool = True) -> RowSchedule:
    """Cut the rows of a CSR.

    Args:
        indptr: integers [rows + 1], ascending; the first may be above 0 (a slice of a larger CSR).
        task: work of a task and longest piece, in arcs, at least 32; None: chosen from the matrix.
        empty: rows without arcs are pieces, too, because their sums of 0 must be written.

    Raises:
        InputError: 2^31 pieces or more.
    """
    begin = np.asarray(indptr, np.int64)
    rows, arcs = len(begin) - 1, int(begin[-1] - begin[0])
    if task is None:
        task = task_size(arcs, rows)
    lengths = np.diff(begin)
    pieces = np.maximum(-(-lengths // task), int(empty))
    total = int(pieces.sum())
    check_pieces(rows, total)
    row_of, start = np.arange(rows), begin[:-1]
    if total != rows or not empty:
        row_of = np.repeat(row_of, pieces)
        start = start[row_of] + (np.arange(total) - (np.cumsum(pieces) - pieces)[row_of]) * task
    begin = np.append(start, begin[-1])
    cut = np.flatnonzero(pieces > 1)
    split_first = np.zeros(len(cut) + 1, np.int32)
    np.cumsum(pieces[cut], out=split_first[1:])
    target = row_of.astype(np.int32)
    target[pieces[row_of] > 1] = -1 - np.arange(int(split_first[-1]), dtype=np.int32)
    return RowSchedule(begin, target, tasks_of(begin, task), cut.astype(np.int32), split_first)


def check_pieces(rows: int, pieces: int) -> None:
    """Raise InputError if kernels cannot count ``pieces`` in int32."""
    if pieces >= 2**31:
        raise InputError(f"{rows} rows on one PE make {pieces} pieces of work; 2^31 - 1 are possible: use more PEs")


def task_size(arcs: int, rows: int) -> int:
    """Return the work of a task, in arcs: as large as possible while there are still many tasks."""
    work, task = arcs + rows * (LARGEST_TASK // PIECES_PER_TASK), SMALLEST_TASK
    while task < LARGEST_TASK and task * 2 * MANY_TASKS <= work:
        task *= 2
    return task


def tasks_of(begin: np.ndarray, task: int) -> np.ndarray:
    """Group pieces that start in the same ``task`` units of work: int32 [tasks, 2]; a piece costs task / 32 or more."""
    cost = np.diff(begin) + -(-task // PIECES_PER_TASK)
    bin_of = (np.cumsum(cost) - cost) // task
    starts = np.flatnonzero(np.diff(bin_of, prepend=-1))
    return np.column_stack((starts, np.diff(starts, append=len(cost)))).astype(np.int32)


def remote_sources(halo: np.ndarray, halo_ptr: np.ndarray, halo_rows: np.ndarray) -> np.ndarray:
    """Return the location of each remote arc's row: uint64 [arcs], the owner in the upper 16 bits, the row below.

    Args:
        halo: integers [arcs], position in the halo of each remote arc's column.
        halo_ptr: int64 [P + 1], first halo row of each owner.
        halo_rows: integers [H], offset of each halo row in its owner's rows.
    """
    owners = np.repeat(np.arange(len(halo_ptr) - 1, dtype=np.uint64), np.diff(halo_ptr))
    return ((owners << np.uint64(48)) | halo_rows.astype(np.uint64))[halo]
