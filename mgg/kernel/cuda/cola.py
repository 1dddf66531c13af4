"""Launch kernels/aggregate/cola.cu: columns with rows on other PEs, where each row is fetched once."""

from __future__ import annotations

import cupy as cp
import numpy as np

from mgg.kernel.cola import ColumnSchedule
from mgg.kernel.column_tiles import column_tiles
from mgg.kernel.compile import build_of
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda.arguments import index_bits, kernel_name, pointer_to, row_stride, vector_width
from mgg.kernel.cuda.dependent_launch import Launch
from mgg.kernel.pitch import row_pitch
from mgg.kernel.prepared_launches import Prepared

#: Warps per block: MGG_COLA_WARPS in kernels/aggregate/cola.cu.
WARPS = 4
#: Hub rows that a group of lanes copies at once.
COPIED = 4


class ColaKernel:
    """The column-wise product of some columns, ready to launch.

    Args:
        schedule: the columns in the order of work.
        holders: uint64 [holders] on the device, addresses of the matrices with the rows; 16-byte aligned.
    """

    def __init__(self, operators: CudaOperators, schedule: ColumnSchedule, holders: cp.ndarray) -> None:
        self._operators, self._holders = operators, holders
        self._begin, self._rows = cp.asarray(schedule.begin), cp.asarray(schedule.rows)
        self._weights = None if schedule.weights is None else cp.asarray(schedule.weights)
        self._sources, self._tasks = cp.asarray(schedule.sources), cp.asarray(schedule.tasks)
        # Keep only numbers of the schedule itself: its arrays in host memory are as long as the arcs.
        self._light, self._hub_count = schedule.light, schedule.hubs
        self._hub_arcs = slice(int(schedule.begin[schedule.light]), len(schedule.rows))
        self._hubs: cp.ndarray | None = None
        self._prepared: Prepared[list[Launch]] = Prepared()

    def __call__(self, held: cp.ndarray, acc: cp.ndarray) -> None:
        """Compute ``acc[rows[k]] += weights[k] * b[j]`` with atomics for all arcs k of column j; b[j] is at a holder.

        Args:
            held: float32 [*, D], this PE's copy of the symmetric matrix of the holders; all copies have its stride, or
                D if it is empty.
            acc: float32 [rows, D].
        """
        if not len(self._sources) or not acc.shape[1]:
            return
        key = (held.data.ptr, int(row_stride(held)), acc.data.ptr, int(row_stride(acc)), acc.shape[1])
        launches = self._prepared.of(key, lambda: self._prepare(held, acc, self._room(acc.shape[1])))
        for kernel, grid, block, arguments in launches:
            kernel(grid, block, arguments)
        if self._hub_count:
            arcs, hubs = self._hub_arcs, self._room(acc.shape[1])
            weights = None if self._weights is None else self._weights[arcs]
            self._operators.spmm_columns(self._begin[self._light :], self._rows[arcs], weights, hubs, acc)

    def _prepare(self, held: cp.ndarray, acc: cp.ndarray, hubs: cp.ndarray) -> list[Launch]:
        """Return the launches of a product; they contain only addresses of ``held`` and ``acc``, not the arrays."""
        columns = acc.shape[1]
        vector = vector_width(held, hubs) if self._hub_count else vector_width(held)
        found: list[Launch] = []
        for lanes, first, tiles in column_tiles(columns, vector):
            kernel = self._operators.kernel(
                build_of("cola", index_bits(self._rows)), kernel_name("spmm_cola", lanes, vector, self._weights)
            )
            needed = -(-self._hub_count // (WARPS * COPIED * (32 // lanes)))
            hub_blocks = min(needed, self._operators.processors * 4)
            arguments = (
                self._tasks, np.int32(len(self._tasks)), self._begin, self._sources, self._rows,
                pointer_to(self._weights), self._holders, row_stride(held), np.uintp(acc.data.ptr), row_stride(acc),
                np.int32(hub_blocks), np.int32(self._light), np.int32(self._hub_count), hubs, row_stride(hubs),
                np.int32(first), np.int32(columns),
            )  # fmt: skip
            blocks = hub_blocks + -(-len(self._tasks) // WARPS)
            found.append((kernel, (blocks, tiles), (32 * WARPS,), arguments))
        return found

    def _room(self, columns: int) -> cp.ndarray:
        """Return float32 [hubs, D] with padded rows, in the same memory for all widths."""
        pitch = row_pitch(columns, 4)
        elements = self._hub_count * pitch
        if self._hubs is None or self._hubs.size < elements:
            self._prepared.clear()
            self._hubs = cp.empty(elements, np.float32)
        return self._hubs[:elements].reshape(self._hub_count, pitch)[:, :columns]
