"""Rows in few bits: the format, by NumPy from its words; bounds, expectation, and the CUDA kernels on the host."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.devices.on_host import build, launch

from mgg.kernel import cpu, wire
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.random import STREAMS, Draws, device_base, uniform

BITS = [2, 4, 8]


def rows_of(columns, seed=0):
    """float32 [40, columns] of very different sizes; of zeros of both signs, of one value, of many zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, columns)) * 10.0 ** rng.integers(-12, 12, (40, 1)) + rng.normal(size=(40, 1))
    rows[0], rows[1], rows[2] = 0, 0.7, np.where(np.arange(columns) % 2, 0.0, -0.0)
    rows[3] = np.maximum(rows[3], 0)
    return rows.astype(np.float32)


def packed(rows, bits, ids=None, draws=(0, 0, 0)):
    ids = np.arange(len(rows)) if ids is None else ids
    out = np.full((len(rows), wire.words(rows.shape[1], bits)), 0xDEADBEEF, np.uint32)
    cpu.pack_rows(rows, np.arange(len(rows)), ids, Draws(*draws), bits, out)
    return out


def unpacked(words, bits, columns, dtype=np.float32):
    out = np.empty((len(words), columns), dtype)
    cpu.unpack_rows(words, bits, out)
    return out


def parts(words, bits, columns):
    """Step and value of code 0 of each value's group, and its code, read from the words by NumPy."""
    groups = -(-columns // 32)
    scales = np.repeat(words[:, :groups], 32, axis=1)[:, :columns]
    step, lowest = from_bf16(scales & 0xFFFF), from_bf16(scales >> 16)
    bytes_ = np.ascontiguousarray(words[:, groups:]).view(np.uint8)
    codes = np.unpackbits(bytes_, axis=1, bitorder="little").reshape(len(words), -1, bits)
    return step, lowest, (codes * (1 << np.arange(bits))).sum(axis=2)[:, :columns]


@settings(max_examples=40)
@given(st.sampled_from(BITS), st.integers(1, 100), st.integers(0, 2**20))
def test_value_is_rounded_to_a_neighboring_code(bits, columns, seed):
    rows, ids = rows_of(columns, seed), np.random.default_rng(seed).integers(0, 2**40, 40)
    words = packed(rows, bits, ids, (seed, 3, 5))
    step, lowest, codes = parts(words, bits, columns)
    found, exact, levels = unpacked(words, bits, columns), rows.astype(np.float64), 2**bits - 1
    # Steps go from below the least to the greatest value of each group, no further than bfloat16 makes them.
    bound = np.empty_like(exact)
    for first in range(0, columns, 32):
        group = slice(first, first + 32)
        least, most = exact[:, group].min(axis=1), exact[:, group].max(axis=1)
        low, up = lowest[:, first].astype(np.float64), step[:, first].astype(np.float64)
        assert np.all(low <= least) and np.all(low >= least - np.abs(least) * 2.0**-7)
        assert np.all(low + levels * up >= most - np.abs(most) * 1e-6)
        assert np.all(up * levels <= (most - low) * (1 + 2.0**-7) * (1 + 1e-6))
        bound[:, group] = wire.step_bound(most - least, np.maximum(np.abs(least), np.abs(most)), bits)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.where(step > 0, (rows - lowest) / step, np.float32(0))
    whole = np.floor(steps)
    upper = uniform(seed, 3 * STREAMS + 5, ids, columns) < steps - whole
    assert np.array_equal(codes, np.minimum(whole + upper, levels))
    assert np.array_equal(found, lowest + codes.astype(np.float32) * step)
    assert np.all(np.abs(found - exact) <= bound)
    assert not found[0].any() and not found[2].any()


@pytest.mark.parametrize("bits", BITS)
def test_rounding_is_unbiased(bits):
    row = np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)
    draws = [unpacked(packed(row, bits, draws=(2, epoch, 0)), bits, 64)[0] for epoch in range(4_000)]
    step = parts(packed(row, bits), bits, 64)[0][0]
    off = (np.mean(draws, axis=0, dtype=np.float64) - row[0]) / step
    assert np.abs(off).max() < 5 * 0.5 / np.sqrt(len(draws)) and np.std(draws, axis=0).max() > 0
    assert len({draw.tobytes() for draw in draws}) == len(draws) or bits == 2


def test_packed_bytes_include_scales():
    shares = [4 * wire.words(64, bits) / (4 * 64) for bits in (8, 4, 2, 16)]
    assert shares == [0.28125, 0.15625, 0.09375, 0.5]


@pytest.mark.parametrize("bits", BITS)
def test_nonfinite_value_makes_its_group_nan(bits):
    rows = np.ones((4, 40), np.float32)
    rows[0, 3], rows[1, 35], rows[2, :2] = np.nan, -np.inf, (3e38, -3e38)
    found = np.isnan(unpacked(packed(rows, bits), bits, 40))
    expected = np.zeros((4, 40), bool)
    expected[[0, 2], :32] = expected[1, 32:] = True
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("columns", [1, 7, 64])
def test_sixteen_bit_wire_is_bfloat16(columns):
    rows = rows_of(columns)
    assert np.array_equal(unpacked(packed(rows, 16), 16, columns), from_bf16(to_bf16(rows)))


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
def test_wire_kernels_have_the_bits_of_the_host(bf16):
    """With loads of four columns at once and of each, rows that are padded, and what is not finite."""
    library, rng = build("wire", "#define MGG_BF16 1" * bf16), np.random.default_rng(0)
    rows, ids = np.append(np.arange(40), rng.integers(0, 40, 9)).astype(np.int32), rng.integers(0, 2**40, 49)
    for columns in (1, 3, 31, 32, 33, 64):
        pitch = -(-columns // 4) * 4
        source = np.full((40, pitch), np.nan, np.float32)
        source[:, :columns] = rows_of(columns)
        source[4, 0], source[5, columns - 1] = np.nan, -np.inf
        source = to_bf16(source) if bf16 else source
        for bits in (*BITS, 16):
            count, width = len(rows), wire.words(columns, bits)
            expected = np.empty((count, width), np.uint32)
            cpu.pack_rows(source[:, :columns], rows, ids, Draws(5, 7, 3), bits, expected)
            values = unpacked(expected, bits, columns, source.dtype)
            for wide in (0, 1):
                found, out = np.zeros_like(expected), np.full((count, pitch), 9, source.dtype)
                launch(
                    library, f"wire_pack_{bits}", (2, 1), 256, source, np.int32(pitch), rows, ids, np.int64(count),
                    np.int32(columns), np.int32(width), found, np.int64(device_base(5)), np.array([7.0]),
                    np.int64(STREAMS), np.int64(3), np.int32(wide),
                )  # fmt: skip
                assert np.array_equal(found, expected), (columns, bits, wide)
                launch(
                    library, f"wire_unpack_{bits}", (1, 1), 256, found, np.int64(count), np.int32(columns),
                    np.int32(width), out, np.int32(pitch), np.int32(wide),
                )  # fmt: skip
                assert out[:, :columns].tobytes() == values.tobytes() and np.all(out[:, columns:] == 9)
