"""Cuts of a matrix's rows in GPU memory: made once per matrix, for all row-wise kernels."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import cupy as cp
import numpy as np

from mgg.kernel.narrow_row_schedule import Bundles, bundled
from mgg.kernel.schedule import Splits, row_schedule


@dataclass(frozen=True)
class RowTuning:
    """How the row-wise kernel is launched; ``tasks_per_block`` changes no bit of the result.

    Attributes:
        task: work of a warp's task and longest piece, in arcs; None: chosen from the matrix.
        tile: most lanes per row of B, 1 to 32 and a power of two; wider matrices are processed in tiles of columns.
        tasks_per_block: tasks per block; more tasks reuse more data in L1, fewer balance better.
    """

    task: int | None = None
    tile: int = 32
    tasks_per_block: int = 64


#: Columns from which blocks are small; from which they are smallest; and, for matrices with at least the last number
#: of arcs per row, from which tiles are narrow. L1 keeps fewer rows of B the wider they are, and long rows refer to the
#: same rows often enough to justify reading the arcs once per tile. Measured on an H200.
WIDE, WIDEST, WIDE_LONG, LONG_ROW = 48, 96, 64, 200


def row_tuning(columns: int, mean_row: float) -> RowTuning:
    """Return the tuning for B's columns (of four bytes) and the matrix's mean number of arcs per row."""
    if columns >= WIDE_LONG and mean_row >= LONG_ROW:
        return RowTuning(tile=8, tasks_per_block=24)
    if columns >= WIDEST:
        return RowTuning(tasks_per_block=12)
    return RowTuning(tasks_per_block=24 if columns >= WIDE else RowTuning.tasks_per_block)


@dataclass(frozen=True)
class DeviceSchedule:
    """A ``RowSchedule`` in GPU memory, with derived values.

    Attributes:
        blocks: int32, first task of each thread block.
        slot_rows: int32 [slots], the row of each partial sum.
        splits: the rows that were cut, in host memory.
    """

    begin: cp.ndarray
    target: cp.ndarray
    tasks: cp.ndarray
    blocks: cp.ndarray
    split_rows: cp.ndarray
    split_first: cp.ndarray
    slots: int
    slot_rows: cp.ndarray
    splits: Splits


class DeviceSchedules:
    """The cuts of matrices; each lives as long as the indptr array that it was made from.

    Args:
        tuning: used for all matrices; None: ``row_tuning`` decides.
        processors: multiprocessors of the GPU.
    """

    def __init__(self, tuning: RowTuning | None, processors: int) -> None:
        self._tuning, self._processors = tuning, processors
        self._matrices: dict[int, _Matrix] = {}

    @property
    def tuned(self) -> bool:
        """Whether a tuning was given."""
        return self._tuning is not None

    def of(self, indptr: cp.ndarray, columns: int, accumulate: bool = False) -> tuple[RowTuning, DeviceSchedule]:
        """Return tuning and cut of a matrix's rows; the first call for an ``indptr`` and tuning waits for the GPU.

        Args:
            indptr: row pointers of the matrix, with at least one row.
            columns: columns of B.
            accumulate: the product is added to C, so rows without arcs are left out.
        """
        matrix, pointer = self._matrix(indptr), None
        if matrix.mean_row is None:
            pointer = cp.asnumpy(indptr)
            matrix.mean_row = int(pointer[-1] - pointer[0]) / (len(pointer) - 1)
        tuning = self._tuning or row_tuning(columns, matrix.mean_row)
        name = (tuning.task, tuning.tasks_per_block, accumulate)
        if name not in matrix.made:
            cut = row_schedule(cp.asnumpy(indptr) if pointer is None else pointer, tuning.task, empty=not accumulate)
            # At least four rounds of blocks, if there is enough work.
            most = min(tuning.tasks_per_block, max(12, len(cut.tasks) // (self._processors * 8)))
            slot_rows = np.repeat(cut.split_rows, np.diff(cut.split_first))
            up = cp.asarray
            matrix.made[name] = DeviceSchedule(
                up(cut.begin), up(cut.target), up(cut.tasks), up(cut.blocks(most)), up(cut.split_rows),
                up(cut.split_first), cut.slots, up(slot_rows), cut.splits,
            )  # fmt: skip
        return tuning, matrix.made[name]

    def bundles(self, indptr: cp.ndarray, groups: int, accumulate: bool) -> Bundles:
        """Return the order of work for short rows of B, with ``groups`` rows side by side in a warp; the first call
        for an ``indptr`` and ``groups`` waits for the GPU.
        """
        bundles, name = self._matrix(indptr).bundles, (groups, accumulate)
        if name not in bundles:
            bundles[name] = bundled(cp, indptr, groups, processors=self._processors, empty=not accumulate)
        return bundles[name]

    def _matrix(self, indptr: cp.ndarray) -> _Matrix:
        key = id(indptr)
        if key not in self._matrices:
            self._matrices[key] = _Matrix(weakref.ref(indptr, lambda _: self._matrices.pop(key, None)))
        return self._matrices[key]


@dataclass
class _Matrix:
    """Cached cuts of a matrix."""

    indptr: Any
    mean_row: float | None = None
    made: dict[tuple[int | None, int, bool], DeviceSchedule] = field(default_factory=dict)
    bundles: dict[tuple[int, bool], Bundles] = field(default_factory=dict)
