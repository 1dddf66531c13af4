"""Packed rows with few bits per value, as they cross between workgroups; packed and unpacked on CPU ranks.

A packed row consists of 32-bit words: a scale for each group of 32 columns, then the codes, with the first columns in
the lowest bits. A scale is two bfloat16. The lower half is the step between codes. The upper half is the value of code
0, which is at most the least value of the group; the steps reach up to the greatest. A value is rounded at random to
one of the two nearest codes, with probabilities that make the expectation the value itself (stochastic rounding), so
it is off by less than a step. Equal values that bfloat16 can represent, such as rows of zeros, are exact. A group is
all NaN if one of its numbers is not finite, or if its range exceeds float32.

With 16 bits, values are bfloat16 without scales, rounded to nearest. ``kernels/aggregate/wire.cu`` makes the same bits.
"""

from __future__ import annotations

import numba
import numpy as np

from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.random import number_at, row_state

#: Columns that share a scale; the number of bits that stands for bfloat16.
GROUP, HALF = 32, 16
_NONE = np.uint32(0x7FC07FC0)


def words(columns: int, bits: int) -> int:
    """Return the 32-bit words of a packed row, including scales."""
    scales = 0 if bits == HALF else -(-columns // GROUP)
    return scales + -(-columns * bits // 32)


def step_bound(spread: np.ndarray, largest: np.ndarray, bits: int) -> np.ndarray:
    """Bound the error of a packed value, for groups of values.

    With the precision of bfloat16, the value of code 0 is below the least value by up to 2^-7 of it, and the step is
    too large by up to 2^-7. Float32 rounds the steps of a value, the sum of their product and the value of code 0, and
    the step.

    Args:
        spread, largest: float64, greatest minus least value of each group, and greatest magnitude. The bound grows with
            both, and for a weighted sum of groups it is at most the weighted sum of the bounds.
    """
    if bits == HALF:
        return largest * 2.0**-8
    step = (spread + largest * 2.0**-7) * (1 + 2.0**-7) / ((1 << bits) - 1)
    return step + largest * 2.0**-20


def pack_rows(
    source: np.ndarray, rows: np.ndarray, ids: np.ndarray, key: np.uint64, bits: int, out: np.ndarray
) -> None:
    """Pack ``source[rows]`` into ``out``.

    Args:
        source: [*, D], float32 or bfloat16 (uint16).
        rows: integers [k], rows of ``source``.
        ids: int64 [k], ids that select each row's random numbers.
        key: key of the random numbers (``random.stream_key``).
        bits: 2, 4, 8 or 16.
        out: uint32 [k, words(D, bits)].
    """
    if bits == HALF:
        halves = np.zeros((len(rows), 2 * out.shape[1]), np.uint16)
        chosen = source[rows]
        halves[:, : source.shape[1]] = chosen if source.dtype == np.uint16 else to_bf16(chosen)
        out[...] = halves.view(np.uint32)
    elif source.dtype == np.uint16:
        _pack(source, np.uint32(16), rows, ids, key, bits, out)
    else:
        _pack(source.view(np.uint32), np.uint32(0), rows, ids, key, bits, out)


def unpack_rows(packed: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Unpack ``packed`` uint32 [k, words(D, bits)] into ``out`` [k, D], float32 or bfloat16 (uint16)."""
    if bits == HALF:
        halves = np.ascontiguousarray(packed).view(np.uint16)[:, : out.shape[1]]
        out[...] = halves if out.dtype == np.uint16 else from_bf16(halves)
    elif out.dtype == np.uint16:
        values = np.empty(out.shape, np.float32)
        _unpack(packed, bits, values)
        out[...] = to_bf16(values)
    else:
        _unpack(packed, bits, out)


@numba.njit(cache=True, nogil=True, inline="always")
def _outwards(bits: np.uint32) -> np.uint32:
    """Return the bits of the bfloat16 that is next in magnitude, or equal."""
    return (bits + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)


@numba.njit(cache=True, nogil=True)
def _pack(source, shift, rows, ids, key, bits, out):  # type: ignore[no-untyped-def]
    columns, levels = source.shape[1], np.uint32((1 << bits) - 1)
    groups, a_word = -(-columns // GROUP), 32 // bits
    values, word = np.empty(GROUP, np.float32), np.empty(1, np.float32)
    value_bits, word_bits = values.view(np.uint32), word.view(np.uint32)
    zero, infinite = np.float32(0), np.float32(np.inf)
    for i in range(rows.size):
        row, state = rows[i], row_state(key, np.uint64(ids[i]))
        for k in range(groups, out.shape[1]):
            out[i, k] = 0
        for group in range(groups):
            first = group * GROUP
            count = min(GROUP, columns - first)
            finite = True
            for d in range(count):
                value_bits[d] = np.uint32(source[row, first + d]) << shift
                finite &= abs(values[d]) < infinite
            least, most = values[0], values[0]
            for d in range(1, count):
                least, most = min(least, values[d]), max(most, values[d])
            # Zeros of both signs are equal; the result must not depend on which was found to be the least.
            word[0] = zero if least == zero else least
            low = _outwards(word_bits[0]) if least < zero else word_bits[0] & np.uint32(0xFFFF0000)
            word_bits[0] = low
            lowest = word[0]
            word[0] = zero if most == lowest else (most - lowest) / np.float32(levels)
            up = _outwards(word_bits[0])
            word_bits[0] = up
            step = word[0]
            if not (finite and abs(lowest) < infinite and step < infinite):
                out[i, group] = _NONE
                continue
            out[i, group] = (up >> np.uint32(16)) | low
            if step == zero:
                continue
            word_at = groups + first // a_word
            for start in range(0, count, a_word):
                codes = np.uint32(0)
                for d in range(start, min(count, start + a_word)):
                    steps = (values[d] - lowest) / step
                    whole = np.floor(steps)
                    up_too = number_at(state, np.uint64(first + d)) < steps - whole
                    codes |= min(np.uint32(whole) + np.uint32(up_too), levels) << np.uint32((d - start) * bits)
                out[i, word_at] = codes
                word_at += 1


@numba.njit(cache=True, nogil=True)
def _unpack(packed, bits, out):  # type: ignore[no-untyped-def]
    columns, levels, a_word = out.shape[1], np.uint32((1 << bits) - 1), 32 // bits
    groups = -(-columns // GROUP)
    scale = np.empty(2, np.float32)
    scale_bits = scale.view(np.uint32)
    for i in range(out.shape[0]):
        for group in range(groups):
            scale_bits[0] = packed[i, group] << np.uint32(16)
            scale_bits[1] = packed[i, group] & np.uint32(0xFFFF0000)
            last = min(columns, (group + 1) * GROUP)
            for start in range(group * GROUP, last, a_word):
                codes = packed[i, groups + start // a_word]
                for d in range(start, min(last, start + a_word)):
                    out[i, d] = scale[1] + np.float32(codes & levels) * scale[0]
                    codes >>= np.uint32(bits)
