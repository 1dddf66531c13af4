"""CAGNET's 2D algorithm: products, what moves, and what is refused."""

from dataclasses import replace
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import awkward_graphs, make_layout, matrix, random_csr, relative_error
from support.products import worst
from support.spmm_program import inputs, products
from support.strict import StrictWorld

from mgg import layout
from mgg.aggregate import parse_options, prepare, technique
from mgg.backend import simulated
from mgg.cost.machines import H200
from mgg.cost.product import Split, Workload
from mgg.errors import InputError

GRAPHS = awkward_graphs()
#: Takes ten times as long as any other.
LONG = pytest.param("row of 10,000 arcs", marks=pytest.mark.slow)
FLOAT = 4


@pytest.mark.parametrize("name", [LONG if name == LONG.values[0] else name for name in GRAPHS])
def test_every_product(tmp_path, name):
    folder = make_layout(tmp_path, GRAPHS[name], 4)
    parts = simulated.run(4, lambda world: products(StrictWorld(world), folder, [1, 2, 41], only=["broadcast:grid"]))
    assert len(parts[0]) == 6 and worst(GRAPHS[name], parts) <= (1e-6,)


def formula(bounds, out_bounds, arcs, weighted, dim, pes):
    """Bytes by what moves them (docs/techniques.md): rows are traded for slices and back, blocks broadcast."""
    side = isqrt(pes)
    width = [dim * (pe % side + 1) // side - dim * (pe % side) // side for pe in range(pes)]
    traded = sum(
        rows * (dim - mine) for cut in (bounds, out_bounds) for rows, mine in zip(np.diff(cut), width, strict=True)
    )
    dense = (side - 1) * int(bounds[-1]) * dim
    sparse = (side - 1) * arcs * (2 if weighted else 1)
    return {"shift": FLOAT * int(traded), "broadcast": FLOAT * (dense + sparse)}


@pytest.mark.slow
@settings(max_examples=8)
@given(
    st.integers(1, 50), st.integers(0, 400), st.sampled_from([1, 4, 9]), st.integers(1, 7), st.integers(0, 10**6),
    st.booleans(),
)  # fmt: skip
def test_random_graphs_and_what_moves(tmp_path_factory, nodes, arcs, pes, dim, seed, weighted):
    """Ranges of different lengths, slices of different widths, some empty; rows that nobody wrote are not read."""
    csr = random_csr(nodes, arcs, seed=seed, weighted=weighted)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes, scheme="edge_balanced")

    def program(world):
        strict, part, found = StrictWorld(world), layout.load(folder, world.rank), []
        for direction in ("forward", "transpose"):
            plan = prepare("broadcast", strict, part, direction, 8, {"grid": True})
            plan._input.local.fill(np.nan)
            plan.input(dim)[:] = strict.upload(inputs(part.node_ids, dim))
            before = dict(world.counters.bytes)
            result = strict.download(plan(dim))
            moved = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
            found.append((result, {name: count for name, count in moved.items() if count}))
        return found, part.bounds

    every = simulated.run(pes, program)
    for number, a in enumerate((matrix(csr), matrix(csr).T.tocsr())):
        whole = np.concatenate([found[number][0] for found, _ in every])
        assert relative_error(whole, a, inputs(np.arange(nodes), dim)) <= 1e-6
        names = set().union(*(found[number][1] for found, _ in every))
        total = {name: sum(found[number][1].get(name, 0) for found, _ in every) for name in names}
        bounds = every[0][1]
        expected = formula(bounds, bounds, len(csr.indices), csr.weights is not None, dim, pes)
        assert total == {name: count for name, count in expected.items() if count}


@pytest.mark.parametrize(("pes", "advice"), [(2, "1 or 4"), (6, "4 or 9"), (8, "4 or 9")])
def test_pes_that_are_no_square_are_one_line(tmp_path, pes, advice):
    folder = make_layout(tmp_path, random_csr(20, 60), pes)

    def act(world):
        prepare("broadcast", world, layout.load(folder, world.rank), "forward", 4, {"grid": True})

    line = f"option grid: the number of PEs must be a square, found {pes}: take {advice}$"
    with pytest.raises(InputError, match=line) as caught:
        simulated.run(pes, act)
    assert caught.value.everywhere


def test_the_cost_adds_up_what_moves():
    """Of four alike PEs, by the model's links: two trades of half the columns, two stages of blocks."""
    split = Split(
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


def test_one_algorithm_at_a_time(tmp_path):
    folder = make_layout(tmp_path, random_csr(20, 60), 4)

    def act(world):
        options = {"grid": True, "replication": 2}
        prepare("broadcast", world, layout.load(folder, world.rank), "forward", 4, options)

    with pytest.raises(InputError, match="grid: it has no replicas: leave replication at 1, found 2"):
        simulated.run(4, act)
