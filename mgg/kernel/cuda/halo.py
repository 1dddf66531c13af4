"""Launch kernels/aggregate/pull.cu and halo.cu concurrently: one PE's product, which pulls its halo meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from mgg.kernel.compile import Build, build_of
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda.arguments import (
    even_lanes,
    index_bits,
    kernel_name,
    pointer_to,
    row_stride,
    row_tiles,
    vector_width,
)
from mgg.kernel.cuda.dependent_launch import Fork, Launch, PackedLaunch
from mgg.kernel.cuda.schedule import row_tuning
from mgg.kernel.halo import HaloPeers, HaloSchedule
from mgg.kernel.prepared_launches import Prepared

PARTS = ("all", "transfer", "compute")


@dataclass(frozen=True)
class HaloTuning:
    """How the halo is pulled; it changes no bit of the result.

    Attributes:
        blocks: pulling blocks per multiprocessor; one fits next to the blocks that sum.
        loads: steps of a row that a warp has in flight at once (MGG_PULL_LOADS of pull.cu).
        chunks: number of parts of the halo; late work waits for whole parts.
    """

    blocks: int = 1
    loads: int = 8
    chunks: int = 32


TUNING = HaloTuning()
#: kThreads of pull.cu; halo rows that justify a block; a chunk is a multiple of the third number.
_THREADS, _ROWS, _GRAIN = 64, 16, 32
#: Fewest lanes per row of the pull, if more would leave lanes idle.
_PULL_LANES = 8
#: Bytes of a block's shared memory besides loads in flight: CUDA's 1 KiB and a few variables; number of sum blocks.
_OTHERS, _SUMS = 1024 + 128, 2


class HaloKernel:
    """One product, ready to launch.

    A process may run only one at a time: the sums of another, on another stream, could occupy the blocks' places that
    this pull needs.

    Args:
        schedule: the order of work.
        sources: uint64 [halo], PE << 48 | row there of each halo row, in the schedule's order.
        halo_first: row of the matrix where the halo begins.
        rows: rows of C.

    Attributes:
        weights: float32 [arcs] in the order of the schedule, read by each product; None: all are 1.
    """

    def __init__(
        self, operators: CudaOperators, schedule: HaloSchedule, sources: np.ndarray, halo_first: int, rows: int,
        peers: HaloPeers,
    ) -> None:  # fmt: skip
        self._operators, self._schedule, self._peers = operators, schedule, peers
        self._halo_first, self._rows = halo_first, rows
        self._sources = cp.asarray(sources)
        self._indices = cp.asarray(schedule.indices)
        self.weights = None if schedule.weights is None else cp.asarray(schedule.weights)
        self._begin, self._target = cp.asarray(schedule.begin), cp.asarray(schedule.target)
        self._tasks = cp.asarray(schedule.tasks)
        self._split_rows, self._split_first = cp.asarray(schedule.split_rows), cp.asarray(schedule.split_first)
        self._tuning = TUNING
        self._chunk = -(-max(1, -(-len(sources) // self._tuning.chunks)) // _GRAIN) * _GRAIN
        self._pulled = cp.zeros(-(-len(sources) // self._chunk) + 2, np.int32)
        self._numbers = cp.zeros(2, np.uint32)  # counts of finished pulls and of started products
        self._dealt: dict[int, tuple[cp.ndarray, int, cp.ndarray]] = {}
        # Flags must be awaited and set even if nothing is pulled.
        blocks = min(self._tuning.blocks * operators.processors, -(-len(sources) // _ROWS))
        self.blocks = max(blocks, int(peers.flags is not None and peers.size > 1))
        self._partial: cp.ndarray | None = None
        self._prepared: Prepared[Fork] = Prepared()

    def __call__(self, b: cp.ndarray, out: cp.ndarray, *, accumulate: bool = False, part: str = "all") -> None:
        """Set ``out`` to the product of ``b``, and fill the halo rows of ``b`` meanwhile.

        Args:
            b: float32 or bfloat16 (uint16) [halo_first + halo, D], D at least 1; always the same memory.
            out: float32 [rows, D].
            accumulate: add to ``out`` instead.
            part: ``transfer``: only fill the halo; ``compute``: only compute, with the present halo. For timing.
        """
        key = (b.data.ptr, b.shape[1], b.itemsize, out.data.ptr, out.strides[0], accumulate, PARTS.index(part))
        fork = self._prepared.of(key, lambda: self._prepare(b, out, accumulate, part))
        fork.submit(self._operators.urgent)

    def _prepare(self, b: cp.ndarray, out: cp.ndarray, accumulate: bool, part: str) -> Fork:
        """Return the launches of a product; they contain only addresses of ``b`` and ``out``, not the arrays."""
        columns = out.shape[1]
        tuning = row_tuning(-(-columns * b.itemsize // 4), len(self._indices) / max(self._rows, 1))
        vector = vector_width(b)
        pulls = [self._pulling(b, columns, vector)] if part != "compute" and self.blocks else []
        if part == "transfer":
            return Fork([], self._ready(pulls), [])
        parts, combined = self._partial_sums(columns), []
        if len(self._split_rows):
            combined.append(self._operators.combining(self._split_rows, self._split_first, parts, out, accumulate))
        blocks, early, needs = self._deal(tuning.tasks_per_block)
        late = len(blocks) - 1 - early
        build = build_of("halo", index_bits(self._indices), bf16=b.dtype == np.uint16)
        # Only the first launch waits for rows: launches for the remaining columns follow when all rows have arrived.
        tiles, *others = row_tiles(columns, vector, tuning.tile)

        def sums(tiles: tuple[int, int, int], first: int, early: int, late: int, warps: int) -> list[Launch]:
            lanes, column, count = tiles
            kernel = self._kernel(build, kernel_name("spmm_halo", lanes, vector, self.weights))
            arguments = (
                self._tasks, self._begin, self._target, self._indices, pointer_to(self.weights),
                blocks[first:], needs, np.int32(early), np.int32(late),
                self._pulled, np.int32(warps), self._numbers[1:], np.uintp(b.data.ptr), row_stride(b),
                np.uintp(out.data.ptr), row_stride(out), parts, row_stride(parts), np.int32(column), np.int32(columns),
                np.int32(count), np.int32(accumulate),
            )  # fmt: skip
            grid = (early + late) * count
            return [(kernel, (grid,), (kernel.max_threads_per_block,), arguments)] if grid else []

        last = [launch for each in others for launch in sums(each, 0, early, late, 0)] + combined
        if pulls and not self._operators.dependents:
            # Work that waits for rows must follow the pull, because it could occupy the places of the pulling blocks.
            then = [*sums(tiles, early, 0, late, 0), *last]
            return Fork(self._ready(pulls), self._ready(sums(tiles, 0, early, 0, 0)), self._ready(then))
        beside = self._ready(sums(tiles, 0, early, late, self.warps if pulls else 0), early=bool(pulls))
        return Fork([], [*self._ready(pulls), *beside], self._ready(last))

    def _ready(self, launches: Sequence[Launch], *, early: bool = False) -> list[Callable[[], None]]:
        """Prepare each launch; ``early``: it starts with the blocks of the previous one, on GPUs that support it."""
        if self._operators.dependents:
            return [PackedLaunch(launch, early=early) for launch in launches]
        return [partial(kernel, grid, block, arguments) for kernel, grid, block, arguments in launches]

    @property
    def warps(self) -> int:
        """Number of pulling warps, by which a product raises each counter of arrived rows."""
        return self.blocks * _THREADS // 32

    def _pulling(self, b: cp.ndarray, columns: int, vector: int) -> Launch:
        """Return the launch that pulls the halo."""
        peers, pulled, numbers = self._peers, self._pulled, self._numbers
        lanes = even_lanes(-(-columns // vector), _PULL_LANES)
        build = build_of("pull", 32, bf16=b.dtype == np.uint16)
        if self._tuning.loads != HaloTuning.loads:
            build = replace(build, defines={**build.defines, "MGG_PULL_LOADS": self._tuning.loads})
        size = np.int32(0 if peers.flags is None else peers.size)
        arguments = (
            self._sources, np.int32(len(self._sources)), np.int32(self._chunk), pulled, peers.rows,
            pointer_to(peers.flags), np.int32(peers.rank), size, numbers,
            np.uintp(b.data.ptr), row_stride(b), np.int64(self._halo_first), np.int32(columns),
        )  # fmt: skip
        return self._kernel(build, f"halo_pull_{lanes}_{vector}"), (self.blocks,), (_THREADS,), arguments

    def _kernel(self, build: Build, name: str) -> Any:
        """Return one of the two concurrent kernels; different shared memory carveouts would serialize them."""
        kernel = self._operators.kernel(build, name)
        pulling = self._tuning.blocks * (_THREADS * 16 * self._tuning.loads + _OTHERS)
        kernel.preferred_shared_memory_carveout = self._operators.carveout(pulling + _SUMS * _OTHERS)
        return kernel

    def _partial_sums(self, columns: int) -> cp.ndarray:
        """Return float32 [slots, D] with rows of whole vectors, in the same memory for all widths."""
        width = -(-columns // 8) * 8
        elements = self._schedule.slots * width
        if self._partial is None or self._partial.size < elements:
            self._prepared.clear()
            self._partial = cp.empty(elements, np.float32)
        return self._partial[:elements].reshape(self._schedule.slots, width)

    def _deal(self, most: int) -> tuple[cp.ndarray, int, cp.ndarray]:
        if most not in self._dealt:
            tasks = len(self._schedule.tasks)
            starts, early, reach = self._schedule.blocks(min(most, max(12, tasks // (self._operators.processors * 8))))
            needs = -(-reach // self._chunk) - 1
            self._dealt[most] = cp.asarray(starts), early, cp.asarray(needs.astype(np.int32))
        return self._dealt[most]
