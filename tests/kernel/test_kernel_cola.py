"""The order of work of technique cola's kernel: every arc once, every row fetched once."""

import numpy as np
import pytest
from support.graphs import awkward_graphs, random_csr

from mgg.graph.csr import Csr
from mgg.kernel.cola import HUB_ARCS, column_schedule
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.layout.split import transposed


def of_lengths(lengths, rows=200):
    """The transpose of a weighted matrix whose columns have the given numbers of arcs."""
    rng = np.random.default_rng(len(lengths))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    weights = rng.standard_normal(indptr[-1]).astype(np.float32)
    return Csr(indptr, rng.integers(0, rows, indptr[-1]).astype(np.int32), weights, rows)


EDGES = [0, 1, HUB_ARCS - 1, HUB_ARCS, HUB_ARCS + 1, 0, 7, 5 * HUB_ARCS, 0]
GRAPHS = {name: transposed(csr).csr for name, csr in awkward_graphs().items()} | {
    "hubs": of_lengths(EDGES),
    "hubs alone": of_lengths([3 * HUB_ARCS] * 3),
    "many short columns": of_lengths(np.arange(3_000) % 4),
    "large": transposed(random_csr(20_000, 600_000, seed=9)).csr,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_schedule_has_every_arc_of_the_chosen_columns_once(name):
    columns = GRAPHS[name]
    chosen = np.random.default_rng(0).permutation(columns.rows)[: max(1, columns.rows * 2 // 3)]
    schedule = column_schedule(columns, chosen, chosen.astype(np.uint64) + np.uint64(1 << 48))
    lengths = np.diff(columns.indptr)
    kept = schedule.sources.astype(np.int64) - (1 << 48)
    assert kept[: schedule.light].tolist() == [j for j in chosen if 0 < lengths[j] < HUB_ARCS]
    assert kept[schedule.light :].tolist() == [j for j in chosen if lengths[j] >= HUB_ARCS]
    assert schedule.hubs == len(kept) - schedule.light
    for place, column in enumerate(kept):
        mine, theirs = slice(*schedule.begin[place : place + 2]), slice(*columns.indptr[column : column + 2])
        assert np.array_equal(schedule.rows[mine], columns.indices[theirs])
        assert columns.weights is None or np.array_equal(schedule.weights[mine], columns.weights[theirs])
    assert len(schedule.rows) == schedule.begin[-1] == lengths[kept].sum()


@pytest.mark.parametrize("name", GRAPHS)
def test_tasks_have_every_light_column_once(name):
    columns = GRAPHS[name]
    schedule = column_schedule(columns, np.arange(columns.rows), np.zeros(columns.rows, np.uint64))
    first, count = schedule.tasks.T
    assert np.array_equal(first, np.cumsum(count) - count) and count.sum() == schedule.light
    assert count.min(initial=1) >= 1 and count.max(initial=0) <= PIECES_PER_TASK
    arcs = schedule.begin[first + count] - schedule.begin[first]
    assert arcs.max(initial=0) < LARGEST_TASK + HUB_ARCS
