"""Counter-based random numbers: a number depends on (seed, stream, row, column) alone, not on who draws it.

Each row's numbers are the SplitMix64 sequence (Steele, Lea, Flood, OOPSLA 2014) whose state is a hash of seed, stream
and row; the column is the position in it. So a dropout mask is the same on any number of PEs and on any backend.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from mgg.kernel.compile import source_folder

#: Streams of an epoch: those of its number times this, and on.
STREAMS = 1 << 10
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = np.float32(2.0**-24)


@numba.njit(cache=True, nogil=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64: a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True, nogil=True, inline="always")
def row_state(key: np.uint64, row: np.uint64) -> np.uint64:
    """What ``number_at`` takes of a row; for numba."""
    return _mix(key + _GOLDEN * (row + np.uint64(1)))


@numba.njit(cache=True, nogil=True, inline="always")
def number_at(state: np.uint64, column: np.uint64) -> np.float32:
    """The number at ``column`` of a row: 24 random bits, so every value is exact in float32."""
    word = _mix(state + _GOLDEN * (column + np.uint64(1)))
    return np.float32(word >> np.uint64(40)) * _SCALE


@numba.njit(cache=True, nogil=True)
def _fill(key: np.uint64, rows: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        state = row_state(key, np.uint64(rows[i]))
        for column in range(out.shape[1]):
            out[i, column] = number_at(state, np.uint64(column))


@numba.njit(cache=True, nogil=True)
def _fill_at(key: np.uint64, rows: np.ndarray, columns: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        out[i] = number_at(row_state(key, np.uint64(rows[i])), np.uint64(columns[i]))


@numba.njit(cache=True, nogil=True)
def _drop_arcs(key, ids, ptr, ends, turned, rate, factor, values):  # type: ignore[no-untyped-def]
    width, dropped = np.uint64(values.shape[1]), np.float32(0)
    for row in range(ptr.size - 1):
        for k in range(ptr[row], ptr[row + 1]):
            target, source = (ends[k], row) if turned else (row, ends[k])
            state, first = row_state(key, np.uint64(ids[target])), np.uint64(ids[source]) * width
            for head in range(values.shape[1]):
                # A product also where it is dropped: what is not finite stays so, and zeros keep their sign.
                values[k, head] *= factor if number_at(state, first + np.uint64(head)) >= rate else dropped


class Draws(NamedTuple):
    """Which numbers a dropout of a model draws.

    Attributes:
        seed: of the training.
        epoch: number of the epoch; a number, or [1] in the device's memory: kernels read it there, so that the same
            launch draws other numbers in another epoch. Exact in float64.
        place: which dropout of the model it is, below ``STREAMS``.
    """

    seed: int
    epoch: Any
    place: int

    @property
    def stream(self) -> int:
        """The stream, where the epoch is the host's."""
        return int(self.epoch[0] if isinstance(self.epoch, np.ndarray) else self.epoch) * STREAMS + self.place


def _mixed(x: int) -> int:
    """``_mix`` of the low 64 bits: plain integers, so that negative or huge ones wrap as they would in C."""
    mask = (1 << 64) - 1
    x &= mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def stream_key(seed: int, stream: int) -> np.uint64:
    """What ``row_state`` takes of a seed and a stream."""
    return np.uint64(_mixed(_base(seed) + (stream + 1) * int(_GOLDEN)))


def _base(seed: int) -> int:
    return _mixed((seed + 1) * int(_GOLDEN))


@cache
def cuda_source() -> str:
    """CUDA C++ of the same numbers: ``mgg_uniform(mgg_row_state(mgg_key(base, stream), row), column)`` with the
    ``base`` of ``device_base``. The stream is an argument of kernels' own making, so that it may be in the device's
    memory.
    """
    return (source_folder() / "include" / "mgg" / "random.cuh").read_text(encoding="utf-8")


def device_base(seed: int) -> int:
    """What ``cuda_source`` wants for a seed: 64 bits, as a signed number."""
    return int(np.uint64(_base(seed)).astype(np.int64))


def uniform(seed: int, stream: int, rows: np.ndarray, columns: int) -> np.ndarray:
    """Uniform numbers in [0, 1).

    Args:
        seed, stream: any integers; streams of one seed are independent.
        rows: global row (node) ids, int64 [k].
        columns: numbers per row.

    Returns:
        float32 [k, columns]; row i depends on ``rows[i]`` alone.
    """
    out = np.empty((len(rows), columns), np.float32)
    _fill(stream_key(seed, stream), np.ascontiguousarray(rows, np.int64), out)
    return out


def uniform_at(seed: int, stream: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The numbers of ``uniform`` at single coordinates.

    Args:
        seed, stream: as in ``uniform``.
        rows, columns: integer coordinates, both [k].

    Returns:
        float32 [k].
    """
    out = np.empty(len(rows), np.float32)
    _fill_at(
        stream_key(seed, stream), np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(columns, np.int64), out
    )
    return out


def drop_arcs(
    seed: int, stream: int, ids: np.ndarray, ptr: np.ndarray, ends: np.ndarray, values: np.ndarray, rate: float, *,
    turned: bool,
) -> None:  # fmt: skip
    """Multiply what arcs have by 0, with probability ``rate``, or by 1 / (1 - rate), in place.

    Numbers of arcs go by the ids of both ends: the row is the target's id, the column the source's times H + head.
    Nothing of the size of ``values`` is made.

    Args:
        seed, stream: as in ``uniform``.
        ids: int64, ids of nodes.
        ptr: int64 [k + 1], where the arcs of each target begin.
        ends: integers [arcs], the source of each, a place in ``ids``.
        values: floats [arcs, H].
        rate: the share that becomes 0.
        turned: ``ptr`` is by source, and ``ends`` are targets.
    """
    factor = values.dtype.type(1 / (1 - rate))
    _drop_arcs(stream_key(seed, stream), ids, ptr, ends, turned, np.float32(rate), factor, values)
