"""The operators on a GPU: CuPy arrays and the kernels of kernels/aggregate, all on CuPy's current stream.

Matrices are row-major and float32, or bfloat16 (uint16) where an operator allows it; sums are float32. Rows may be
padded (a slice ``[:, :D]`` of a wider matrix). If the base and row stride of B are multiples of 16 bytes, the kernels
load 16 bytes at once, including padding. C may begin anywhere and have any stride; its padding is not written. Nothing
here waits for the GPU, except that the first product with a matrix copies its indptr to the host.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import cupy as cp
import numpy as np

from mgg.errors import InputError
from mgg.kernel.cola import ColumnSchedule
from mgg.kernel.column_tiles import WARP, column_tiles, mgg_tiles
from mgg.kernel.compile import Build, build_of, cubin
from mgg.kernel.cuda.arguments import (
    index_bits,
    kernel_name,
    pointer_to,
    row_stride,
    row_tiles,
    vector_width,
)
from mgg.kernel.cuda.dependent_launch import DEPENDENTS, Launch, urgent_stream
from mgg.kernel.cuda.schedule import DeviceSchedule, DeviceSchedules, RowTuning
from mgg.kernel.cuda.vectorized_elementwise import ByFours
from mgg.kernel.groups import Groups, GroupSetting, shared_bytes, tiling
from mgg.kernel.halo import HaloPeers, HaloSchedule
from mgg.kernel.narrow_row_schedule import Bundles, lanes_of
from mgg.kernel.random import STREAMS, Draws, device_base
from mgg.kernel.requests import FetchRequests
from mgg.layout.neighbor_partitions import NeighborPartitions

#: Arcs per warp in the column-wise kernel: kSegment in kernels/aggregate/columns.cu.
_SEGMENT = 128
#: Parameters of wire.cu: rows per block, with eight lanes for each row; columns that a lane may load at once.
_TEAMS, _TOGETHER = 32, 4


_WRITE = ByFours("mgg_write", "x", "", "x")
_ROUND = ByFours(
    "mgg_round", "x", "", "mgg_rounded(x)",
    """
    __device__ inline unsigned short mgg_rounded(float x) {
        const unsigned bits = __float_as_uint(x);
        return isnan(x) ? 0x7fc0 : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    }
    """,
    "uint16",
)  # fmt: skip
_WIDEN = cp.ElementwiseKernel(
    "uint16 x", "float32 y", "y = __uint_as_float(static_cast<unsigned>(x) << 16)", "mgg_widen_bf16"
)


class CudaOperators:
    """The operators (``mgg.kernel.operators.Operators``) and fused kernels of the current device."""

    def __init__(self, tuning: RowTuning | None = None, nvshmem_ready: Callable[[Any], None] | None = None):
        """Create operators for the current device.

        Args:
            tuning: launch parameters of the row-wise kernel, used for all rows of B. None: ``row_tuning`` decides, and
                short rows use a separate kernel (``narrow_rows.cu``).
            nvshmem_ready: called once, before the first launch, with every ``cupy.RawModule`` that links NVSHMEM; the
                backend initializes NVSHMEM in it.

        Raises:
            MachineError: later, at the first use of a kernel that cannot be compiled.
        """
        device = cp.cuda.Device()
        self.arch = f"sm_{device.compute_capability}"
        #: Whether a launch can depend on the blocks of the previous one, see ``dependent_launch.Packed``.
        self.dependents = int(device.compute_capability) >= DEPENDENTS
        self.processors = device.attributes["MultiProcessorCount"]
        self.shared_memory = device.attributes["MaxSharedMemoryPerBlockOptin"]
        #: Most threads and 32-bit registers per block.
        self.threads, self.registers = (device.attributes[f"Max{each}PerBlock"] for each in ("Threads", "Registers"))
        self._all_shared_memory = device.attributes["MaxSharedMemoryPerMultiprocessor"]
        self._nvshmem_ready = nvshmem_ready
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}
        self._schedules = DeviceSchedules(tuning, self.processors)

    # --- the operator interface

    def gather_rows(self, source: cp.ndarray, rows: cp.ndarray, out: cp.ndarray) -> None:
        """See the interface; ``source`` may be a peer's memory, and ``rows`` integers of any type.

        Raises:
            ValueError: ``out`` has another type than ``source``.
        """
        if source.dtype != out.dtype:
            raise ValueError(f"rows of {source.dtype} are copied as they are, not to {out.dtype}")
        self._move("gather_rows", source, rows, out)

    def add_rows(self, source: cp.ndarray, rows: cp.ndarray, out: cp.ndarray) -> None:
        """See the interface; ``rows`` are integers of any type."""
        self._move("add_rows", source, rows, out)

    def _move(self, name: str, source: cp.ndarray, rows: cp.ndarray, out: cp.ndarray) -> None:
        count, columns = len(rows), out.shape[1]
        if not count or not columns:
            return
        if rows.dtype not in (np.int32, np.int64):
            rows = rows.astype(np.int64)
        build, vector = build_of("gather", index_bits(rows), bf16=source.dtype == np.uint16), vector_width(source, out)
        for lanes, first, tiles in column_tiles(columns, vector):
            kernel = self.kernel(build, f"{name}_{lanes}_{vector}")
            needed = -(-count // (16 * 4 * (32 // lanes)))
            kernel(
                (min(needed, self.processors * 4), tiles), (512,),
                (
                    source, row_stride(source), rows, np.int64(count), out, row_stride(out), np.int32(first),
                    np.int32(columns),
                ),
            )  # fmt: skip

    def pack_rows(
        self, source: cp.ndarray, rows: cp.ndarray, ids: cp.ndarray, draws: Draws, bits: int, out: cp.ndarray
    ) -> None:
        """See the interface; the epoch is read at each launch, so the same launch may find another one later."""
        if rows.dtype not in (np.int32, np.int64):
            rows = rows.astype(np.int64)
        arguments = (
            source, row_stride(source), rows, ids, np.int64(len(out)), np.int32(source.shape[1]),
            np.int32(out.shape[1]), out, np.int64(device_base(draws.seed)), draws.epoch, np.int64(STREAMS),
            np.int64(draws.place), np.int32(vector_width(source) >= _TOGETHER),
        )  # fmt: skip
        self._wire(f"wire_pack_{bits}", source, index_bits(rows), len(out), arguments)

    def unpack_rows(self, packed: cp.ndarray, bits: int, out: cp.ndarray) -> None:
        """See the interface; the ``packed`` rows are contiguous."""
        arguments = (
            packed, np.int64(len(out)), np.int32(out.shape[1]), np.int32(packed.shape[1]), out, row_stride(out),
            np.int32(vector_width(out) >= _TOGETHER),
        )  # fmt: skip
        self._wire(f"wire_unpack_{bits}", out, 32, len(out), arguments)

    def _wire(self, name: str, matrix: cp.ndarray, bits: int, rows: int, arguments: tuple[Any, ...]) -> None:
        kernel = self.kernel(build_of("wire", bits, bf16=matrix.dtype == np.uint16), name)
        if rows:
            kernel((min(-(-rows // _TEAMS), self.processors * 8),), (_TEAMS * 8,), arguments)

    def spmm_rows(
        self, indptr: cp.ndarray, indices: cp.ndarray, weights: cp.ndarray | None, b: cp.ndarray, c: cp.ndarray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Row-wise SpMM with reproducible bits: ``c[r] (=|+=) sum_k weights[k] * b[indices[k]]``.

        ``indptr`` must not change, because the cut of its rows is cached.
        """
        columns, rows = c.shape[1], len(indptr) - 1
        if not rows or not columns:
            return
        if not self._schedules.tuned and (lanes := lanes_of(columns, vector_width(b))):
            self.spmm_narrow(indptr, indices, weights, b, c, accumulate, lanes)
        else:
            self.spmm_pieces(indptr, indices, weights, b, c, accumulate)

    def spmm_pieces(
        self, indptr: cp.ndarray, indices: cp.ndarray, weights: cp.ndarray | None, b: cp.ndarray, c: cp.ndarray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Run ``spmm_rows`` with the kernel for rows of B of any length, whose core technique ``halo`` shares."""
        columns, vector = c.shape[1], vector_width(b)
        # The width of a row in memory counts.
        tuning, schedule = self.schedule(indptr, -(-columns * b.itemsize // 4), accumulate)
        if not len(schedule.tasks):
            return
        partial = cp.empty((schedule.slots, -(-columns // 8) * 8), np.float32)
        build = build_of("rows", index_bits(indices), bf16=b.dtype == np.uint16)
        for lanes, first, tiles in row_tiles(columns, vector, tuning.tile):
            kernel = self.kernel(build, kernel_name("spmm_rows", lanes, vector, weights))
            kernel(
                (len(schedule.blocks) - 1, tiles), (kernel.max_threads_per_block,),
                (
                    schedule.tasks, schedule.blocks, schedule.begin, schedule.target,
                    indices, pointer_to(weights), b, row_stride(b), c, row_stride(c), partial, row_stride(partial),
                    np.int32(first), np.int32(columns), np.int32(accumulate),
                ),
            )  # fmt: skip
        self._combine(schedule, partial, c, accumulate)

    def spmm_narrow(
        self, indptr: cp.ndarray, indices: cp.ndarray, weights: cp.ndarray | None, b: cp.ndarray, c: cp.ndarray,
        accumulate: bool, lanes: int,
    ) -> None:  # fmt: skip
        """Run ``spmm_rows`` with ``lanes`` lanes per row of B, 1, 2, 4 or 8: a warp has rows of similar length."""
        columns, vector = c.shape[1], vector_width(b)
        bundles = self._schedules.bundles(indptr, WARP // lanes, accumulate)
        if not len(bundles.tasks):
            return
        partial = cp.empty((bundles.slots, -(-columns // 8) * 8), np.float32)
        build = build_of("narrow_rows", index_bits(indices), bf16=b.dtype == np.uint16)
        kernel = self.kernel(build, kernel_name("spmm_narrow", lanes, vector, weights))
        tiles = -(-columns // (lanes * vector))
        kernel(
            ((len(bundles.blocks) - 1) * tiles,), (kernel.max_threads_per_block,),
            (
                bundles.tasks, bundles.blocks, bundles.begin, bundles.pieces, indices, pointer_to(weights),
                b, row_stride(b), c, row_stride(c), partial, row_stride(partial), np.int32(columns), np.int32(tiles),
                np.int32(accumulate),
            ),
        )  # fmt: skip
        self._combine(bundles, partial, c, accumulate)

    def _combine(
        self, schedule: DeviceSchedule | Bundles, partial: cp.ndarray, c: cp.ndarray, accumulate: bool
    ) -> None:
        """Combine the parts of the rows of ``c`` that were cut."""
        if schedule.slots:
            kernel, grid, block, arguments = self.combining(
                schedule.split_rows, schedule.split_first, partial, c, accumulate
            )
            kernel(grid, block, arguments)

    def combining(
        self, split_rows: cp.ndarray, split_first: cp.ndarray, partial: cp.ndarray, c: cp.ndarray, accumulate: bool
    ) -> Launch:
        """Return the launch of ``c[split_rows[i]] (=|+=)`` sum of rows ``split_first[i] .. split_first[i + 1]`` of
        ``partial``.

        The launch contains only the address of ``c``. There must be at least one row to split.
        """
        split, columns, vector = len(split_rows), c.shape[1], vector_width(c, partial)
        kernel = self.kernel(build_of("rows", 32), f"spmm_rows_combine_{vector}")
        arguments = (
            split_rows, split_first, np.int32(split), partial, row_stride(partial), np.uintp(c.data.ptr), row_stride(c),
            np.int32(columns), np.int32(accumulate),
        )  # fmt: skip
        return kernel, (-(-split // 8), -(-columns // (32 * vector))), (256,), arguments

    def accumulator(self, rows: int, columns: int) -> cp.ndarray:
        """Return float32 [rows, columns], uninitialized."""
        return cp.empty((rows, columns), np.float32)

    def spmm_partitions(
        self, rows: cp.ndarray, starts: cp.ndarray, stops: cp.ndarray, indices: cp.ndarray,
        weights: cp.ndarray | None, b: cp.ndarray, acc: cp.ndarray,
    ) -> None:  # fmt: skip
        """Add each neighbor partition's sum (int64 rows, starts, stops) to ``acc`` with atomics, one warp each."""
        if len(rows):
            self._add(
                "partitions", -(-len(rows) // 8), (rows, starts, stops, np.int64(len(rows))), indices, weights, b, acc
            )

    def spmm_columns(
        self, colptr: cp.ndarray, rows: cp.ndarray, weights: cp.ndarray | None, b: cp.ndarray, acc: cp.ndarray
    ) -> None:
        """Column-wise SpMM with atomics: ``acc[rows[k]] += weights[k] * b[j]``; ``rows[0]`` is arc ``colptr[0]``."""
        if len(rows):
            blocks = -(-len(rows) // (8 * _SEGMENT))
            self._add("columns", blocks, (colptr, np.int64(len(colptr) - 1)), rows, weights, b, acc)

    def _add(
        self, name: str, blocks: int, cut: tuple[Any, ...], ids: cp.ndarray, weights: cp.ndarray | None, b: cp.ndarray,
        acc: cp.ndarray,
    ) -> None:  # fmt: skip
        """Launch ``spmm_NAME``, which adds to ``acc`` with atomics; ``cut``: how the arcs are dealt to warps."""
        columns, vector, build = acc.shape[1], vector_width(b), build_of(name, index_bits(ids))
        for lanes, first, tiles in column_tiles(columns, vector):
            kernel = self.kernel(build, kernel_name(f"spmm_{name}", lanes, vector, weights))
            kernel(
                (blocks, tiles), (256,),
                (
                    *cut, ids, pointer_to(weights), b, row_stride(b), acc, row_stride(acc), np.int32(first),
                    np.int32(columns),
                ),
            )  # fmt: skip

    def write(self, values: cp.ndarray, out: cp.ndarray) -> None:
        """Write float32 ``values`` to ``out``, float32 or bfloat16 (uint16), of the same shape."""
        (_ROUND if out.dtype == np.uint16 else _WRITE)(values, out=out)

    def widen_bf16(self, values: cp.ndarray, out: cp.ndarray) -> None:
        """Write bfloat16 ``values`` (uint16) to float32 ``out`` of the same shape."""
        _WIDEN(values, out)

    def finish(self, acc: cp.ndarray, c: cp.ndarray) -> None:
        """Copy ``acc`` to ``c`` unless they are the same array."""
        if acc is not c and acc.data.ptr != c.data.ptr:
            c[...] = acc

    # --- the fused kernel

    def mgg(
        self, local: NeighborPartitions, indices: cp.ndarray, local_weights: cp.ndarray | None,
        remote: NeighborPartitions, sources: cp.ndarray, remote_weights: cp.ndarray | None,
        own: cp.ndarray, peers: cp.ndarray, out: cp.ndarray, *,
        ps: int | None, dist: int, wpb: int, interleave: bool = True, asynchronous: bool = True,
        primitive: str = "direct", batch: int | None = None, requests: FetchRequests | None = None,
    ) -> None:  # fmt: skip
        """Compute ``out = local B + remote B`` in one launch (MGG 5), after zeroing ``out``; sums by atomics.

        Args:
            local, remote: neighbor partitions in row order, int64 CuPy arrays; rows of ``out``.
            indices: int32 or int64 [local arcs], rows of ``own``.
            local_weights, remote_weights: float32, one per arc, or None; both or neither.
            sources: uint64 [remote arcs], from ``schedule.remote_sources``.
            own: float32 [*, D], this PE's copy of the symmetric input; all copies have its stride, or D if it is empty.
            peers: uint64 [P], addresses of all copies, 16-byte aligned; used only by ``direct``.
            out: float32 [rows, D].
            ps: most arcs of a remote partition; None: whole rows.
            dist: most partitions of each kind per warp, 1..32.
            wpb: warps per block, 1..16.
            interleave: give every warp local and remote partitions; otherwise each warp has one kind.
            asynchronous: fetch a remote partition while the local one is summed; otherwise afterwards.
            primitive: ``direct`` (peer pointers), or ``warp``, ``thread``, ``block`` (NVSHMEM gets).
            batch: most remote rows in flight per warp; None: as many as its share of shared memory holds.
            requests: merged requests of each block, only for ``direct``; None: each arc requests its own row.

        Raises:
            ValueError: an argument is out of range.
            InputError: a block needs more shared memory than the GPU has (MGG 6, equation 1; with the kernel's tile of
                columns instead of D, and a warp's rows in flight instead of one).
            MachineError: NVSHMEM or nvcc is missing.
        """
        if not (1 <= dist <= 32 and 1 <= wpb <= 16):
            raise ValueError(f"dist {dist} must be in 1..32, wpb {wpb} in 1..16")
        out.fill(0)
        columns, locals_, remotes = out.shape[1], len(local.rows), len(remote.rows)
        warps = -(-max(locals_, remotes) // dist) if interleave else -(-locals_ // dist) + -(-remotes // dist)
        if not columns:
            return
        # Check by values that all PEs share, also on PEs without arcs, so that none waits at a barrier alone.
        vector = vector_width(own)
        needed = mgg_tiles(columns, vector, ps, wpb, batch)
        if (most := max(each.shared for each in needed)) > self.shared_memory:
            raise InputError(
                f"MGG's kernel: ps = {ps}, wpb = {wpb}, D = {columns} take {most} bytes of shared memory a block"
                f" (equation 1), this GPU has {self.shared_memory}: lower wpb"
            ).on_every_pe()
        if not warps:
            return
        weights = remote_weights if local_weights is None else local_weights
        build = build_of("mgg", index_bits(indices), primitive, merge=requests is not None)
        for lanes, first, tiles, stage, shared in needed:
            kernel = self.kernel(build, kernel_name("mgg", lanes, vector, weights))
            if shared > 48 * 1024:
                kernel.max_dynamic_shared_size_bytes = shared
            kernel(
                (-(-warps // wpb), tiles), (32 * wpb,),
                (
                    local.rows, local.starts, local.stops, np.int64(locals_), indices, pointer_to(local_weights),
                    remote.rows, remote.starts, remote.stops, np.int64(remotes), sources, pointer_to(remote_weights),
                    *(requests.arguments if requests else (np.uint64(0),) * 3),
                    own, peers, row_stride(own), out, row_stride(out), np.int32(first), np.int32(columns),
                    np.int32(dist), np.int32(interleave), np.int32(asynchronous), np.int32(stage),
                ),
                shared_mem=shared,
            )  # fmt: skip

    # --- technique gnnadvisor

    def gnnadvisor(
        self, groups: Groups, indices: cp.ndarray, weights: cp.ndarray | None, b: cp.ndarray, out: cp.ndarray,
        setting: GroupSetting,
    ) -> None:  # fmt: skip
        """Compute ``out = A b`` by neighbor groups (GNNAdvisor 4, 5.2), after zeroing ``out``.

        Args:
            groups: groups of A under ``setting``, with arrays on the device.
            indices: int32 or int64 [arcs], rows of ``b``.
            weights: float32 [arcs] or None.
            b: float32 [*, D].
            out: float32 [rows, D].
        """
        out.fill(0)
        columns, counts = out.shape[1], groups.counts
        if not counts.groups or not columns:
            return
        floats, tile, tiles = tiling(columns, vector_width(b), setting)
        slots = counts.slots if setting.ordered else 0
        partial = cp.empty((slots, -(-columns // 8) * 8), np.float32)
        name = f"gnnadvisor_{floats}" + ("" if weights is None else "_weighted")
        kernel = self.kernel(build_of("gnnadvisor", index_bits(indices)), name)
        kernel(
            (-(-counts.groups // setting.a_block), tiles), (setting.tpb,),
            (
                groups.targets, groups.to, groups.starts, np.int64(counts.groups), indices, pointer_to(weights), b,
                row_stride(b), out, row_stride(out), partial, row_stride(partial), np.int32(setting.dw),
                np.int32(setting.lanes), np.int32(tile), np.int32(columns), np.int32(setting.leader),
                np.int32(not setting.ordered),
            ),
            shared_mem=shared_bytes(tile, setting),
        )  # fmt: skip
        if slots:
            combine, shape, block, arguments = self.combining(
                groups.split_rows, groups.split_first, partial, out, False
            )
            combine(shape, block, arguments)

    # --- technique halo

    def halo_kernel(
        self, schedule: HaloSchedule, sources: np.ndarray, halo_first: int, rows: int, peers: HaloPeers
    ) -> Callable[[cp.ndarray, cp.ndarray], None]:
        """Return a product that pulls its halo during the launch, see ``mgg.kernel.cuda.halo.HaloKernel``."""
        from mgg.kernel.cuda.halo import HaloKernel

        return HaloKernel(self, schedule, sources, halo_first, rows, peers)

    @cached_property
    def urgent(self) -> Any:
        """The stream for launches that other work waits for."""
        return urgent_stream()

    def carveout(self, size: int) -> int:
        """Return the percentage of a multiprocessor's L1 to use as shared memory, so that it has ``size`` bytes."""
        # The sizes are 8, 16, 32, 64, ... KiB; a percentage that is rounded up may select the next size.
        steps = (size_of << 10 for size_of in (8, 16, 32, 64, 100))
        wanted = next((step for step in steps if step >= size), self._all_shared_memory)
        return 100 * wanted // self._all_shared_memory

    # --- technique cola

    def cola_kernel(self, schedule: ColumnSchedule, holders: cp.ndarray) -> Callable[[cp.ndarray, cp.ndarray], None]:
        """Return the product of columns with remote rows, see ``mgg.kernel.cuda.cola.ColaKernel``."""
        from mgg.kernel.cuda.cola import ColaKernel

        return ColaKernel(self, schedule, holders)

    # --- shared by the kernels

    def schedule(self, indptr: cp.ndarray, columns: int, accumulate: bool = False) -> tuple[RowTuning, DeviceSchedule]:
        """Return tuning and cut of a matrix's rows: see ``mgg.kernel.cuda.schedule.DeviceSchedules``."""
        return self._schedules.of(indptr, columns, accumulate)

    def kernel(self, build: Build, name: str) -> Any:
        """Return the kernel ``name`` of a cubin, which is compiled at its first use."""
        key = f"{build.source} {sorted(build.defines.items())}"
        if (key, name) not in self._kernels:
            if key not in self._modules:
                module = cp.RawModule(path=str(cubin(build.path, self.arch, build.defines, build.nvshmem)))
                if build.nvshmem and self._nvshmem_ready is not None:
                    self._nvshmem_ready(module)
                self._modules[key] = module
            self._kernels[key, name] = self._modules[key].get_function(name)
        return self._kernels[key, name]
