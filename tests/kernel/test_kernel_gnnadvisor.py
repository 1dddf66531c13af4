"""kernels/aggregate/gnnadvisor.cu, compiled for the host, with the groups that a launch gets."""

import itertools
from collections import Counter

import numpy as np
import pytest
from support.devices.on_host import build, launch
from support.graphs import expected_product, random_csr, scaled_error

from mgg.graph.csr import Csr
from mgg.kernel.groups import SHARED, GroupCounts, GroupSetting, count, groups_of, shared_bytes, tiling

#: Counts additions by atomics.
COUNTING = """
static unsigned long long atomics;
template <typename T>
T counting(T *p, T value) { ++atomics; return atomicAdd(p, value); }
#define atomicAdd counting
extern "C" { unsigned long long host_atomics() { return std::exchange(atomics, 0ull); } }
"""
#: ngs, dw, tpb: ends of the ranges; workers that divide nothing; groups that lie across warps; blocks of one group.
SHAPES = [(1, 1, 1024), (1, 32, 32), (2, 5, 96), (3, 16, 128), (16, 32, 256), (1024, 7, 64)]
DIMS = (1, 3, 16, 41, 64, 100)
SWITCHES = list(itertools.product((True, False), repeat=3))


def odd_csr(weighted):
    """Empty rows at both ends and between, one row with most of the arcs."""
    rng = np.random.default_rng(5)
    lengths = np.concatenate([[0, 0, 1], rng.choice([0, 1, 2, 5, 17], 20), [310, 0], rng.choice([0, 3, 4], 12), [0]])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    weights = rng.standard_normal(indptr[-1]).astype(np.float32) if weighted else None
    return Csr(indptr, rng.integers(0, 31, indptr[-1]).astype(np.int32), weights, 31)


@pytest.fixture(scope="module")
def kernel():
    return build("gnnadvisor", COUNTING)


def product(kernel, csr, setting, dim, widest):
    """The kernel's result, what rows.cu adds up included, and how many atomics it issued."""
    rng, stride = np.random.default_rng(dim), -(-dim // 4) * 4 + (widest == 1)
    space = np.full(31 * stride + 4, np.nan, np.float32)
    first = -space.ctypes.data % 16 // 4
    b = space[first : first + 31 * stride].reshape(31, stride)
    b[:, :dim] = rng.uniform(-1, 1, (31, dim))
    groups, c = groups_of(csr.indptr, setting), np.zeros((csr.rows, dim + 1), np.float32)
    floats, tile, tiles = tiling(dim, widest, setting)
    assert shared_bytes(tile, setting) <= SHARED
    partial = np.full((groups.counts.slots, 104), np.nan, np.float32)
    kernel.host_atomics()
    launch(
        kernel, f"gnnadvisor_{floats}" + "_weighted" * (csr.weights is not None),
        (-(-groups.counts.groups // setting.a_block), tiles), setting.tpb, groups.targets, groups.to, groups.starts,
        np.int64(groups.counts.groups), csr.indices, csr.weights, b, np.int32(stride), c, np.int32(dim + 1), partial,
        np.int32(104), np.int32(setting.dw), np.int32(setting.lanes), np.int32(tile), np.int32(dim),
        np.int32(setting.leader), np.int32(not setting.ordered),
    )  # fmt: skip
    if setting.ordered:
        assert not c[groups.split_rows].any(), "only parts of these rows were written"
        c[groups.split_rows, :dim] = (
            np.add.reduceat(partial[:, :dim], groups.split_first[:-1]) if groups.counts.slots else 0
        )
    assert not c[:, dim].any(), "nothing is written beside a row"
    return b[:, :dim], c[:, :dim], kernel.host_atomics(), groups.counts


@pytest.mark.parametrize(("aligned", "leader", "ordered"), SWITCHES)
def test_every_option_matches_float64_and_its_atomics(kernel, aligned, leader, ordered):
    """float64 products to 1e-6, and as many atomics as were counted: floats, a group or a row and block each."""
    for number, (shape, dim) in enumerate(itertools.product(SHAPES, DIMS)):
        setting, csr = GroupSetting(*shape, aligned, leader, ordered), odd_csr(number % 2)
        b, c, atomics, counts = product(kernel, csr, setting, dim, (4, 2, 1)[number % 3])
        expected, scale = expected_product(csr.to_scipy(np.float64), b)
        assert scaled_error(c, expected, scale) <= 1e-6, (setting, dim)
        assert atomics == counts.atomics(setting, dim) and (atomics == 0) == ordered, (setting, dim)


@pytest.mark.parametrize("ordered", [False, True])
def test_wide_rows_are_split_into_column_tiles(kernel, ordered):
    """A block of many groups has its columns in several launches' worth of shared memory."""
    setting = GroupSetting(2, 1, 1024, aligned=False, ordered=ordered)
    assert tiling(100, 4, setting) == (4, 12, 9)
    b, c, _, _ = product(kernel, odd_csr(True), setting, 100, 4)
    expected, scale = expected_product(odd_csr(True).to_scipy(np.float64), b)
    assert scaled_error(c, expected, scale) <= 1e-6


@pytest.mark.parametrize("setting", [GroupSetting(*shape, *switches) for shape in SHAPES for switches in SWITCHES])
def test_atomics_are_counted_by_groups(setting):
    """Walked arc by arc: a group ends with its row or after ngs arcs, a sum is written once a row and block."""
    csr = random_csr(200, 3_000)
    walked, writes = [], []
    for row in range(csr.rows):
        for first in range(csr.indptr[row], csr.indptr[row + 1], setting.ngs):
            block = len(walked) // setting.a_block
            walked.append((row, first))
            key = (row, block) if setting.leader else (row, len(walked))
            if key not in writes[-1:]:
                writes.append(key)
    groups = groups_of(csr.indptr, setting)
    assert list(zip(groups.targets.tolist(), groups.starts.tolist(), strict=False)) == walked
    several = {row: times for row, times in Counter(row for row, _ in writes).items() if times > 1}
    counts = count(np.diff(csr.indptr), setting)
    assert counts == groups.counts == GroupCounts(len(walked), len(writes), sum(several.values()), len(several))
    assert dict(zip(groups.split_rows.tolist(), np.diff(groups.split_first).tolist(), strict=True)) == several
