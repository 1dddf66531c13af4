"""Rows of B that are short: the order of work, and kernels/aggregate/narrow_rows.cu on the host."""

from itertools import pairwise

import numpy as np
import pytest
from support.devices.on_host import build, launch
from support.graphs import awkward_graphs, expected_product, scaled_error

from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.kernel import narrow_row_schedule
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.narrow_row_schedule import BundleTuning, bundle_bytes, bundled, lanes_of

#: Lanes a row and elements a load: a row for each lane, 16 loads in flight, the widest.
SHAPES, BF16_SHAPES = [(1, 4), (4, 4), (8, 4)], [(2, 8)]


def lengths_of(seed=0, count=700):
    """Runs of short, empty and long rows, and one that is cut many times."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 127, 128, 129, 511, 512, 513, 1_025], count)
    lengths[count // 3 : count // 2] = rng.integers(0, 4, count // 2 - count // 3)
    return np.append(lengths, 9_000)


def pointer(lengths, first=0):
    return np.concatenate(([first], first + np.cumsum(lengths)))


def read(made, groups):
    """Row by row what the kernel would sum: (start, length, whole, target, block, task) of every piece, in order."""
    found, at = [], 0
    for block, first in enumerate(made.blocks[:-1]):
        for task in range(first, made.blocks[block + 1]):
            begin, count = made.tasks[task]
            assert begin == at and count > 0 and count % groups == 0, "tasks are runs of bundles"
            at += count
            for bundle in made.pieces[begin:at].reshape(-1, groups, 2).tolist():
                wholes = {word >> 31 for word, _ in bundle}
                assert len(wholes) == 1, "a warp sums one long piece, or short ones"
                kept = bundle[:1] if wholes == {1} else [each for each in bundle if each[1] != 1 << 31]
                assert wholes == {0} or all(each == bundle[0] for each in bundle), "every group knows the long piece"
                for word, target in kept:
                    start, length = int(made.begin[block]) + (word & (1 << 20) - 1), word >> 20 & (1 << 11) - 1
                    found.append((start, length, word >> 31, target - (target >> 31 << 32), block, task))
    assert at == len(made.pieces) and made.blocks[-1] == len(made.tasks)
    return found


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("name", [*awkward_graphs(), "mixed"])
def test_every_arc_is_summed_once(name, groups, empty, monkeypatch):
    """Against the rows alone, 64 of which are put in order at a time; the first arc is not number 0."""
    monkeypatch.setattr(narrow_row_schedule, "SLAB", 64)
    lengths = lengths_of() if name == "mixed" else np.diff(awkward_graphs()[name].indptr)
    indptr, tuning = pointer(lengths, 7), BundleTuning(longest=512, whole=128, task=64, window=512, block=2_048)
    made = bundled(np, indptr, groups, tuning, 1, empty=empty)
    found = read(made, groups)
    rows_of_slots = np.repeat(made.split_rows, np.diff(made.split_first)) if made.slots else []
    covered = {}
    for start, length, whole, target, *_ in found:
        row = target if target >= 0 else rows_of_slots[~target]
        covered.setdefault(int(row), []).append((start, length))
        assert whole == (groups > 1 and length > tuning.whole) and length <= tuning.longest
    assert sorted(~target for _, _, _, target, *_ in found if target < 0) == list(range(made.slots))
    wanted = [row for row, length in enumerate(lengths) if length or empty]
    assert sorted(covered) == wanted
    for row, parts in covered.items():
        arcs = np.concatenate([np.arange(start, start + length) for start, length in sorted(parts)])
        assert np.array_equal(arcs, np.arange(indptr[row], indptr[row + 1])), row
        assert len(parts) == max(1, -(-lengths[row] // tuning.longest))
    # Within a task lengths fall, and only neighbors meet in a block.
    for (_, length, _, _, _, task), (_, after, _, _, _, later) in pairwise(found):
        assert task != later or after <= length
    for block in range(len(made.begin)):
        arcs = sum(length for _, length, _, _, number, _ in found if number == block)
        assert arcs <= tuning.block + tuning.window + tuning.longest


def test_summation_order_does_not_depend_on_the_gpu():
    """How a row is cut, and whether a warp sums it alone, are the same with any number of multiprocessors."""
    indptr = pointer(lengths_of())
    first, second = (sorted(each[:4] for each in read(bundled(np, indptr, 8, processors=n), 8)) for n in (1, 132))
    assert first == second


def test_rows_of_similar_length_share_a_bundle():
    lengths = np.random.default_rng(1).integers(0, 64, 20_000)
    pieces = bundled(np, pointer(lengths), 8, processors=1).pieces.reshape(-1, 8, 2)
    sizes = pieces[..., 0] >> 20 & (1 << 11) - 1
    idle = (sizes.max(axis=1, keepdims=True).astype(int) - sizes).sum()
    assert idle <= 0.02 * lengths.sum()


def test_too_many_pieces_are_refused():
    rows = np.broadcast_to(np.int64(0), 2**28 + 1)
    with pytest.raises(InputError, match="use more PEs"):
        bundled(np, rows, 32)


def test_lanes_follow_the_loads_of_a_row():
    cases = {(1, 1): 1, (3, 4): 1, (8, 1): 8, (9, 1): 0, (16, 4): 4, (17, 4): 8, (32, 4): 8, (33, 4): 0, (65, 8): 0}
    assert {each: lanes_of(*each) for each in cases} == cases and lanes_of(64, 8) == 8


@pytest.mark.parametrize("groups", [4, 16])
def test_memory_is_predicted(groups, monkeypatch):
    """The arrays themselves, apart from what making them takes."""
    monkeypatch.setattr(narrow_row_schedule, "OF_PIECE", 0)
    monkeypatch.setattr(narrow_row_schedule, "OF_PLACE", 0)
    lengths = np.random.default_rng(0).pareto(1.1, 100_000).astype(np.int64) * 40
    taken = bundled(np, pointer(lengths), groups).nbytes
    assert abs(bundle_bytes(lengths, groups) - taken) <= 0.2 * taken


def narrow(shapes, before=""):
    """The kernels of some shapes, for the host."""
    few = " ".join(f"F{shape}" for shape in shapes)
    text = f'{before}#include "mgg/bundles.cuh"\n#undef MGG_NARROW_SHAPES\n#define MGG_NARROW_SHAPES(F) {few}\n'
    return build("narrow_rows", text)


@pytest.fixture(scope="module")
def floats():
    return narrow(SHAPES)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize(("lanes", "vector"), SHAPES)
def test_fp32_kernel_matches_float64(floats, lanes, vector, accumulate, weighted):
    """Columns end within a load; two tiles of the widest shape."""
    columns = lanes * vector * (1 + (lanes == 8)) - (vector > 1)
    b = np.random.default_rng(3).uniform(-1, 1, (90, columns)).astype(np.float32)
    check(floats, lanes, vector, accumulate, weighted, b, b)


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "vector"), BF16_SHAPES)
def test_bf16_kernel_matches_float64(lanes, vector):
    b = to_bf16(np.random.default_rng(4).uniform(-1, 1, (90, lanes * vector - 1)).astype(np.float32))
    check(narrow(BF16_SHAPES, "#define MGG_BF16\n"), lanes, vector, 0, True, b, from_bf16(b))


def check(library, lanes, vector, accumulate, weighted, b, values):
    """The product of a matrix with rows of all lengths, twice, against float64."""
    rng, columns, groups = np.random.default_rng(0), b.shape[1], 32 // lanes
    lengths = lengths_of(count=150)
    indptr = pointer(lengths, 7)
    indices = rng.integers(0, 90, indptr[-1]).astype(np.int32)
    weights = rng.standard_normal(indptr[-1]).astype(np.float32) if weighted else None
    made = bundled(np, indptr, groups, BundleTuning(block=20_000), 1, empty=not accumulate)
    stride = -(-columns // vector) * vector
    padded = aligned(90, stride, b.dtype)
    padded[:, :columns] = b
    before = rng.uniform(-1, 1, (len(lengths), columns)).astype(np.float32)
    tiles, results = -(-columns // (lanes * vector)), []
    for _ in range(2):
        c, partial = before.copy() if accumulate else np.full_like(before, np.nan), aligned(made.slots, 64, np.float32)
        launch(
            library, f"spmm_narrow_{lanes}_{vector}" + "_weighted" * weighted, ((len(made.blocks) - 1) * tiles, 1), 64,
            made.tasks, made.blocks, made.begin, made.pieces, indices, weights, padded, np.int32(stride), c,
            np.int32(columns), partial, np.int32(64), np.int32(columns), np.int32(tiles), np.int32(accumulate),
        )  # fmt: skip
        for row, first, last in zip(made.split_rows, made.split_first, made.split_first[1:], strict=False):
            c[row] = partial[first:last, :columns].sum(axis=0, dtype=np.float64) + accumulate * before[row]
        results.append(c)
    product, scale = expected_product(
        Csr(indptr - 7, indices[7:], None if weights is None else weights[7:], 90).to_scipy(np.float64), values
    )
    assert len(made.blocks) > 2 and made.slots
    assert scaled_error(results[0], product + accumulate * before, scale + accumulate * np.abs(before)) <= 1e-6
    assert np.array_equal(results[0].view(np.int32), results[1].view(np.int32))


def aligned(rows, stride, dtype):
    """A matrix at a multiple of 16 bytes; what nobody writes is no number."""
    item = np.dtype(dtype).itemsize
    space = np.full(rows * stride + 16 // item, np.nan if item == 4 else 0x7FC0, dtype)
    first = -space.ctypes.data % 16 // item
    return space[first : first + rows * stride].reshape(rows, stride)
