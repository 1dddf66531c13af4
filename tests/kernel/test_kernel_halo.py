"""The order of work of technique halo's kernel: every arc once, early work without the halo, late work in its order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import awkward_graphs, products, random_csr

from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.kernel.halo import CUT_FROM, MOST_PULLED, halo_schedule
from mgg.kernel.schedule import PIECES_PER_TASK

GRAPHS = awkward_graphs() | {"cut rows": random_csr(600, 100_000, weighted=True)}


def worked_off(schedule, halo_first, matrix, rows):
    """What the kernel computes from the matrix of local rows and halo, checking that nothing is done twice."""
    c, parts = np.full((rows, 3), np.nan), np.full((schedule.slots, 3), np.nan)
    for task, (first, count) in enumerate(schedule.tasks):
        assert 1 <= count <= PIECES_PER_TASK
        for piece in range(first, first + count):
            arcs = slice(schedule.begin[piece], schedule.begin[piece + 1])
            columns = schedule.indices[arcs]
            seen = int(columns.max(initial=-1)) - halo_first + 1
            assert seen <= (0 if task < schedule.early_tasks else schedule.reach[task - schedule.early_tasks])
            weights = 1 if schedule.weights is None else schedule.weights[arcs, None].astype(np.float64)
            to = schedule.target[piece]
            where = (c, to) if to >= 0 else (parts, -1 - to)
            assert np.isnan(where[0][where[1]]).all()
            where[0][where[1]] = (matrix[columns] * weights).sum(axis=0)
    for i, row in enumerate(schedule.split_rows):
        assert np.isnan(c[row]).all()
        c[row] = parts[schedule.split_first[i] : schedule.split_first[i + 1]].sum(axis=0)
    return c


def check(csr, pes, task, empty=True):
    bounds = np.linspace(0, csr.rows, pes + 1).astype(np.int64)
    height = int(np.diff(bounds).max())
    b = np.random.default_rng(0).random((csr.columns, 3))
    expected = csr.to_scipy(np.float64) @ b
    for pe, product in enumerate(products(csr, bounds)):
        schedule = halo_schedule(product.local, product.remote, height, task, empty=empty)
        owners = np.repeat(np.arange(pes), np.diff(product.halo_ptr))
        matrix = np.full((height + product.halo, 3), np.nan)
        matrix[: product.rows] = b[bounds[pe] : bounds[pe + 1]]
        matrix[height:] = b[(bounds[owners] + product.halo_rows)[schedule.pulled]]
        assert sorted(schedule.pulled) == list(range(product.halo))
        found = worked_off(schedule, height, matrix, product.rows)
        untouched = np.isnan(found).all(axis=1)
        assert np.array_equal(
            untouched, ~(np.diff(product.local.indptr) + np.diff(product.remote.indptr) > 0) & (not empty)
        )
        assert np.allclose(np.nan_to_num(found), expected[bounds[pe] : bounds[pe + 1]], rtol=1e-10)


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_schedule_gives_the_product(name, pes):
    for task, empty in ((None, True), (32, True), (32, False)):
        check(GRAPHS[name], pes, task, empty)


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(0, 3_000), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_random_graphs_give_the_product(nodes, arcs, pes, seed, weighted):
    check(random_csr(nodes, arcs, seed=seed, weighted=weighted), pes, 32)


def test_blocks_wait_for_their_chunk_and_earlier_ones():
    product = products(random_csr(4_000, 60_000), np.array([0, 1_000, 4_000]))[0]
    schedule = halo_schedule(product.local, product.remote, 3_000, 64)
    starts, early, needs = schedule.blocks(4)
    assert starts[0] == 0 and starts[-1] == len(schedule.tasks) and starts[early] == schedule.early_tasks
    assert np.diff(starts).max() <= 4 and np.diff(starts).min() >= 1
    assert len(needs) == len(starts) - 1 - early and np.all(np.diff(needs) >= 0) and needs[-1] == product.halo
    # Rows are in order of first use, so the first blocks need few of them.
    assert needs[0] < product.halo / 4


def test_only_long_rows_with_both_kinds_of_arcs_are_cut():
    csr = GRAPHS["cut rows"]
    product = products(csr, np.array([0, 300, 600]))[0]
    schedule = halo_schedule(product.local, product.remote, 300, 512)
    lengths = np.diff(product.local.indptr) + np.diff(product.remote.indptr)
    both = (np.diff(product.local.indptr) > 0) & (np.diff(product.remote.indptr) > 0)
    assert set(schedule.split_rows) >= set(np.flatnonzero(both & (lengths >= CUT_FROM)))
    assert not set(schedule.split_rows) & set(np.flatnonzero(lengths < min(CUT_FROM, 512)))


def bare(lengths, columns=1):
    """A CSR that has row pointers alone."""
    return Csr(np.concatenate(([0], np.cumsum(lengths))), np.empty(0, np.int32), None, columns)


@pytest.mark.parametrize(("local", "remote"), [(2**36, 0), (2**35, 2**35)])
def test_pieces_beyond_int32_are_refused(local, remote):
    """Those of early and of late work together: each alone may be fewer."""
    said = rf"1 rows on one PE make {2**31} pieces of work; 2\^31 - 1 are possible: use more PEs"
    with pytest.raises(InputError, match=said):
        halo_schedule(bare([local]), bare([remote]), 1, 32)


def test_halos_beyond_int32_are_refused():
    """What pull.cu adds to the last row: a chunk, a 32nd of the halo in whole blocks, or a run of each of its warps."""
    assert MOST_PULLED + MOST_PULLED // 32 + 2**20 < 2**31
    with pytest.raises(InputError, match=f"one PE needs {MOST_PULLED + 1} rows of others; {MOST_PULLED} are possible"):
        halo_schedule(bare([1]), bare([0], MOST_PULLED + 1), 1)
