"""CAGNET's algorithms with replicas and in two dimensions: what moves, and the cost of the latter."""

from dataclasses import replace
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.devices.strict import StrictWorld
from support.graphs import make_layout, matrix, random_csr, relative_error
from support.programs.spmm_program import inputs

from mgg import layout
from mgg.aggregate import parse_options, prepare, technique
from mgg.backend import simulated
from mgg.cost.machines import H200
from mgg.cost.product import SplitCounts, Workload

FLOAT = 4


def of_replicas(bounds, arcs, dim, pes, copies):
    """Bytes by what moves them, from the ranges alone."""
    padded = np.diff(bounds).reshape(-1, copies).max(axis=1).sum()  # rows of a group's PEs
    rows = {
        # Each PE gets the padded rows of its mates, and gives sums back the same way.
        "all_gather": copies * (copies - 1) * padded,
        "reduce_scatter": copies * (copies - 1) * padded,
        # Each super-block goes to one PE of each other group.
        "broadcast": (pes // copies - 1) * copies * padded,
    }
    return {name: FLOAT * dim * count for name, count in rows.items()}


def of_grid(bounds, arcs, dim, pes, weighted):
    """The same of a grid (docs/concepts/techniques.md): rows are traded for slices and back, blocks broadcast."""
    side = isqrt(pes)
    width = [dim * (pe % side + 1) // side - dim * (pe % side) // side for pe in range(pes)]
    traded = 2 * sum(rows * (dim - mine) for rows, mine in zip(np.diff(bounds), width, strict=True))
    dense = (side - 1) * int(bounds[-1]) * dim
    sparse = (side - 1) * arcs * (2 if weighted else 1)
    return {"shift": FLOAT * int(traded), "broadcast": FLOAT * (dense + sparse)}


@settings(max_examples=16)
@given(
    st.integers(1, 50), st.integers(0, 400), st.sampled_from([(4, 2), (8, 2), (9, 3), (1, 0), (4, 0), (9, 0)]),
    st.integers(1, 7), st.integers(0, 10**6), st.booleans(),
)  # fmt: skip
def test_random_graphs_match_products_and_bytes(tmp_path_factory, nodes, arcs, sizes, dim, seed, weighted):
    """Ranges of different lengths, slices of different widths, some empty; rows that nobody wrote are not read."""
    pes, copies = sizes
    csr = random_csr(nodes, arcs, seed=seed, weighted=weighted)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes, scheme="edge_balanced")
    options = {"replication": copies} if copies else {"grid": True}

    def program(world):
        strict, part, found = StrictWorld(world), layout.load(folder, world.rank), []
        for direction in ("forward", "transpose"):
            plan = prepare("broadcast", strict, part, direction, 8, options)
            plan._input.local.fill(np.nan)
            plan.input(dim)[:] = strict.upload(inputs(part.node_ids, dim))
            before = dict(world.counters.bytes)
            result = strict.download(plan(dim))
            found.append((result, {k: count - before.get(k, 0) for k, count in world.counters.bytes.items()}))
        return found, part.bounds

    every = simulated.run(pes, program)
    bounds = every[0][1]
    expected = (of_replicas if copies else of_grid)(bounds, csr.arcs, dim, pes, copies or weighted)
    for number, a in enumerate((matrix(csr), matrix(csr).T.tocsr())):
        whole = np.concatenate([found[number][0] for found, _ in every])
        assert relative_error(whole, a, inputs(np.arange(nodes), dim)) <= 1e-6
        names = set().union(*(found[number][1] for found, _ in every))
        total = {name: sum(found[number][1].get(name, 0) for found, _ in every) for name in names}
        assert {k: count for k, count in total.items() if count} == {k: n for k, n in expected.items() if n}


def test_cost_adds_up_the_transfers():
    """Of four alike PEs, by the model's links: two trades of half the columns, two stages of blocks."""
    split = SplitCounts(
        rows=np.full(4, 100), arcs=np.full(4, 900), remote_arcs=np.full(4, 500), halo_rows=np.full(4, 200), members=8,
        outside_arcs=0, outside_rows=0, fused_rows=np.zeros(1, int),
    )  # fmt: skip
    work = Workload(split, 64, parse_options("broadcast", {"grid": True}))
    found, links = technique("broadcast").cost(work, H200), H200.links
    shift, broadcast = links["shift"], links["broadcast"]
    trades = 2 * (shift.latency + 100 * (shift.message + 128 / shift.bandwidth))
    dense = 2 * broadcast.latency + 400 * (broadcast.message + 128 / broadcast.bandwidth)
    sparse = 2 * broadcast.latency + 1800 * 4 / broadcast.bandwidth
    assert found.transfer == pytest.approx(trades + dense + sparse) and found.hidden == 0
    assert found.arithmetic == pytest.approx(H200.rates["rows"].seconds(1800, 400, 128, 256, 2))
    for other in (replace(split, members=2), replace(split, rows=np.full(3, 100), arcs=np.full(3, 900))):
        assert technique("broadcast").cost(replace(work, split=other), H200) is None
