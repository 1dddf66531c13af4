"""The order of work of technique halo's kernel (kernels/aggregate/halo.cu), computed once per product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.kernel.schedule import check_pieces, task_size, tasks_of

#: Rows with remote arcs and at least this many arcs are cut, so that their local arcs need not wait for the halo. A cut
#: costs three more passes over a row of C.
CUT_FROM = 512
#: Most rows of a halo: pull.cu adds a chunk (1/32 of the rows) or a step of all its warps to a row number in int32.
MOST_PULLED = 2**31 - 2**27


@dataclass(frozen=True)
class HaloPeers:
    """The PEs of a job as a kernel sees them.

    Attributes:
        rows: uint64 [P] on the device, addresses of all PEs' matrices.
        flags: uint64 [P] on the device, addresses of all PEs' flags, int32 [2 P], initially zero. None: the caller
            ensures that all rows are written before any launch and stay unchanged until all launches are done.
    """

    rows: Any
    flags: Any
    rank: int
    size: int


@dataclass(frozen=True)
class HaloSchedule:
    """Early work, which needs no halo row, then late work in row order; and the halo in order of first use.

    Attributes:
        indices: integers [arcs], rows of the matrix (local rows, then halo rows from ``halo_first`` on), in the order
            of work.
        weights: [arcs] in that order, of the matrices' type, or None.
        begin: int64 [pieces + 1], first arc of each piece.
        target: int32 [pieces], row of C, or ``-1 - slot`` for part of a row that is cut.
        tasks: int32 [tasks, 2], first piece and number of pieces.
        early_tasks: number of early tasks, which come first.
        split_rows: int32 [s], rows that are cut; split_first: int32 [s + 1], first slot of each.
        pulled: int64 [halo], the halo rows in the order in which they are pulled.
        reach: int64 [late tasks], number of halo rows that must have arrived for each late task and those before it.
    """

    indices: np.ndarray
    weights: np.ndarray | None
    begin: np.ndarray
    target: np.ndarray
    tasks: np.ndarray
    early_tasks: int
    split_rows: np.ndarray
    split_first: np.ndarray
    pulled: np.ndarray
    reach: np.ndarray

    @property
    def slots(self) -> int:
        """Number of parts of cut rows."""
        return int(self.split_first[-1])

    def blocks(self, most: int) -> tuple[np.ndarray, int, np.ndarray]:
        """Split the tasks into thread blocks of at most ``most`` tasks.

        Returns:
            First task of each block, int32 [blocks + 1]; number of early blocks; halo rows that each late block needs,
            int64 [late blocks].
        """
        late = np.arange(self.early_tasks, len(self.tasks), most)
        starts = np.concatenate((np.arange(0, self.early_tasks, most), late, [len(self.tasks)])).astype(np.int32)
        last = np.append(late[1:], len(self.tasks)) - self.early_tasks - 1
        return starts, len(starts) - 1 - len(late), self.reach[last] if len(late) else np.zeros(0, np.int64)


def halo_schedule(
    local: Csr, remote: Csr, halo_first: int, task: int | None = None, *, empty: bool = True
) -> HaloSchedule:
    """Order the work of one PE.

    Args:
        local, remote: the PE's product; columns of ``remote`` are positions in the halo.
        halo_first: row of the matrix where the halo begins.
        task: work of a task and longest piece, in arcs; None: chosen from the matrix.
        empty: rows without arcs are pieces, too, because their sums of 0 must be written, unless C is added to.

    Raises:
        InputError: 2^31 pieces or more, or more than ``MOST_PULLED`` halo rows.
    """
    if remote.columns > MOST_PULLED:
        raise InputError(f"one PE needs {remote.columns} rows of others; {MOST_PULLED} are possible: use more PEs")
    locals_, remotes = np.diff(local.indptr), np.diff(remote.indptr)
    task = task or task_size(local.arcs + remote.arcs, len(locals_))
    # A row waits as a whole if it is short or has no local arcs.
    waits = (remotes > 0) & ((locals_ + remotes < CUT_FROM) | (locals_ == 0))
    early, late = np.flatnonzero(~waits if empty else ~waits & (locals_ > 0)), np.flatnonzero(remotes > 0)
    early_lengths, late_lengths = locals_[early], remotes[late] + np.where(waits[late], locals_[late], 0)
    early_pieces = np.maximum(-(-early_lengths // task), 1)
    late_pieces = np.maximum(-(-late_lengths // task), 1)
    check_pieces(len(locals_), int(early_pieces.sum() + late_pieces.sum()))
    parts = np.zeros(len(locals_), np.int64)
    parts[early] += early_pieces
    ahead = parts[late]
    parts[late] += late_pieces
    cut = np.flatnonzero(parts > 1)
    split_first = np.zeros(len(cut) + 1, np.int32)
    np.cumsum(parts[cut], out=split_first[1:])
    slot = np.full(len(locals_), -1, np.int64)
    slot[cut] = split_first[:-1]
    early_begin, early_target = _pieces(early, early_lengths, early_pieces, slot[early], 0, task)
    late_begin, late_target = _pieces(late, late_lengths, late_pieces, slot[late], ahead, task)
    first_late = int(early_lengths.sum())
    begin = np.concatenate((early_begin, late_begin + first_late, [local.arcs + remote.arcs])).astype(np.int64)
    early_tasks = tasks_of(begin[: len(early_begin) + 1], task)
    late_tasks = tasks_of(begin[len(early_begin) :], task) + np.array([len(early_begin), 0], np.int32)
    indices, weights, pulled = _in_order(local, remote, waits, first_late, halo_first)
    tasks = np.concatenate((early_tasks, late_tasks))
    ends = begin[late_tasks.sum(axis=1)] - first_late
    seen = np.maximum.accumulate(indices[first_late:].astype(np.int64)) - halo_first + 1
    return HaloSchedule(
        indices=indices,
        weights=weights,
        begin=begin,
        target=np.concatenate((early_target, late_target)).astype(np.int32),
        tasks=tasks,
        early_tasks=len(early_tasks),
        split_rows=cut.astype(np.int32),
        split_first=split_first,
        pulled=pulled,
        reach=seen[ends - 1] if len(seen) else np.zeros(0, np.int64),
    )


def _pieces(
    rows: np.ndarray, lengths: np.ndarray, pieces: np.ndarray, slot: np.ndarray, ahead: np.ndarray | int, task: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return begin and target of the pieces of ``rows``; ``slot``: first slot of a cut row, -1 for other rows."""
    row_of = np.repeat(np.arange(len(rows)), pieces)
    place = np.arange(len(row_of)) - (np.cumsum(pieces) - pieces)[row_of]
    begin = (np.cumsum(lengths) - lengths)[row_of] + place * task
    slots = (slot + ahead)[row_of] + place
    return begin, np.where(slot[row_of] >= 0, -1 - slots, rows[row_of])


def _in_order(
    local: Csr, remote: Csr, waits: np.ndarray, first_late: int, halo_first: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    width = np.int32 if halo_first + remote.columns < 2**31 else np.int64
    indices = np.empty(local.arcs + remote.arcs, width)
    none = np.empty(0, np.float32)
    weights = none if local.weights is None else np.empty(len(indices), local.weights.dtype)
    place = np.full(remote.columns, -1, np.int64)
    pulled = np.empty(remote.columns, np.int64)
    _fill(
        local.indptr, local.indices, none if local.weights is None else local.weights,
        remote.indptr, remote.indices, none if remote.weights is None else remote.weights,
        waits, first_late, halo_first, indices, weights, place, pulled,
    )  # fmt: skip
    return indices, None if local.weights is None else weights, pulled


@numba.njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]
    lptr, lidx, lw, rptr, ridx, rw, waits, first_late, halo_first, indices, weights, place, pulled
):
    early, late, known = 0, first_late, 0
    for row in range(waits.size):
        for k in range(lptr[row], lptr[row + 1]):
            at = late if waits[row] else early
            indices[at] = lidx[k]
            if weights.size:
                weights[at] = lw[k]
            if waits[row]:
                late += 1
            else:
                early += 1
        for k in range(rptr[row], rptr[row + 1]):
            column = ridx[k]
            if place[column] < 0:
                place[column] = known
                pulled[known] = column
                known += 1
            indices[late] = halo_first + place[column]
            if weights.size:
                weights[late] = rw[k]
            late += 1
