"""kernels/aggregate/rows.cu, columns.cu and mgg.cu, compiled for the host: every arc is summed once, by some warp."""

import ctypes

import numpy as np
import pytest
from support.devices.on_host import build, launch
from support.graphs import expected_product, random_csr, relative_error, scaled_error

from mgg.graph.csr import Csr
from mgg.kernel.requests import bounds, merged
from mgg.kernel.schedule import row_schedule
from mgg.layout.split import transposed

#: Lanes a row and floats a load: windows of 32 and of 64 arcs, tasks asked for one ahead and two; not all instances.
SHAPES = [(4, 4), (8, 1), (16, 2), (32, 1)]
FEW = '#include "mgg/warp.cuh"\n#undef MGG_SHAPES\n#define MGG_SHAPES(F) ' + " ".join(f"F{shape}" for shape in SHAPES)
#: The kernel's shared memory, whose size is the launch's.
SHARED = """
#undef __shared__
#define __shared__
namespace mgg { alignas(16) float shared[1 << 16]; }
extern "C" { float *host_shared() { return mgg::shared; } }
"""
BOTH = pytest.mark.parametrize("weighted", [False, True])


@pytest.fixture(scope="module")
def mgg():
    library = build("mgg", "#define MGG_MERGE 1\n" + SHARED)
    library.host_shared.restype = ctypes.POINTER(ctypes.c_float)
    return library


def matrix(height, width, stride, seed=0):
    """Rows as the kernels take them, ``stride`` floats apart and aligned to 16 bytes; what pads them is no number."""
    space = np.full(height * stride + 4, np.nan, np.float32)
    first = -space.ctypes.data % 16 // 4
    made = space[first : first + height * stride].reshape(height, stride)
    made[:, :width] = np.random.default_rng(seed).uniform(-1, 1, (height, width))
    return made


def weights_of(arcs, weighted):
    return np.random.default_rng(1).standard_normal(arcs).astype(np.float32) if weighted else None


def shape_of(lanes, vector):
    """Columns that end within a tile, elements from row to row, tiles: two where a tile has few lanes."""
    width = lanes * vector * (2 if lanes < 32 else 1) - vector - (vector > 1)
    return width, -(-width // 4) * 4, -(-width // (lanes * vector))


@BOTH
@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize(("lanes", "vector"), SHAPES)
def test_row_kernel_matches_float64(lanes, vector, accumulate, weighted):
    """Rows of every length around a window's, one far longer than a task; the first arc is not number 0."""
    rng = np.random.default_rng(0)
    lengths = np.append(rng.choice([0, 1, 5, 31, 32, 33, 63, 64, 65, 129, 700], 150), 3_000)
    indptr = np.concatenate([[7], 7 + np.cumsum(lengths)])
    indices = rng.integers(0, 90, indptr[-1]).astype(np.int32)
    weights = weights_of(indptr[-1], weighted)
    schedule = row_schedule(indptr, 512)
    width, stride, tiles = shape_of(lanes, vector)
    b, c, partial = (matrix(height, width, stride, n) for n, height in enumerate((90, len(lengths), schedule.slots)))
    before = c[:, :width].astype(np.float64) * accumulate
    blocks = schedule.blocks(-(-len(schedule.tasks) // 2))
    rows = build("rows", FEW)
    launch(
        rows, f"spmm_rows_{lanes}_{vector}" + "_weighted" * weighted, (len(blocks) - 1, tiles), 384,
        schedule.tasks, blocks, schedule.begin, schedule.target, indices, weights, b, np.int32(stride), c,
        np.int32(stride), partial, np.int32(stride), np.int32(0), np.int32(width), np.int32(accumulate),
    )  # fmt: skip
    launch(
        rows, "spmm_rows_combine_4", (-(-len(schedule.split_rows) // 8), -(-width // 128)), 256,
        schedule.split_rows, schedule.split_first, np.int32(len(schedule.split_rows)), partial, np.int32(stride), c,
        np.int32(stride), np.int32(width), np.int32(accumulate),
    )  # fmt: skip
    csr = Csr(indptr - 7, indices[7:], None if weights is None else weights[7:], 90)
    product, scale = expected_product(csr.to_scipy(np.float64), b[:, :width])
    assert len(schedule.split_rows) and len(schedule.tasks) > 2 * 12, "warps take more than one task"
    assert scaled_error(c[:, :width], product + before, scale + np.abs(before)) <= 1e-6


@BOTH
@pytest.mark.parametrize(("lanes", "vector"), SHAPES)
def test_column_kernel_matches_float64(lanes, vector, weighted):
    """More columns than 32 times 32, so that the search for a warp's first one takes several steps; part of a CSC."""
    whole = transposed(random_csr(3_000, 4_000)).csr
    first, last = 500, 2_900
    arcs = slice(whole.indptr[first], whole.indptr[last])
    pointer, targets = whole.indptr[first : last + 1].astype(np.int64), whole.indices[arcs].astype(np.int32)
    weights = weights_of(len(targets), weighted)
    width, stride, tiles = shape_of(lanes, vector)
    b, acc = matrix(last - first, width, stride), np.zeros((3_000, stride), np.float32)
    columns = build("columns", FEW)
    launch(
        columns, f"spmm_columns_{lanes}_{vector}" + "_weighted" * weighted, (-(-len(targets) // (128 * 8)), tiles), 256,
        pointer, np.int64(last - first), targets, weights, b, np.int32(stride), acc, np.int32(stride), np.int32(0),
        np.int32(width),
    )  # fmt: skip
    a = Csr(pointer - pointer[0], targets, weights, 3_000).to_scipy(np.float64).T
    assert (np.diff(pointer) == 0).any() and pointer[0] > 0
    assert relative_error(acc[:, :width], a.tocsr(), b[:, :width]) <= 1e-6


def requested(shares, sources, dist, wpb, interleave, stride):
    """What blocks ask for once, with room for it, and where the arcs find it: behind the copies of three PEs."""
    at = bounds(int(shares[0].count), int(shares[1].count), dist, wpb, interleave)
    wanted, first, place = merged(sources, np.append(shares[1].starts, len(sources))[at])
    return (wanted, first, matrix(len(wanted), 0, stride)), np.uint64(3 << 48) | place.astype(np.uint64)


class Share:
    """Neighbor partitions of one kind, in row order; rows have several, and some partitions are empty or long."""

    def __init__(self, count, height, weighted, seed):
        rng = np.random.default_rng(seed)
        lengths = rng.choice([0, 1, 3, 16, 33, 70], count)
        self.rows = np.sort(rng.integers(0, height, count))
        self.stops = np.cumsum(lengths, dtype=np.int64)
        self.starts, self.count = self.stops - lengths, np.int64(count)
        self.targets = np.repeat(self.rows, lengths)
        self.weights = weights_of(len(self.targets), weighted)
        self.nodes, self.owners = rng.integers(0, 60, len(self.targets)), rng.choice([0, 2], len(self.targets))

    @property
    def arguments(self):
        return self.rows, self.starts, self.stops, self.count

    def add(self, out, scale, sources):
        """What the arcs, of these rows of B, make of the product; ``scale``: of their absolute values."""
        terms = sources.astype(np.float64) * (1 if self.weights is None else self.weights[:, None])
        np.add.at(out, self.targets, terms)
        np.add.at(scale, self.targets, np.abs(terms))


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize(
    ("local", "remote", "dist", "wpb"),
    [(300, 37, 16, 4), (5, 200, 3, 2), (0, 40, 7, 1), (40, 0, 16, 4), (33, 32, 32, 1)],
)
def test_mgg_kernel_sums_every_partition_once(mgg, local, remote, dist, wpb, interleave, asynchronous, merge):
    """By the warp that it falls to: with both kinds in equal shares, and with the local ones first."""
    height, weighted = 50, (merge + asynchronous + interleave) % 2
    shares = [Share(count, height, weighted, seed) for seed, count in enumerate((local, remote))]
    needs = [-(-count // dist) for count in (local, remote)]
    warps = -(-max(local, remote) // dist) if interleave else sum(needs)
    for lanes, vector in ((4, 4), (32, 1)):
        width, stride, tiles = shape_of(lanes, vector)
        copies = [matrix(60, width, stride, seed) for seed in range(3)]
        out, stage = np.zeros((height, stride), np.float32), 8
        sources = shares[1].owners.astype(np.uint64) << np.uint64(48) | shares[1].nodes.astype(np.uint64)
        peers = np.array([copy.ctypes.data for copy in copies], np.uint64)
        requests = [None] * 3
        if merge:
            requests, sources = requested(shares, sources, dist, wpb, interleave, stride)
            peers = np.append(peers, np.uint64(requests[2].ctypes.data))
        taken = wpb * (2 + stage) * lanes * vector
        np.ctypeslib.as_array(mgg.host_shared(), (taken,))[:] = np.nan  # nothing is there before it is written
        launch(
            mgg, f"mgg_{lanes}_{vector}" + "_weighted" * weighted, (-(-warps // wpb), tiles), 32 * wpb,
            *shares[0].arguments, shares[0].nodes.astype(np.int32), shares[0].weights, *shares[1].arguments, sources,
            shares[1].weights, *requests, copies[1], peers, np.int32(stride), out, np.int32(stride), np.int32(0),
            np.int32(width), np.int32(dist), np.int32(interleave), np.int32(asynchronous), np.int32(stage),
        )  # fmt: skip
        expected, scale = np.zeros((2, height, width))
        shares[0].add(expected, scale, copies[1][shares[0].nodes, :width])
        every = np.stack(copies)
        shares[1].add(expected, scale, every[shares[1].owners, shares[1].nodes, :width])
        assert np.all(np.abs(out[:, :width] - expected) <= 1e-6 * scale)
