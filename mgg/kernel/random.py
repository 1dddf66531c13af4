"""Counter-based random numbers: a number depends on (seed, stream, row, column) alone, not on who draws it.

Each row's numbers are the SplitMix64 sequence (Steele, Lea, Flood, OOPSLA 2014) whose state is a hash of seed, stream
and row; the column is the position in it. So a dropout mask is the same on any number of PEs and on any backend.
"""

from __future__ import annotations

import numba
import numpy as np

#: CUDA C++ of the same numbers: ``mgg_uniform(mgg_row_state(key, row), column)`` with the ``key`` of ``device_key``.
CUDA = """
__device__ __forceinline__ unsigned long long mgg_mix(unsigned long long x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}
__device__ __forceinline__ unsigned long long mgg_row_state(unsigned long long key, unsigned long long row) {
    return mgg_mix(key + 0x9E3779B97F4A7C15ull * (row + 1));
}
__device__ __forceinline__ float mgg_uniform(unsigned long long state, unsigned long long column) {
    return (float)(mgg_mix(state + 0x9E3779B97F4A7C15ull * (column + 1)) >> 40) * 5.9604644775390625e-8f;
}
"""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = np.float32(2.0**-24)


@numba.njit(cache=True, nogil=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64: a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True, nogil=True, inline="always")
def _row_state(key: np.uint64, row: np.uint64) -> np.uint64:
    return _mix(key + _GOLDEN * (row + np.uint64(1)))


@numba.njit(cache=True, nogil=True, inline="always")
def _at(state: np.uint64, column: np.uint64) -> np.float32:
    """The number at ``column`` of a row: 24 random bits, so every value is exact in float32."""
    word = _mix(state + _GOLDEN * (column + np.uint64(1)))
    return np.float32(word >> np.uint64(40)) * _SCALE


@numba.njit(cache=True, nogil=True)
def _fill(key: np.uint64, rows: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        state = _row_state(key, np.uint64(rows[i]))
        for column in range(out.shape[1]):
            out[i, column] = _at(state, np.uint64(column))


@numba.njit(cache=True, nogil=True)
def _fill_at(key: np.uint64, rows: np.ndarray, columns: np.ndarray, out: np.ndarray) -> None:
    for i in range(rows.size):
        out[i] = _at(_row_state(key, np.uint64(rows[i])), np.uint64(columns[i]))


@numba.njit(cache=True, nogil=True)
def _fill_arcs(key, ids, targets, sources, out):  # type: ignore[no-untyped-def]
    width = np.uint64(out.shape[1])
    for k in range(targets.size):
        state, first = _row_state(key, np.uint64(ids[targets[k]])), np.uint64(ids[sources[k]]) * width
        for head in range(out.shape[1]):
            out[k, head] = _at(state, first + np.uint64(head))


def _key(seed: int, stream: int) -> np.uint64:
    # Plain integers, so that negative or huge seeds wrap as they would in C instead of raising.
    mask = (1 << 64) - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    golden = int(_GOLDEN)
    return np.uint64(mix((mix((seed * golden + golden) & mask) + (stream + 1) * golden) & mask))


def device_key(seed: int, stream: int) -> int:
    """What ``CUDA`` wants for a seed and stream: 64 bits, as a signed number."""
    return int(_key(seed, stream).astype(np.int64))


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
    _fill(_key(seed, stream), np.ascontiguousarray(rows, np.int64), out)
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
    _fill_at(_key(seed, stream), np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(columns, np.int64), out)
    return out


def uniform_arcs(
    seed: int, stream: int, ids: np.ndarray, targets: np.ndarray, sources: np.ndarray, columns: int
) -> np.ndarray:
    """Numbers of arcs, by the ids of both ends: the row is the target's id, the column the source's times H + head.

    Args:
        seed, stream: as in ``uniform``.
        ids: int64, ids of nodes.
        targets, sources: integers [arcs], places in ``ids``.
        columns: H, numbers per arc.

    Returns:
        float32 [arcs, H].
    """
    out = np.empty((len(targets), columns), np.float32)
    _fill_arcs(_key(seed, stream), ids, targets, sources, out)
    return out
