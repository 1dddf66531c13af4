"""Launches kernels/model/attention.cu and signed_rows.cu: softmax over each row's arcs, weighted sums, inner products.

Arcs come as lists, ``ptr`` int64 [n + 1] and ``ends`` int32 or int64 [arcs], by target or by source; matrices are
contiguous float32. A list must not change: how it is cut is kept with its ``ptr``. Nothing here waits for the GPU,
except that the first use of a list copies its ``ptr`` to the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgg.kernel.compile import build_of
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda_arguments import NULL, index_bits, row_stride, vector_width
from mgg.kernel.cuda_schedule import DeviceSchedule
from mgg.kernel.pitch import row_pitch
from mgg.kernel.tiles import column_tiles

#: Threads a block.
THREADS = 256
#: Arcs a row from which rows are copied to where they can be loaded 16 bytes at once: copies move a row two to four
#: times. With them the sums took 21 and 28 % less at 46 and 459 arcs a row; fewer were not measured.
COPIED = 16
#: Numbers of a mean row up to which 8 lanes take a row: 32 would mostly be idle.
SHORT = 64
#: Most lanes that take the columns of a product: more would only add what they found more often.
PRODUCT_LANES = 8


class Masks(NamedTuple):
    """Dropout of arcs, as the kernels take it.

    Attributes:
        ids: int64, of the nodes at both ends.
        epoch: float64 [1].
        base: ``mgg.kernel.random.device_base``.
        streams, place: the stream is ``epoch * streams + place``.
        rate: the share that becomes 0.
    """

    ids: cp.ndarray
    epoch: cp.ndarray
    base: int
    streams: int
    place: int
    rate: float

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Of a launch."""
        numbers = np.int64(self.base), np.int64(self.streams), np.int64(self.place)
        return self.ids, self.epoch, *numbers, np.float32(self.rate), np.float32(1 / (1 - self.rate))


_NO_MASKS = NULL, NULL, *[np.int64(0)] * 3, np.float32(0), np.float32(1)


class AttentionKernels:
    """The kernels on the GPU of ``operators``."""

    def __init__(self, operators: CudaOperators) -> None:
        self._operators = operators

    def states(
        self, ptr: cp.ndarray, ends: cp.ndarray, to_target: cp.ndarray, to_source: cp.ndarray, slope: float
    ) -> cp.ndarray:
        """Of each row and head what makes a share of a score: its part, the highest score, 1 / sum, and room for more.

        Args:
            ptr, ends: arcs by target.
            to_target, to_source: [rows, H] and [sources, H].
            slope: of the LeakyReLU.

        Returns:
            float32 [rows, H, 4].
        """
        heads = to_target.shape[1]
        states = cp.empty((*to_target.shape, 4), np.float32)
        if not states.size:
            return states
        schedule, lists = self._lists(ptr, ends)
        group, lanes = _lanes(schedule, heads)
        partial = cp.empty((schedule.slots, heads, 2), np.float32)
        self._launch(
            ends, f"attention_states_{group}_{lanes}", _grid(lists[-1], THREADS // group, heads, lanes),
            (*lists, np.int32(heads), to_target, to_source, np.float32(slope), states, partial),
        )  # fmt: skip
        split = len(schedule.split_rows)
        if split:
            self._launch(
                ends, f"attention_states_combine_{lanes}", _grid(split, THREADS // 32, heads, lanes),
                (
                    schedule.split_rows, schedule.split_first, np.int32(split), np.int32(heads), to_target, partial,
                    states,
                ),
            )  # fmt: skip
        return states

    def shares(
        self, ptr: cp.ndarray, ends: cp.ndarray, states: cp.ndarray, to_source: cp.ndarray, slope: float,
        masks: Masks | None,
    ) -> cp.ndarray:  # fmt: skip
        """The softmax of every arc after dropout, float32 [arcs, H]; the list is by target."""
        heads = to_source.shape[1]
        shares = cp.empty((len(ends), heads), np.float32)
        if shares.size:
            schedule, lists = self._lists(ptr, ends)
            group, lanes = _lanes(schedule, heads)
            self._launch(
                ends, f"attention_shares_{group}_{lanes}", _grid(lists[-1], THREADS // group, heads, lanes),
                (*lists, np.int32(heads), states, to_source, np.float32(slope), *_arguments(masks), shares),
            )  # fmt: skip
        return shares

    def signed_shares(
        self, ptr: cp.ndarray, ends: cp.ndarray, turned: bool, states: cp.ndarray, to_source: cp.ndarray, slope: float,
        masks: Masks | None,
    ) -> tuple[cp.ndarray, cp.ndarray]:  # fmt: skip
        """The same with the sign of each arc's score, and of every row and head a sum over its arcs before dropout.

        Args:
            ptr, ends, turned: arcs by target, or by source.
            states: with the means of the gradients where the list is by source.
            to_source, slope, masks: as for ``shares``.

        Returns:
            float32 [arcs, H], and [rows, H]: by target, of the shares whose score is negative; by source, of all
            shares times LeakyReLU' of the score times the mean of the target's gradients.
        """
        heads = to_source.shape[1]
        shares, sums = (cp.empty((count, heads), np.float32) for count in (len(ends), len(ptr) - 1))
        if not sums.size:
            return shares, sums
        schedule, lists = self._lists(ptr, ends)
        group, lanes = _lanes(schedule, heads)
        partial = _partial(schedule, heads)
        self._launch(
            ends, f"attention_signed_shares{_BACK[turned]}_{group}_{lanes}",
            _grid(lists[-1], THREADS // group, heads, lanes),
            (
                *lists, np.int32(heads), states, to_source, np.float32(slope), *_arguments(masks), shares, sums,
                partial, row_stride(partial),
            ),
        )  # fmt: skip
        self._combine(schedule, partial, sums)
        return shares, sums

    def dropout(self, ptr: cp.ndarray, ends: cp.ndarray, turned: bool, values: cp.ndarray, masks: Masks) -> cp.ndarray:
        """``values`` [arcs, H] after dropout, a new array."""
        heads, out = values.shape[1], cp.empty(values.shape, np.float32)
        if out.size:
            schedule, lists = self._lists(ptr, ends)
            group, lanes = _lanes(schedule, heads)
            self._launch(
                ends, f"attention_dropout_{group}_{lanes}", _grid(lists[-1], THREADS // group, heads, lanes),
                (*lists, np.int32(heads), np.int32(turned), values, *masks.arguments, out),
            )  # fmt: skip
        return out

    def sums(self, ptr: cp.ndarray, ends: cp.ndarray, weights: cp.ndarray, x: cp.ndarray) -> cp.ndarray:
        """``out[row]`` = sum over the row's arcs of ``weights[arc, head]`` times ``x[end]``, float32 [rows, H * F]."""
        out = cp.empty((len(ptr) - 1, x.shape[1]), np.float32)
        if weights.shape[1] == 1:
            self._operators.spmm_rows(ptr, ends, weights.reshape(-1), _aligned(x, len(ends)), out, False)
        else:
            self._sums("attention_sums", ptr, ends, weights, x, [out])
        return out

    def signed_sums(
        self, ptr: cp.ndarray, ends: cp.ndarray, weights: cp.ndarray, x: cp.ndarray
    ) -> tuple[cp.ndarray, cp.ndarray]:
        """``sums`` with weights that count without their sign, and the part of it that arcs with a minus make."""
        shape = len(ptr) - 1, x.shape[1]
        out, low = cp.empty(shape, np.float32), cp.empty(shape, np.float32)
        if weights.shape[1] == 1:
            self._signed_rows(ptr, ends, weights, _aligned(x, len(ends)), [out, low])
        else:
            self._sums("attention_signed_sums", ptr, ends, weights, x, [out, low])
        return out, low

    def _signed_rows(
        self, ptr: cp.ndarray, ends: cp.ndarray, weights: cp.ndarray, x: cp.ndarray, outs: list[cp.ndarray]
    ) -> None:
        """For one head, in the way of ``spmm_rows``."""
        columns = x.shape[1]
        if not outs[0].size:
            return
        tuning, schedule = self._operators.schedule(ptr, columns)
        partials, vector = [_partial(schedule, columns) for _ in outs], vector_width(x)
        for lanes, first, tiles in column_tiles(columns, vector, tuning.tile):
            kernel = self._operators.kernel(build_of("signed_rows", index_bits(ends)), f"signed_rows_{lanes}_{vector}")
            kernel(
                (len(schedule.blocks) - 1, tiles), (kernel.max_threads_per_block,),
                (
                    schedule.tasks, schedule.blocks, schedule.begin, schedule.target, ends, weights, x, row_stride(x),
                    *outs, row_stride(outs[0]), *partials, row_stride(partials[0]), np.int32(first), np.int32(columns),
                ),
            )  # fmt: skip
        for partial, out in zip(partials, outs, strict=True):
            self._combine(schedule, partial, out)

    def _sums(
        self, name: str, ptr: cp.ndarray, ends: cp.ndarray, weights: cp.ndarray, x: cp.ndarray, outs: list[cp.ndarray]
    ) -> None:
        """One array or two of the same shape, from one pass over the arcs."""
        heads, columns = weights.shape[1], x.shape[1]
        if not outs[0].size:
            return
        schedule, lists = self._lists(ptr, ends)
        partials = [_partial(schedule, columns) for _ in outs]
        found, parts = ((*arrays, NULL)[:2] for arrays in (outs, partials))
        vector = _vector_of_heads(columns // heads, x, *outs)
        for lanes, first, tiles in column_tiles(columns, vector):
            self._launch(
                ends, f"{name}_{lanes}_{vector}", (-(-int(lists[-1]) // (THREADS // 32)), tiles),
                (
                    *lists, np.int32(heads), weights, x, row_stride(x), *found, row_stride(outs[0]), *parts,
                    row_stride(partials[0]), np.int32(first), np.int32(columns),
                ),
            )  # fmt: skip
        for partial, out in zip(partials, outs, strict=True):
            self._combine(schedule, partial, out)

    def _combine(self, schedule: DeviceSchedule, partial: cp.ndarray, out: cp.ndarray) -> None:
        """The rows of ``out`` that were cut, from their parts."""
        if len(schedule.split_rows):
            kernel, grid, block, arguments = self._operators.combining(
                schedule.split_rows, schedule.split_first, partial, out, False
            )
            kernel(grid, block, arguments)

    def products(self, x: cp.ndarray, vectors: cp.ndarray, heads: int) -> cp.ndarray:
        """Inner products of each row's columns of a head with a vector, float32 [rows, H].

        Args:
            x: [rows, H * F].
            vectors: [H, F], the heads', or [rows, H * F], the rows' own.
            heads: H.
        """
        products = cp.empty((len(x), heads), np.float32)
        if products.size:
            _check_contiguous(x, vectors)
            columns = x.shape[1] // heads
            vector = _vector_of_heads(columns, x, vectors)
            lanes = _product_lanes(columns, vector)
            kernel = self._operators.kernel(build_of("attention", 32), f"attention_products_{lanes}_{vector}")
            kernel(
                (-(-products.size // (THREADS // lanes)),), (THREADS,),
                (
                    x, vectors, np.int64(products.size), np.int64(vectors.size // columns), np.int32(columns), products,
                ),
            )  # fmt: skip
        return products

    def _lists(self, ptr: cp.ndarray, ends: cp.ndarray) -> tuple[DeviceSchedule, tuple[Any, ...]]:
        """How a list is cut, and the first arguments of its launches; the last of these is the number of pieces."""
        _, schedule = self._operators.schedule(ptr, 1)
        pieces = np.int32(len(schedule.target))
        return schedule, (schedule.begin, schedule.target, schedule.slot_rows, ends, pieces)

    def _launch(self, ends: cp.ndarray, name: str, grid: tuple[int, int], arguments: tuple[Any, ...]) -> None:
        self._operators.kernel(build_of("attention", index_bits(ends)), name)(grid, (THREADS,), arguments)


_BACK = ("", "_back")


def _arguments(masks: Masks | None) -> tuple[Any, ...]:
    return _NO_MASKS if masks is None else masks.arguments


def _lanes(schedule: DeviceSchedule, heads: int) -> tuple[int, int]:
    """Lanes that take a row, and those of them that take the heads of an arc."""
    lanes = min(32, 1 << (heads - 1).bit_length())
    return (8 if lanes <= 8 and schedule.mean_row * lanes <= SHORT else 32), lanes


def _partial(schedule: DeviceSchedule, columns: int) -> cp.ndarray:
    """Room for what the parts of long rows find."""
    return cp.empty((schedule.slots, -(-columns // 8) * 8), np.float32)


def _grid(items: int, a_block: int, heads: int, a_tile: int) -> tuple[int, int]:
    return -(-int(items) // a_block), -(-heads // a_tile)


def _vector_of_heads(columns: int, *matrices: cp.ndarray) -> int:
    """Floats that can be loaded at once and are of one head: 4, 2 or 1."""
    return next(vector for vector in (4, 2, 1) if vector <= vector_width(*matrices) and columns % vector == 0)


def _product_lanes(columns: int, vector: int) -> int:
    return min(PRODUCT_LANES, 1 << (-(-columns // vector) - 1).bit_length())


def _aligned(x: cp.ndarray, arcs: int) -> cp.ndarray:
    """``x`` for ``arcs`` loads of its rows: a copy with rows at multiples of 16 bytes, where that pays."""
    if x.shape[1] % 4 == 0 or x.shape[1] < 3 or arcs < COPIED * len(x):  # one or two are one load as they are
        return x
    copy = cp.empty((len(x), row_pitch(x.shape[1], 4)), np.float32)[:, : x.shape[1]]
    copy[...] = x
    return copy


def _check_contiguous(*matrices: cp.ndarray) -> None:
    for matrix in matrices:
        if int(row_stride(matrix)) != matrix.shape[1] and len(matrix) > 1:
            raise ValueError(f"a contiguous matrix is needed, found strides {matrix.strides}")
