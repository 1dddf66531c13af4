"""Ring, broadcasts and replicas: what the tests of all techniques do not reach."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.graphs import awkward_graphs, make_layout, matrix, random_csr, relative_error
from support.products import worst
from support.spmm_program import inputs, products
from support.strict import StrictWorld

from mgg import layout
from mgg.aggregate import prepare
from mgg.aggregate.stages.replicas import side_by_side, stacked
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.graph.csr import Csr

GRAPHS = awkward_graphs()
#: Takes ten times as long as any other.
LONG = pytest.param("row of 10,000 arcs", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [LONG if name == LONG.values[0] else name for name in GRAPHS])
def test_replicas_of_two_on_eight_pes(tmp_path, name):
    folder = make_layout(tmp_path, GRAPHS[name], 8)
    parts = simulated.run(8, lambda world: products(world, folder, [1, 41], only=["broadcast:2"]))
    assert worst(GRAPHS[name], parts) <= (1e-6,)


@settings(max_examples=8)
@given(
    st.integers(1, 50), st.integers(0, 400), st.sampled_from([(4, 2), (8, 2), (9, 3)]),
    st.integers(0, 10**6), st.booleans(),
)  # fmt: skip
def test_replicas_on_random_graphs(tmp_path_factory, nodes, arcs, sizes, seed, weighted):
    """Ranges of different lengths; bytes as the algorithm moves them, from the ranges alone; rows that nobody wrote."""
    pes, copies = sizes
    csr = random_csr(nodes, arcs, seed=seed, weighted=weighted)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes, scheme="edge_balanced")

    def program(world):
        strict = StrictWorld(world)
        part = layout.load(folder, world.rank)
        results = []
        for direction in ("forward", "transpose"):
            plan = prepare("broadcast", strict, part, direction, 5, {"replication": copies})
            plan._input.local.fill(np.nan)
            plan.input(3)[:] = strict.upload(inputs(part.node_ids, 3))
            before = dict(world.counters.bytes)
            results.append(strict.download(plan(3)))
            moved = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
        return results, moved, part.bounds

    found = simulated.run(pes, program)
    for number, a in enumerate((matrix(csr), matrix(csr).T.tocsr())):
        whole = np.concatenate([results[number] for results, _, _ in found])
        assert relative_error(whole, a, inputs(np.arange(nodes), 3)) <= 1e-6
    padded = np.diff(found[0][2]).reshape(-1, copies).max(axis=1)  # rows of a group's PEs
    groups = pes // copies
    expected = {
        # Each PE gets the padded rows of its mates, and gives sums back the same way.
        "all_gather": copies * (copies - 1) * padded.sum(),
        "reduce_scatter": copies * (copies - 1) * padded.sum(),
        # Each super-block goes to one PE of each other group.
        "broadcast": (groups - 1) * copies * padded.sum(),
    }
    total = {name: sum(moved.get(name, 0) for _, moved, _ in found) for name in expected}
    assert total == {name: 3 * 4 * rows for name, rows in expected.items()}
    assert set().union(*(moved for _, moved, _ in found)) <= expected.keys()


@pytest.mark.parametrize(("pes", "copies"), [(2, 2), (3, 2), (4, 3), (6, 2), (1, 2)])
def test_replication_that_does_not_fit_is_one_line(tmp_path, pes, copies):
    folder = make_layout(tmp_path, random_csr(20, 60), pes)

    def act(world):
        prepare("broadcast", world, layout.load(folder, world.rank), "forward", 4, {"replication": copies})

    with pytest.raises(InputError, match=f"option replication: the square of {copies} must divide .* {pes}$") as caught:
        simulated.run(pes, act)
    assert caught.value.everywhere


def test_one_copy_is_the_broadcast_of_one_dimension(tmp_path):
    folder = make_layout(tmp_path, GRAPHS["weighted"], 4)

    def product(options):
        def program(world):
            part = layout.load(folder, world.rank)
            plan = prepare("broadcast", world, part, "forward", 8, options)
            plan.input(8)[:] = inputs(part.node_ids, 8)
            return plan(8), dict(world.counters.bytes)

        return simulated.run(4, program)

    for (default, moved), (one, moved_too) in zip(product({}), product({"replication": 1}), strict=True):
        assert np.array_equal(default, one) and moved == moved_too and set(moved) == {"broadcast"}


@pytest.mark.parametrize("label", ["broadcast:2", "broadcast_pipelined", "ring"])
def test_four_pes_may_rewrite_their_inputs_at_once(tmp_path, label):
    csr = random_csr(200, 3_000)
    folder = make_layout(tmp_path, csr, 4)
    expected = matrix(csr) @ inputs(np.arange(200), 8).astype(np.float64)
    technique, _, copies = label.partition(":")

    def program(world):
        part = layout.load(folder, world.rank)
        options = {"replication": int(copies)} if copies else {}
        plan = prepare(technique, world, part, "forward", 8, options)
        for round_ in range(30):
            plan.input(8)[:] = inputs(part.node_ids, 8) * (round_ + 1)
            result = plan(8)
            assert np.allclose(result, expected[part.lo : part.hi] * (round_ + 1), atol=1e-3 * (round_ + 1))

    simulated.run(4, program)


@pytest.mark.parametrize("weighted", [False, True])
def test_matrices_side_by_side_and_stacked(weighted):
    rng = np.random.default_rng(0)
    parts = []
    for columns in (4, 2, 0, 3):
        dense = rng.random((5, columns)) * (rng.random((5, columns)) < 0.5)
        made = sparse.csr_matrix(dense.astype(np.float32) if weighted else (dense > 0).astype(np.float32))
        parts.append(
            Csr(made.indptr.astype(np.int64), made.indices.astype(np.int32), made.data if weighted else None, columns)
        )
    dense = [np.pad(part.to_scipy().toarray(), ((0, 0), (0, 4 - part.columns))) for part in parts]
    joined = side_by_side(parts, [0, 4, 8, 12, 16])
    assert joined.columns == 16 and np.array_equal(joined.to_scipy().toarray(), np.hstack(dense))
    tall = stacked([joined, joined], [0, 7, 14])
    padded = np.pad(np.hstack(dense), ((0, 2), (0, 0)))
    assert np.array_equal(tall.to_scipy().toarray(), np.vstack([padded, padded]))
    assert (tall.weights is None) == (not weighted)


def test_local_is_for_one_pe(tmp_path):
    folder = make_layout(tmp_path, random_csr(20, 60), 2)

    def act(world):
        prepare("local", world, layout.load(folder, world.rank), "forward", 4)

    with pytest.raises(InputError, match="technique local: runs on one PE, the job has 2") as caught:
        simulated.run(2, act)
    assert caught.value.everywhere
