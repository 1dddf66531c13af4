"""The order of work of technique cola's kernel, and the kernel's own steps: every arc once, every row fetched once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.graphs import awkward_graphs, random_csr
from support.ranks import changed_environment

from mgg.graph.csr import Csr
from mgg.kernel.cola import HUB_ARCS, column_schedule
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.layout.split import transposed

SUPPORT = Path(__file__).parents[1] / "support"


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
def test_every_arc_of_the_chosen_columns_comes_once(name):
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
def test_tasks_take_every_light_column_once(name):
    columns = GRAPHS[name]
    schedule = column_schedule(columns, np.arange(columns.rows), np.zeros(columns.rows, np.uint64))
    first, count = schedule.tasks.T
    assert np.array_equal(first, np.cumsum(count) - count) and count.sum() == schedule.light
    assert count.min(initial=1) >= 1 and count.max(initial=0) <= PIECES_PER_TASK
    arcs = schedule.begin[first + count] - schedule.begin[first]
    assert arcs.max(initial=0) < LARGEST_TASK + HUB_ARCS


def spread(begin, first, count, rows_a_batch, window):
    """What a warp of kernels/aggregate/cola.cu does with a task, in its own steps: (arc, column) as they are added.

    ``begin`` ends in the last arc; a batch is ``rows_a_batch`` rows in one of two buffers, or in one that holds all.
    """
    places = rows_a_batch * (2 if rows_a_batch < 32 else 1)
    end = int(begin[first + count] - begin[first])
    lanes = [int(begin[first + lane] - begin[first]) if lane < count else end for lane in range(32)]
    stage = {column % places: column for column in range(min(rows_a_batch, count))}
    fetched, k, batch = list(stage.values()), 0, 0
    while batch * rows_a_batch < count:
        ahead = range((batch + 1) * rows_a_batch, min((batch + 2) * rows_a_batch, count))
        stage |= {column % places: column for column in ahead}
        fetched += ahead
        last = (batch + 1) * rows_a_batch
        stop = lanes[last] if last < 32 else end
        while k < stop:
            n = min(window, stop - k)
            for arc in range(k, k + n):
                column, step = batch * rows_a_batch, rows_a_batch // 2
                while step:
                    if lanes[column + step] <= arc:
                        column += step
                    step //= 2
                yield arc, stage[column % places]
            k += n
        batch += 1
    assert fetched == list(range(count)) and k == end


@pytest.mark.parametrize("window", [32, 64])
@pytest.mark.parametrize("rows_a_batch", [4, 8, 16, 32])
@pytest.mark.parametrize("name", ["hubs", "many short columns", "weighted", "large"])
def test_a_warp_adds_every_arc_with_the_row_of_its_column(name, rows_a_batch, window):
    columns = GRAPHS[name]
    schedule = column_schedule(columns, np.arange(columns.rows), np.zeros(columns.rows, np.uint64))
    for first, count in schedule.tasks[:200].tolist():
        begin = schedule.begin[first : first + count + 1] - schedule.begin[first]
        found = list(spread(schedule.begin, first, count, rows_a_batch, window))
        assert [arc for arc, _ in found] == list(range(begin[-1]))
        assert [column for _, column in found] == np.repeat(np.arange(count), np.diff(begin)).tolist()


def test_launches_pass_what_the_kernel_takes():
    """On stand-ins for CuPy: the kernel's parameters in their order and types, and what it computes from them."""
    command = [sys.executable, str(SUPPORT / "fake_gpu" / "run.py"), str(SUPPORT / "cola_launches.py")]
    environment = changed_environment({})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
