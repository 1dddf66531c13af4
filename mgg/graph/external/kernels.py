"""Loops over arcs as 64-bit keys: row in the high half, column in the low half.

All of them release the interpreter's lock, so threads run them in parallel.
"""

from __future__ import annotations

import numba
import numpy as np

#: Ids must be below this for two of them to share a key.
IDS = 2**32
#: Bits that one pass of the radix sort uses.
DIGIT = 11


@numba.njit(cache=True, nogil=True)
def _mix(value):  # type: ignore[no-untyped-def]
    """SplitMix64's finalizer: a bijection that spreads every bit over all bits."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def pack(targets, sources, mirror, keep, keys, origin):  # type: ignore[no-untyped-def]
    """Fill ``keys`` with the arcs; if ``mirror``, each arc that is no self-loop is followed by its reverse.

    Args:
        targets: integers [arcs].
        sources: integers [arcs].
        mirror: whether to add reverses.
        keep: whether to keep self-loops.
        keys: uint64 [>= arcs, or twice as many with mirror], filled from its beginning.
        origin: int32 [like keys] or empty: number of the arc that each key comes from.

    Returns:
        The number of keys, the largest id or -1 (-2 - i if arc i has an id that is negative or not below 2^32), and
        the number of dropped self-loops.
    """
    count, largest, dropped = 0, np.int64(-1), 0
    for i in range(targets.size):
        row, column = np.int64(targets[i]), np.int64(sources[i])
        if row < 0 or column < 0 or row >= IDS or column >= IDS:
            return count, -2 - i, dropped
        largest = max(largest, row)
        largest = max(largest, column)
        if row == column and not keep:
            dropped += 1
            continue
        keys[count] = (np.uint64(row) << np.uint64(32)) | np.uint64(column)
        if origin.size:
            origin[count] = i
        count += 1
        if mirror and row != column:
            keys[count] = (np.uint64(column) << np.uint64(32)) | np.uint64(row)
            if origin.size:
                origin[count] = i
            count += 1
    return count, largest, dropped


@numba.njit(cache=True, nogil=True)
def mark(ids, words):  # type: ignore[no-untyped-def]
    """Set bit ``id`` of the bitmap ``words`` (uint64) for every id; the bitmap must be long enough."""
    for i in range(ids.size):
        at = np.uint64(ids[i])
        words[at >> np.uint64(6)] |= np.uint64(1) << (at & np.uint64(63))


@numba.njit(cache=True, nogil=True)
def _bits(word):  # type: ignore[no-untyped-def]
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, nogil=True)
def bits_before(words):  # type: ignore[no-untyped-def]
    """Return the number of set bits before each word, int64 [words + 1]."""
    out = np.empty(words.size + 1, np.int64)
    out[0] = 0
    for i in range(words.size):
        out[i + 1] = out[i] + _bits(words[i])
    return out


def load() -> None:
    """Load one of the loops and, with it, the 60 MiB of Numba and LLVM that all of them need."""
    bits_before(np.zeros(1, np.uint64))


@numba.njit(cache=True, nogil=True)
def rank(words, before, at):  # type: ignore[no-untyped-def]
    """Return the number of set bits below bit ``at``."""
    word = at >> np.uint64(6)
    below = words[word] & ((np.uint64(1) << (at & np.uint64(63))) - np.uint64(1))
    return before[word] + _bits(below)


@numba.njit(cache=True, nogil=True)
def set_bits(words, first, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` (int64) with the positions of set bits number ``first``, ``first + 1``, ... of the bitmap."""
    before, count = np.int64(0), 0
    for i in range(words.size):
        here = _bits(words[i])
        if before + here > first:
            word = words[i]
            bit = 0
            while word:
                if word & np.uint64(1):
                    if before >= first:
                        if count == out.size:
                            return
                        out[count] = i * 64 + bit
                        count += 1
                    before += 1
                word >>= np.uint64(1)
                bit += 1
        else:
            before += here


@numba.njit(cache=True, nogil=True)
def renumber(keys, words, before):  # type: ignore[no-untyped-def]
    """Replace both ids of every key by their ranks in the bitmap."""
    low = np.uint64(0xFFFFFFFF)
    for i in range(keys.size):
        row = rank(words, before, keys[i] >> np.uint64(32))
        column = rank(words, before, keys[i] & low)
        keys[i] = (np.uint64(row) << np.uint64(32)) | np.uint64(column)


@numba.njit(cache=True, nogil=True)
def bucket(keys, shift, ends):  # type: ignore[no-untyped-def]
    """Fill ``ends``, int64 [buckets + 1], with the end of each bucket's keys; key k is in bucket ``k >> shift``."""
    ends[:] = 0
    for i in range(keys.size):
        ends[np.int64(keys[i] >> shift) + 1] += 1
    for b in range(1, ends.size):
        ends[b] += ends[b - 1]


@numba.njit(cache=True, nogil=True)
def distribute(keys, shift, ends, out, origin):  # type: ignore[no-untyped-def]
    """Move keys to ``out``, bucket by bucket, in their order; ``origin`` (int32 or empty) gets their old positions."""
    cursor = ends[:-1].copy()
    for i in range(keys.size):
        b = np.int64(keys[i] >> shift)
        out[cursor[b]] = keys[i]
        if origin.size:
            origin[cursor[b]] = i
        cursor[b] += 1


@numba.njit(cache=True, nogil=True)
def add_sums(keys, weights, types, shift, sums):  # type: ignore[no-untyped-def]
    """Add a hash of every arc to the sum (uint64, modulo 2^64) of its bucket, ``k >> shift`` for key k.

    A changed bit anywhere changes the sum, but for one case in 2^64; sums of buckets that are merged add up.

    Args:
        keys: uint64 [arcs].
        weights: uint32 [arcs], bits of the weights, or empty.
        types: int32 [arcs] or empty.
        shift: uint64.
        sums: uint64 [buckets].
    """
    for i in range(keys.size):
        value = _mix(keys[i] + np.uint64(1))
        if weights.size:
            value = _mix(value + np.uint64(weights[i]))
        if types.size:
            value = _mix(value + np.uint64(types[i]))
        sums[np.int64(keys[i] >> shift)] += value


@numba.njit(cache=True, nogil=True)
def rows_of(keys, first, counts):  # type: ignore[no-untyped-def]
    """Add the number of keys of rows ``first``, ``first + 1``, ... to ``counts``; keys of other rows are left out."""
    for i in range(keys.size):
        row = np.int64(keys[i] >> np.uint64(32)) - first
        if 0 <= row < counts.size:
            counts[row] += 1


@numba.njit(cache=True, nogil=True)
def keep_rows(keys, low, high, out, at, origin):  # type: ignore[no-untyped-def]
    """Append the keys of rows low..high-1 to ``out`` from position ``at`` on, as many as fit.

    ``origin`` (int32 or empty) gets the position of each in ``keys``. Returns the new end, which is beyond ``out`` if
    there are too many.
    """
    start = at
    for i in range(keys.size):
        row = np.int64(keys[i] >> np.uint64(32))
        if low <= row < high:
            if at == out.size:
                return at + 1
            out[at] = keys[i]
            if origin.size:
                origin[at - start] = i
            at += 1
    return at


@numba.njit(cache=True, nogil=True)
def squeeze(keys, first, bits):  # type: ignore[no-untyped-def]
    """Turn each key into ``(row - first) << bits | column``, so that the sort needs as few bits as possible."""
    low = np.uint64(0xFFFFFFFF)
    shift, base = np.uint64(bits), np.uint64(first)
    for i in range(keys.size):
        keys[i] = (((keys[i] >> np.uint64(32)) - base) << shift) | (keys[i] & low)


@numba.njit(cache=True, nogil=True)
def radix_sort(keys, spare, order, other, bits):  # type: ignore[no-untyped-def]
    """Sort uint64 ``keys`` stably by their lowest ``bits`` bits, and move ``order`` (int32 or empty) along.

    Returns the arrays that have the results: the keys in one of ``keys`` and ``spare``, the order in one of the others.
    """
    for low in range(0, bits, DIGIT):
        width = min(DIGIT, bits - low)
        shift, mask = np.uint64(low), np.uint64((1 << width) - 1)
        cursor = _cursor(keys, shift, mask, 1 << width)
        for i in range(keys.size):
            digit = np.int64((keys[i] >> shift) & mask)
            spare[cursor[digit]] = keys[i]
            if order.size:
                other[cursor[digit]] = order[i]
            cursor[digit] += 1
        keys, spare = spare, keys
        order, other = other, order
    return keys, order


@numba.njit(cache=True, nogil=True)
def _cursor(keys, shift, mask, values):  # type: ignore[no-untyped-def]
    counts = np.zeros(values + 1, np.int64)
    for i in range(keys.size):
        counts[np.int64((keys[i] >> shift) & mask) + 1] += 1
    for digit in range(1, values + 1):
        counts[digit] += counts[digit - 1]
    return counts


@numba.njit(cache=True, nogil=True)
def unique_arcs(keys, types, bits, first, degrees, columns, kept):  # type: ignore[no-untyped-def]
    """Drop repeats of sorted keys (of one type, where there are types).

    Args:
        keys: uint64 [arcs], squeezed and sorted.
        types: int32 [arcs], ascending where keys are equal, or empty.
        bits: bits of the column in a key.
        first: the first row.
        degrees: int64 [rows], zero; gets the number of arcs of each row.
        columns: integers [arcs], gets the columns.
        kept: int32 [arcs] or empty, gets the position of each arc that is kept.

    Returns:
        The number of remaining arcs, and of self-loops among them.
    """
    count, loops = 0, 0
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(keys.size):
        if i and keys[i] == keys[i - 1] and (types.size == 0 or types[i] == types[i - 1]):
            continue
        row, column = np.int64(keys[i] >> np.uint64(bits)), np.int64(keys[i] & mask)
        degrees[row] += 1
        loops += first + row == column
        columns[count] = column
        if kept.size:
            kept[count] = i
        count += 1
    return count, loops


@numba.njit(cache=True, nogil=True)
def merge_weights(starts, order, weights, largest, merged):  # type: ignore[no-untyped-def]
    """Sum the weights of repeated arcs, in float64 and in the order of the source, or take the largest.

    Args:
        starts: int32 [arcs + 1], where each arc's repeats begin among the sorted keys, and how many these are.
        order: int32 [keys], the place of each sorted key's weight.
        weights: float32 [keys].
        largest: whether to take the largest instead of the sum.
        merged: float32 [arcs], gets the results.

    Returns:
        The first arc whose sum is not finite, or -1.
    """
    bad = -1
    for arc in range(merged.size):
        value = np.float64(weights[order[starts[arc]]])
        for i in range(starts[arc] + 1, starts[arc + 1]):
            weight = np.float64(weights[order[i]])
            value = max(value, weight) if largest else value + weight
        merged[arc] = value
        if bad < 0 and not np.isfinite(merged[arc]):
            bad = arc
    return bad


@numba.njit(cache=True, nogil=True)
def fingerprint(first, degrees, columns, weights, types, sums):  # type: ignore[no-untyped-def]
    """Add a hash of every arc to ``sums[0:2]`` and one of its reverse to ``sums[2:4]`` (uint64, modulo 2^64).

    The sums over a whole matrix do not depend on the order of arcs, so both halves agree if the matrix equals its
    transpose; otherwise they agree with a probability of about 2^-128.

    Args:
        first: row of the first degree.
        degrees: int64 [rows].
        columns: integers [arcs].
        weights: uint32 [arcs], bits of the weights, or empty.
        types: int32 [arcs] or empty.
        sums: uint64 [4].
    """
    at = 0
    for row in range(degrees.size):
        for _ in range(degrees[row]):
            target, source = np.uint64(first + row), np.uint64(columns[at])
            salt = np.uint64(0)
            if weights.size:
                salt = _mix(np.uint64(weights[at]) + np.uint64(1))
            if types.size:
                salt = _mix(salt + np.uint64(types[at]) + np.uint64(1))
            forward = _mix(((target << np.uint64(32)) | source) ^ salt)
            reverse = _mix(((source << np.uint64(32)) | target) ^ salt)
            sums[0] += forward
            sums[1] += _mix(forward + np.uint64(0x9E3779B97F4A7C15))
            sums[2] += reverse
            sums[3] += _mix(reverse + np.uint64(0x9E3779B97F4A7C15))
            at += 1
