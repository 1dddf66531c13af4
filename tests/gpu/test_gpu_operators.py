"""Kernels on one GPU against float64 products."""

import numpy as np
import pytest
from support.devices import gpus
from support.graphs import awkward_graphs, matrix, random_csr, relative_error

from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.kernel import cpu, narrow_row_schedule
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.cola import HUB_ARCS, column_schedule
from mgg.kernel.pitch import row_pitch
from mgg.kernel.random import Draws
from mgg.kernel.schedule import remote_sources
from mgg.kernel.wire import words
from mgg.layout.neighbor_partitions import NeighborPartitions, neighbor_partitions
from mgg.layout.split import transposed

cp = pytest.importorskip("cupy")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpus.count() == 0, reason="no GPU")]

DIMS = (1, 3, 4, 8, 16, 32, 41, 64, 100, 128, 256, 602)
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def operators():
    from mgg.kernel.cuda import CudaOperators

    return CudaOperators()


def hub_csr(arcs: int = 150_000) -> Csr:
    """Two long rows between short and empty ones."""
    rng = np.random.default_rng(5)
    lengths = np.array([0, 1, arcs, 0, 31, 32, 33, 511, 512, 513, 1025, arcs // 3, 2, 0])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    weights = rng.standard_normal(indptr[-1]).astype(np.float32)
    return Csr(indptr, rng.integers(0, 5_000, indptr[-1]).astype(np.int32), weights, 5_000)


GRAPHS = awkward_graphs() | {"long rows": hub_csr(), "large": random_csr(20_000, 600_000, seed=9)}


def embeddings(rows: int, dim: int) -> np.ndarray:
    return np.random.default_rng(dim).uniform(-1, 1, (rows, dim)).astype(np.float32)


def optional(array):
    return None if array is None else cp.asarray(array)


def padded(array: np.ndarray) -> "cp.ndarray":
    """The same matrix with rows padded by NaN to a multiple of four floats; no kernel may use the padding."""
    rows, dim = array.shape
    wide = cp.full((rows, -(-dim // 4) * 4 + 4), cp.nan, cp.float32)
    wide[:, :dim] = cp.asarray(array)
    return wide[:, :dim]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", GRAPHS)
def test_spmm_rows_matches_float64(operators, name, dim):
    csr = GRAPHS[name]
    b = embeddings(csr.columns, dim)
    indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices)
    for weights in (None, csr.weights) if csr.weights is not None else (None,):
        a = matrix(Csr(csr.indptr, csr.indices, weights, csr.columns))
        c = cp.full((csr.rows, dim), cp.nan, cp.float32)
        operators.spmm_rows(indptr, indices, optional(weights), cp.asarray(b), c, False)
        assert relative_error(c.get(), a, b) <= TOLERANCE
        again = cp.full((csr.rows, dim), cp.nan, cp.float32)
        operators.spmm_rows(indptr, indices, optional(weights), cp.asarray(b), again, False)
        assert cp.array_equal(c.view(cp.int32), again.view(cp.int32))
        operators.spmm_rows(indptr, indices, optional(weights), cp.asarray(b), again, True)
        assert cp.allclose(again, 2 * c, rtol=1e-6, atol=0)
        wide, beside = padded(b), padded(np.zeros((csr.rows, dim), np.float32))
        operators.spmm_rows(indptr, indices.astype(cp.int64), optional(weights), wide, beside, False)
        assert relative_error(beside.get(), a, b) <= TOLERANCE
        assert bool(cp.isnan(beside.base[:, dim:] if beside.base is not None else cp.nan).all())
        # Rows of B are read in loads of 16 bytes, however C is aligned; the sums are the same.
        operators.spmm_rows(indptr, indices, optional(weights), wide, again, False)
        assert cp.array_equal(again.view(cp.int32), cp.ascontiguousarray(beside).view(cp.int32))
        operators.spmm_rows(indptr, indices, optional(weights), wide, again, True)
        assert cp.allclose(again, 2 * beside, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("tile", [1, 4, 8, 32])
def test_tiled_spmm_rows_matches_float64(dim, tile):
    from mgg.kernel.cuda import CudaOperators
    from mgg.kernel.cuda.schedule import RowTuning

    csr = GRAPHS["long rows"]
    tiled = CudaOperators(RowTuning(tile=tile))
    b = embeddings(csr.columns, dim)
    indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices)
    for weights in (None, csr.weights):
        a = matrix(Csr(csr.indptr, csr.indices, weights, csr.columns))
        c = [cp.full((csr.rows, dim), cp.nan, cp.float32) for _ in range(2)]
        for one in c:
            tiled.spmm_rows(indptr, indices, optional(weights), cp.asarray(b), one, False)
        assert relative_error(c[0].get(), a, b) <= TOLERANCE
        assert cp.array_equal(c[0].view(cp.int32), c[1].view(cp.int32))
        tiled.spmm_rows(indptr, indices, optional(weights), cp.asarray(b), c[1], True)
        assert cp.allclose(c[1], 2 * c[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("groups", [4, 32])
@pytest.mark.parametrize("name", GRAPHS)
def test_narrow_row_schedule_equals_the_host(name, groups, empty, monkeypatch):
    monkeypatch.setattr(narrow_row_schedule, "SLAB", 500)
    indptr = GRAPHS[name].indptr
    found, expected = (
        vars(narrow_row_schedule.bundled(xp, xp.asarray(indptr), groups, processors=2, empty=empty)) for xp in (cp, np)
    )
    for field, array in expected.items():
        assert np.array_equal(cp.asnumpy(found[field]), array), field
        assert field == "slots" or found[field].dtype == array.dtype, field


@pytest.mark.parametrize("dim", (1, 3, 16, 41, 100, 602))
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("ps", [1, 16, None])
def test_spmm_partitions_and_columns_match_float64(operators, name, dim, ps):
    csr = GRAPHS[name]
    b = embeddings(csr.columns, dim)
    pieces = neighbor_partitions(csr.indptr, ps)
    acc, plain = cp.zeros((2, csr.rows, dim), cp.float32)
    given = (
        *(cp.asarray(each) for each in (pieces.rows, pieces.starts, pieces.stops, csr.indices)),
        optional(csr.weights),
    )
    for rows, out in ((cp.asarray(b), acc), (padded(b), plain)):
        operators.spmm_partitions(*given, rows, out)
    # One atomic sum per arc rounds more often than a tree does.
    longest = int(np.diff(csr.indptr).max(initial=1))
    loose = TOLERANCE * max(1.0, longest / 1000)
    assert max(relative_error(each.get(), matrix(csr), b) for each in (acc, plain)) <= loose
    if csr.rows != csr.columns or ps is None:
        return
    columns = transposed(csr).csr
    acc = cp.zeros((csr.rows, dim), cp.float32)
    pointer, rows, weights = cp.asarray(columns.indptr), cp.asarray(columns.indices), optional(columns.weights)
    for start in range(0, csr.rows, 1 + csr.rows // 3):  # in pieces, as cola does
        stop = min(start + 1 + csr.rows // 3, csr.rows)
        arcs = slice(int(columns.indptr[start]), int(columns.indptr[stop]))
        operators.spmm_columns(
            pointer[start : stop + 1], rows[arcs], None if weights is None else weights[arcs],
            cp.asarray(b)[start:stop], acc,
        )  # fmt: skip
    assert relative_error(acc.get(), matrix(csr), b) <= loose


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("ids", [np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_gather_rows_copies_rows_alone(operators, dim, dtype, ids):
    source = embeddings(5_000, dim) if dtype == np.float32 else to_bf16(embeddings(5_000, dim))
    rows = np.random.default_rng(0).integers(0, 5_000, 7_001).astype(ids)
    # More columns than are copied: the others stay as they are.
    out = cp.full((len(rows), dim + 3), 7, dtype)
    operators.gather_rows(cp.asarray(source), cp.asarray(rows), out[:, :dim])
    assert np.array_equal(out[:, :dim].get(), source[rows]) and (out[:, dim:] == 7).all()
    alone = cp.empty((len(rows), dim), dtype)  # aligned as the source is
    operators.gather_rows(cp.asarray(source), cp.asarray(rows), alone)
    assert np.array_equal(alone.get(), source[rows])


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("ids", [np.int32, np.int64, np.uint16])
def test_add_rows_equals_the_host(operators, dim, ids):
    source, before = embeddings(4_001, dim), embeddings(5_000, dim + 3)
    rows = np.random.default_rng(0).permutation(5_000)[:4_001].astype(ids)
    expected = before.copy()
    expected[rows, :dim] += source
    for first in (0, 3):  # aligned and unaligned rows
        out = cp.asarray(np.roll(before, first, 1))
        operators.add_rows(cp.asarray(source), cp.asarray(rows), out[:, first : first + dim])
        assert np.array_equal(np.roll(out.get(), -first, 1), expected)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_packed_rows_have_the_bits_of_the_host(operators, dim, bits, dtype):
    source = embeddings(5_000, dim) if dtype == np.float32 else to_bf16(embeddings(5_000, dim))
    rows, ids = np.random.default_rng(0).integers(0, 5_000, (2, 7_001))
    packed = np.zeros((len(rows), words(dim, bits)), np.uint32)
    cpu.pack_rows(source, rows, ids, Draws(3, 7, 5), bits, packed)
    found, unpacked = cp.zeros(packed.shape, cp.uint32), np.empty((len(rows), dim), dtype)
    draws = Draws(3, cp.full(1, 7.0), 5)
    operators.pack_rows(cp.asarray(source), cp.asarray(rows), cp.asarray(ids), draws, bits, found)
    assert np.array_equal(found.get(), packed)
    cpu.unpack_rows(packed, bits, unpacked)
    out = cp.full((len(rows), dim + 3), 7, dtype)
    operators.unpack_rows(found, bits, out[:, :dim])
    assert np.array_equal(out[:, :dim].get(), unpacked) and (out[:, dim:] == 7).all()


@pytest.mark.parametrize("dim", (1, 3, 8, 16, 41, 64, 100, 128, 602))
@pytest.mark.parametrize("name", GRAPHS)
def test_spmm_rows_of_bf16_matches_float64(operators, name, dim):
    csr = GRAPHS[name]
    b = embeddings(csr.columns, dim)
    bits, out = cp.empty(b.shape, cp.uint16), cp.full((csr.rows, dim), cp.nan, cp.float32)
    operators.write(cp.asarray(b), bits)
    assert np.array_equal(bits.get(), to_bf16(b))
    loose = TOLERANCE * max(1.0, int(np.diff(csr.indptr).max(initial=1)) / 1000)
    wide = cp.full((csr.columns, row_pitch(dim, 2) + 8), 0x7FC0, cp.uint16)[:, :dim]
    operators.write(cp.asarray(b), wide)
    assert np.array_equal(wide.get(), to_bf16(b)) and bool((wide.base[:, dim:] == 0x7FC0).all())
    for each in (bits, wide):
        operators.spmm_rows(cp.asarray(csr.indptr), cp.asarray(csr.indices), optional(csr.weights), each, out, False)
        assert relative_error(out.get(), matrix(csr), from_bf16(to_bf16(b))) <= loose


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("first", [0, 1])
def test_write_copies_rows_and_keeps_the_padding(operators, dim, first):
    """From and to rows of any alignment; their padding stays as it is."""
    flat = embeddings(1, 999 * dim + first).reshape(-1)
    values, whole = cp.asarray(flat)[first:].reshape(999, dim), cp.full((999, dim + 5), 7, cp.float32)
    for out in (whole[:, first : first + dim], cp.empty((999, dim), cp.float32)):
        operators.write(values, out)
        assert cp.array_equal(out, values)
    assert bool((whole[:, first + dim :] == 7).all() and (whole[:, :first] == 7).all())


def on_device(pieces: NeighborPartitions) -> NeighborPartitions:
    return NeighborPartitions(cp.asarray(pieces.rows), cp.asarray(pieces.starts), cp.asarray(pieces.stops))


def split(csr: Csr, first: int) -> tuple[Csr, Csr]:
    """The arcs with columns below ``first``, and the others, with columns that count from ``first``."""
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    parts = []
    for keep, base, width in ((csr.indices < first, 0, first), (csr.indices >= first, first, csr.columns - first)):
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[keep], minlength=csr.rows))])
        weights = None if csr.weights is None else csr.weights[keep]
        parts.append(Csr(indptr, csr.indices[keep] - csr.indices.dtype.type(base), weights, width))
    return parts[0], parts[1]


@pytest.mark.parametrize("dim", (1, 16, 41, 64, 100, 602))
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(
    "options",
    [
        {"ps": 16, "dist": 16, "wpb": 4},
        {"ps": 3, "dist": 1, "wpb": 16, "asynchronous": False},
        {"ps": 32, "dist": 5, "wpb": 2, "interleave": False},
        {"ps": None, "dist": 16, "wpb": 1},
    ],
    ids=["default", "synchronous", "separate", "whole rows"],
)
def test_mgg_kernel_matches_float64(operators, name, dim, options):
    """PE 0 of three has the first rows, peers 1 and 2 have the others, all in this GPU's memory."""
    csr = GRAPHS[name]
    mine = max(1, csr.columns // 3)
    local, remote = split(csr, mine)
    b = embeddings(csr.columns, dim)
    halves = [np.arange(0, remote.columns // 2), np.arange(remote.columns // 2, remote.columns)]
    placed = padded if dim in (41, 602) else cp.asarray  # padded, as plans pad them, and not
    copies = [placed(b[:mine]), *(placed(b[mine:][half]) for half in halves)]
    # CuPy gives no memory to an empty array; no arc asks for its rows.
    peers = cp.asarray(np.array([copy.data.ptr for copy in copies], np.uint64))
    halo_ptr = np.array([0, 0, len(halves[0]), remote.columns])
    halo_rows = np.concatenate([np.arange(len(half)) for half in halves])
    out = cp.full((csr.rows, dim), cp.nan, cp.float32)
    operators.mgg(
        on_device(neighbor_partitions(local.indptr, options["ps"])), cp.asarray(local.indices), optional(local.weights),
        on_device(neighbor_partitions(remote.indptr, options["ps"])),
        cp.asarray(remote_sources(remote.indices, halo_ptr, halo_rows)), optional(remote.weights),
        copies[0], peers, out, **options,
    )  # fmt: skip
    loose = TOLERANCE * max(1.0, int(np.diff(csr.indptr).max(initial=1)) / 1000)
    assert relative_error(out.get(), matrix(csr), b) <= loose


COLUMNS = GRAPHS | {
    "hubs alone": transposed(Csr(np.arange(0, 4) * 2 * HUB_ARCS, np.arange(6 * HUB_ARCS) % 90, None, 90)).csr,
    "one arc a column": random_csr(40_000, 30_000, seed=3),
}


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(("holders", "ids"), [(1, np.int64), (5, np.int32)])
def test_cola_kernel_matches_float64(operators, name, dim, holders, ids):
    """The rows are in several matrices in this GPU's memory; some columns are empty, some are hubs."""
    csr = COLUMNS[name]
    b, nodes = embeddings(csr.columns, dim), np.arange(csr.columns)
    copies = [cp.asarray(np.ascontiguousarray(b[holder::holders])) for holder in range(holders)]
    addresses = cp.asarray(np.array([copy.data.ptr for copy in copies], np.uint64))
    sources = (nodes % holders).astype(np.uint64) << np.uint64(48) | (nodes // holders).astype(np.uint64)
    loose = TOLERANCE * max(1.0, int(np.diff(csr.indptr).max(initial=1)) / 1000)
    if name == "hubs alone":  # rows of three nodes' embeddings, 23 times each, whose sums all round the same way
        loose *= 4
    for weights in (None, csr.weights) if csr.weights is not None else (None,):
        bare = Csr(csr.indptr, csr.indices.astype(ids), weights, csr.columns)
        chosen = np.random.default_rng(0).permutation(nodes)
        kernel = operators.cola_kernel(column_schedule(transposed(bare).csr, chosen, sources[chosen]), addresses)
        acc = cp.zeros((csr.rows, dim), cp.float32)
        kernel(copies[0], acc)
        assert relative_error(acc.get(), matrix(bare), b) <= loose
        once = acc.copy()
        kernel(copies[0], acc)  # the schedule is cached now, and the kernel adds to ``acc``
        assert relative_error((acc - once).get(), matrix(bare), b) <= 4 * loose


def test_cola_kernel_ignores_padding(operators):
    """Loads of 16 bytes read the padding of a row, and no sum includes it."""
    csr = GRAPHS["large"]
    columns = transposed(csr).csr
    for dim in (3, 41, 130):
        b = embeddings(csr.columns, dim)
        wide, acc = padded(b), padded(np.zeros((csr.rows, dim), np.float32))
        kernel = operators.cola_kernel(
            column_schedule(columns, np.arange(csr.columns), np.arange(csr.columns, dtype=np.uint64)),
            cp.asarray(np.array([wide.data.ptr], np.uint64)),
        )
        kernel(wide, acc)
        assert relative_error(acc.get(), matrix(csr), b) <= TOLERANCE
        assert bool(cp.isnan(acc.base[:, dim:]).all())
        plain = cp.zeros((csr.rows, dim), cp.float32)
        kernel(wide, plain)
        assert relative_error(plain.get(), matrix(csr), b) <= TOLERANCE


def test_block_beyond_shared_memory_is_refused(monkeypatch):
    from mgg.kernel.cuda import CudaOperators

    operators = CudaOperators()
    monkeypatch.setattr(operators, "shared_memory", 40_000)
    pieces, ids = on_device(neighbor_partitions(np.array([0, 1]), 32)), cp.zeros(1, cp.int32)
    b, out, none = cp.ones((1, 128), cp.float32), cp.empty((1, 128), cp.float32), cp.zeros(1, cp.uint64)

    def launch(wpb: int) -> None:
        operators.mgg(pieces, ids, None, pieces[:0], none[:0], None, b, none, out, ps=32, dist=1, wpb=wpb)

    with pytest.raises(InputError, match=r"wpb = 16, D = 128 take 81920 bytes .* this GPU has 40000: lower wpb"):
        launch(16)
    launch(4)
    assert bool((out == 1).all())


def test_row_tuning_follows_columns_and_mean_row_length():
    from mgg.kernel.cuda import CudaOperators
    from mgg.kernel.cuda.schedule import RowTuning, row_tuning

    assert row_tuning(32, 500) == row_tuning(47, 199) == RowTuning()
    assert row_tuning(48, 500) == row_tuning(95, 199) == RowTuning(tasks_per_block=24)
    assert row_tuning(96, 199) == RowTuning(tasks_per_block=12)
    assert row_tuning(64, 200) == row_tuning(256, 458) == RowTuning(tile=8, tasks_per_block=24)
    operators, slice_ = CudaOperators(), cp.arange(1_000, 2_001, 200)
    for columns in (64, 128, 64):
        assert operators.schedule(slice_, columns)[0] == row_tuning(columns, 200)
    assert CudaOperators(RowTuning(tile=4)).schedule(slice_, 128)[0] == RowTuning(tile=4)


def test_arrays_of_wrong_type_or_order_are_refused(operators):
    wide = cp.zeros((4, 8), cp.float32)
    ids = cp.zeros(1, cp.int32)
    with pytest.raises(ValueError, match="row-major float32"):
        operators.gather_rows(wide.T, ids, cp.zeros((1, 4), cp.float32))
    with pytest.raises(ValueError, match="rows of float32 are copied as they are, not to uint16"):
        operators.gather_rows(wide, ids, cp.zeros((1, 8), cp.uint16))
    with pytest.raises(ValueError, match="int32 or int64"):
        operators.spmm_rows(cp.arange(5), ids.astype(cp.uint32), None, wide, wide, False)
