"""The order of work of technique halo's kernel: every arc once, early work without the halo, late work in its order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import awkward_graphs, products, random_csr

from mgg.kernel.halo import halo_schedule, waiting_rows
from mgg.kernel.schedule import PIECES_PER_TASK

GRAPHS = awkward_graphs() | {"cut rows": random_csr(600, 200_000, weighted=True)}


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


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("task", [None, 32])
@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_schedule_gives_the_product(name, pes, task, empty):
    check(GRAPHS[name], pes, task, empty)


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(0, 3_000), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_random_graphs(nodes, arcs, pes, seed, weighted):
    check(random_csr(nodes, arcs, seed=seed, weighted=weighted), pes, 32)


def test_blocks_wait_for_what_they_and_those_before_them_need():
    product = products(random_csr(4_000, 60_000), np.array([0, 1_000, 4_000]))[0]
    schedule = halo_schedule(product.local, product.remote, 3_000, 64)
    starts, early, needs = schedule.blocks(4)
    assert starts[0] == 0 and starts[-1] == len(schedule.tasks) and starts[early] == schedule.early_tasks
    assert np.diff(starts).max() <= 4 and np.diff(starts).min() >= 1
    assert len(needs) == len(starts) - 1 - early and np.all(np.diff(needs) >= 0) and needs[-1] == product.halo
    # Rows are in order of first use, so the first blocks need few of them.
    assert needs[0] < product.halo / 4


def test_rows_that_do_not_wait_as_a_whole_are_cut():
    csr = GRAPHS["cut rows"]  # of about 225 arcs
    product = products(csr, np.array([0, 300, 600]))[0]
    schedule = halo_schedule(product.local, product.remote, 300, 512)
    locals_, remotes = np.diff(product.local.indptr), np.diff(product.remote.indptr)
    cut = (remotes > 0) & ~waiting_rows(locals_, remotes)
    assert set(schedule.split_rows) == set(np.flatnonzero(cut)) and cut.any()


@pytest.mark.parametrize(("arcs", "limit"), [(600, 512), (300, 256), (200, 128), (100, 64), (40, 64)])
def test_shorter_rows_are_cut_where_nearly_all_would_wait(arcs, limit):
    """All rows have a remote arc, and as many arcs but for a tenth of them, which have 50."""
    locals_ = np.where(np.arange(1000) % 10 == 0, 50, arcs - 1)
    waits = waiting_rows(locals_, np.ones(1000, int))
    assert np.array_equal(waits, locals_ + 1 < limit)
    # Rows without remote arcs wait for nothing, and those without local ones have nothing else to do.
    remotes = np.arange(1000) % 2
    waits = waiting_rows(np.where(np.arange(1000) < 500, locals_, 0), remotes)
    assert not waits[remotes == 0].any() and waits[500:][remotes[500:] == 1].all()


def test_where_much_has_not_to_wait_rows_stay_whole():
    waits = waiting_rows(np.full(1000, 300), (np.arange(1000) % 10 < 7).astype(int))
    assert waits.sum() == 700
