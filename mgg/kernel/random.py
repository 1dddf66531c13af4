"""Counter-based random numbers: a number depends only on (seed, stream, row, column), not on the PE that draws it.

Each row's numbers are a SplitMix64 sequence (Steele, Lea, Flood, OOPSLA 2014). Its state is a hash of seed, stream and
row; the column is the position in it. So a dropout mask is the same on any number of PEs and on any backend.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from mgg.kernel.compile import source_folder

#: Streams per epoch: epoch e has streams e * STREAMS and the following.
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
    """Return the state of a row for ``number_at``; for numba."""
    return _mix(key + _GOLDEN * (row + np.uint64(1)))


@numba.njit(cache=True, nogil=True, inline="always")
def number_at(state: np.uint64, column: np.uint64) -> np.float32:
    """Return the number at ``column`` of a row: 24 random bits, so every value is exact in float32."""
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
                # Multiply also when dropping: values that are not finite stay so, and zeros keep their sign.
                values[k, head] *= factor if number_at(state, first + np.uint64(head)) >= rate else dropped


class Draws(NamedTuple):
    """Selects the numbers that a dropout of a model draws.

    Attributes:
        seed: seed of the training.
        epoch: the epoch as a number, or as [1] in device memory, where kernels read it, so that the same launch draws
            other numbers in another epoch. Exact in float64.
        place: index of the dropout in the model, below ``STREAMS``.
    """

    seed: int
    epoch: Any
    place: int

    @property
    def stream(self) -> int:
        """The stream, if the epoch is on the host."""
        return int(self.epoch[0] if isinstance(self.epoch, np.ndarray) else self.epoch) * STREAMS + self.place


def _mixed(x: int) -> int:
    """Compute ``_mix`` of the low 64 bits with Python integers, so that negative or huge ones wrap as in C."""
    mask = (1 << 64) - 1
    x &= mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def stream_key(seed: int, stream: int) -> np.uint64:
    """Return the key of a seed and a stream for ``row_state``."""
    return np.uint64(_mixed(_base(seed) + (stream + 1) * int(_GOLDEN)))


def _base(seed: int) -> int:
    return _mixed((seed + 1) * int(_GOLDEN))


@cache
def cuda_source() -> str:
    """Return CUDA C++ code for the same numbers: ``mgg_uniform(mgg_row_state(mgg_key(base, stream), row), column)``,
    with ``base`` from ``device_base``. Kernels pass the stream themselves, so it may be in device memory.
    """
    return (source_folder() / "include" / "mgg" / "random.cuh").read_text(encoding="utf-8")


def device_base(seed: int) -> int:
    """Return the ``base`` of a seed for ``cuda_source``: 64 bits as a signed number."""
    return int(np.uint64(_base(seed)).astype(np.int64))


def uniform(seed: int, stream: int, rows: np.ndarray, columns: int) -> np.ndarray:
    """Draw uniform numbers in [0, 1).

    Args:
        seed, stream: any integers; streams of one seed are independent.
        rows: global row (node) ids, int64 [k].
        columns: numbers per row.

    Returns:
        float32 [k, columns]; row i depends only on ``rows[i]``.
    """
    out = np.empty((len(rows), columns), np.float32)
    _fill(stream_key(seed, stream), np.ascontiguousarray(rows, np.int64), out)
    return out


def uniform_at(seed: int, stream: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Draw the numbers of ``uniform`` at single coordinates.

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
    """Multiply values of arcs by 0 with probability ``rate``, else by 1 / (1 - rate), in place.

    An arc's numbers depend on the ids of both ends: the row is the target's id, the column is the source's id times H,
    plus the head. No array of the size of ``values`` is allocated.

    Args:
        seed, stream: as in ``uniform``.
        ids: int64, ids of nodes.
        ptr: int64 [k + 1], first arc of each target.
        ends: integers [arcs], the source of each arc, an index of ``ids``.
        values: floats [arcs, H].
        rate: the share that becomes 0.
        turned: ``ptr`` is by source, and ``ends`` are targets.
    """
    factor = values.dtype.type(1 / (1 - rate))
    _drop_arcs(stream_key(seed, stream), ids, ptr, ends, turned, np.float32(rate), factor, values)
