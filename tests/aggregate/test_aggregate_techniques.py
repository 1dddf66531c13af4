"""Every technique on every backend, against a float64 product of the graph that no part of the layout has touched."""

import gc
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import awkward_graphs, make_layout, matrix, random_csr
from support.products import worst
from support.ranks import mpiexec
from support.spmm_program import DIMS, FEW_DIMS, inputs, products
from support.workflow import ROOT

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.kernel.halo import CUT_FROM

GRAPHS = awkward_graphs()
PROGRAM = Path(__file__).parents[1] / "support" / "spmm_program.py"
#: Takes ten times as long as any other.
LONG = pytest.param("row of 10,000 arcs", marks=pytest.mark.slow)
#: For ranks, whose starts and waits take longest: with weights, without arcs, without rows of some PEs.
FEW_GRAPHS = ["weighted", "no arcs", "more PEs than nodes"]
#: Numbers of PEs; on GPUs these and 3.
PES = [1, 2, 4]
#: What a product of one PE may look like, from it and the number of rows that others have.
CASES = {
    "no halo": lambda product, others: not product.halo and product.local.arcs,
    "a halo of one row": lambda product, others: product.halo == 1,
    "a halo of all rows": lambda product, others: product.halo == others > 100,
    "no local arcs": lambda product, others: not product.local.arcs and product.remote.arcs,
    "no arcs": lambda product, others: product.rows and not product.local.arcs and not product.remote.arcs,
    "no rows": lambda product, others: not product.rows,
    "a row with many arcs of both kinds": lambda product, others: np.any(
        np.minimum(np.diff(product.local.indptr), np.diff(product.remote.indptr)) >= CUT_FROM
    ),
}


def test_the_table_of_techniques_has_all_of_them():
    """The first table of values; its files are there."""
    text = (ROOT / "docs/techniques.md").read_text(encoding="utf-8")
    table = re.search(r"^\| value \|.*\n\| --- .*\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(listed) > 10 and sorted(listed) == sorted([*all_techniques(), "auto"]), "add a row a technique"
    assert all((ROOT / file).is_file() for file in re.findall(r"`(mgg/\S+\.py)`", table))


@pytest.fixture(scope="module")
def on_many(tmp_path_factory):
    """What each PE holds of each graph on several."""
    cases = [(csr, pes) for csr in GRAPHS.values() for pes in PES[1:]]
    folders = [(make_layout(tmp_path_factory.mktemp("graph"), csr, pes), pes) for csr, pes in cases]
    return [layout.load(folder, pe) for folder, pes in folders for pe in range(pes)]


@pytest.mark.parametrize(
    ("direction", "case"),
    [*(("forward", case) for case in CASES), *(("transpose", case) for case in CASES if "many arcs" not in case)],
)
def test_the_graphs_have_every_case(on_many, direction, case):
    assert any(CASES[case](getattr(part, direction), part.nodes - part.rows) for part in on_many)


@pytest.mark.parametrize("pes", PES)
@pytest.mark.parametrize("name", [LONG if name == LONG.values[0] else name for name in GRAPHS])
def test_simulated(tmp_path, name, pes):
    folder = make_layout(tmp_path, GRAPHS[name], pes)
    parts = simulated.run(pes, lambda world: products(world, folder, DIMS))
    assert worst(GRAPHS[name], parts) <= (1e-6,)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("pes", "shared", "names", "dims"),
    [
        (2, "1", [*GRAPHS], DIMS),
        (2, "0", [*GRAPHS], DIMS),
        pytest.param(4, "1", FEW_GRAPHS, FEW_DIMS, marks=pytest.mark.sentinel),
        (4, "1", [*GRAPHS], DIMS),
        (4, "0", [*GRAPHS], DIMS),
    ],
    ids=["2-1", "2-0", "4-1-few", "4-1", "4-0"],
)
def test_mpi(tmp_path, pes, shared, names, dims):
    folders = [make_layout(tmp_path / str(number), GRAPHS[name], pes) for number, name in enumerate(names)]
    arguments = [str(PROGRAM), "mpi", str(tmp_path), *map(str, folders), *["--few"] * (dims == FEW_DIMS)]
    done = mpiexec(pes, arguments, MGG_MPI_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
    for number, name in enumerate(names):
        parts = [dict(np.load(tmp_path / f"{number}-{pe}.npz")) for pe in range(pes)]
        assert len(parts[0]) == sum(not plan.single_pe for plan in all_techniques().values()) * 2 * len(dims)
        assert worst(GRAPHS[name], parts) <= (1e-6,)


@settings(max_examples=15)
@given(st.integers(1, 50), st.integers(0, 400), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_random_graphs(tmp_path_factory, nodes, arcs, pes, seed, weighted):
    csr = random_csr(nodes, arcs, seed=seed, weighted=weighted)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes, scheme="edge_balanced")
    parts = simulated.run(pes, lambda world: products(world, folder, [1, 5]))
    assert worst(csr, parts) <= (1e-6,)


@pytest.mark.parametrize(
    "options",
    [
        {"ps": 1, "dist": 1, "wpb": 1},
        {"ps": 32, "dist": 3, "wpb": 5},
        {"neighbor_partition": False},
        {"interleave": False},
        {"neighbor_partition": False, "interleave": False},
    ],
)
def test_every_option_of_mgg_gives_the_product(tmp_path, options):
    csr = random_csr(300, 6_000, weighted=True)
    folder = make_layout(tmp_path, csr, 3)
    parts = simulated.run(3, lambda world: products(world, folder, [17], {"mgg": options}))
    assert worst(csr, parts) <= (1e-6,)


@pytest.mark.parametrize(
    ("technique", "pes"),
    [(name, pes) for name, plan in all_techniques().items() for pes in (1, 3) if pes == 1 or not plan.single_pe],
)
def test_the_plan_alone_synchronizes(tmp_path, technique, pes):
    """Inputs rewritten at once after each product, PEs running ahead of each other: still the right products."""
    csr = random_csr(200, 3_000)
    folder = make_layout(tmp_path, csr, pes)
    a = matrix(csr)
    expected = a @ inputs(np.arange(200), 8).astype(np.float64)

    def program(world):
        part = layout.load(folder, world.rank)
        plan = prepare(technique, world, part, "forward", 8)
        for round_ in range(30):
            plan.input(8)[:] = inputs(part.node_ids, 8) * (round_ + 1)
            result = plan(8)
            assert np.allclose(result, expected[part.lo : part.hi] * (round_ + 1), atol=1e-3 * (round_ + 1))

    simulated.run(pes, program)


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if plan.deterministic])
def test_deterministic_techniques_give_the_same_bits(tmp_path, technique):
    pes = 1 if all_techniques()[technique].single_pe else 4
    folder = make_layout(tmp_path, random_csr(500, 10_000, weighted=True), pes)

    def run():
        return simulated.run(pes, lambda world: products(world, folder, [33], only=[technique]))

    first, second = run(), run()
    assert all(np.array_equal(a[key], b[key]) for a, b in zip(first, second, strict=True) for key in a)


@pytest.mark.parametrize("dim", [1, 2, 33])
def test_features_have_the_same_bits_on_any_number_of_pes(tmp_path, dim):
    """Also where some PEs have no columns."""
    found = []
    for pes in (1, 3, 5):
        folder = make_layout(tmp_path / str(pes), random_csr(300, 6_000, weighted=True), pes)
        parts = simulated.run(pes, lambda world: products(world, folder, [dim], only=["features"]))  # noqa: B023
        found.append({key: np.concatenate([part[key] for part in parts]) for key in parts[0]})
    assert all(np.array_equal(found[0][key], other[key]) for other in found[1:] for key in other)


@pytest.mark.parametrize("technique", all_techniques())
def test_a_closed_plan_goes_with_its_last_reference(tmp_path, technique):
    """Else its device memory would stay until Python collects cycles."""
    folder = make_layout(tmp_path, random_csr(50, 300), 1)

    def program(world):
        plan = prepare(technique, world, layout.load(folder, 0), "forward", 4)
        plan.input(4)[:] = 1
        plan(4)
        plan.close()
        last = weakref.ref(plan)
        gc.disable()
        del plan
        gone = last() is None
        gc.enable()
        assert gone

    simulated.run(1, program)


def test_the_caller_may_give_the_output(tmp_path):
    folder = make_layout(tmp_path, random_csr(50, 300), 1)

    def program(world):
        plan = prepare("halo", world, layout.load(folder, 0), "forward", 4)
        plan.input(4)[:] = 1
        out = np.full((50, 4), np.nan, np.float32)
        assert plan(4, out) is out and np.isfinite(out).all()
        assert plan(4) is not plan(4)
        for wrong in (0, 5):
            with pytest.raises(ValueError, match=r"1\.\.4"):
                plan.input(wrong)

    simulated.run(1, program)


@pytest.mark.parametrize(
    ("technique", "options", "said"),
    [
        ("hallo", {}, "did you mean halo"),
        ("mgg", {"pss": 3}, "did you mean ps"),
        ("mgg", {"ps": 0}, "greater than or equal to 1, found 0"),
        ("broadcast", {"replication": 0}, "greater than or equal to 1, found 0"),
        ("mgg", {"wpb": "many"}, "wpb"),
        ("halo", {"ps": 3}, "ps"),
    ],
)
def test_unknown_names_and_options_are_one_line(tmp_path, technique, options, said):
    folder = make_layout(tmp_path, random_csr(10, 30), 1)
    with pytest.raises(InputError, match=said) as caught:
        simulated.run(1, lambda world: prepare(technique, world, layout.load(folder, 0), "forward", 4, options))
    assert "\n" not in str(caught.value)
