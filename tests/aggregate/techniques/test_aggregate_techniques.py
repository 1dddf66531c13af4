"""Every technique on every backend, against a float64 product of the graph that no part of the layout has touched."""

import gc
import re
import time
import weakref
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.devices.strict import HostsWorld, StrictWorld
from support.graphs import awkward_graphs, make_layout, matrix, random_csr
from support.graphs.checked_products import check, worst
from support.programs.spmm_program import CROSSING, DIMS, VARIANTS, divides, inputs, products, variant
from support.ranks import succeeded
from support.workflow import ROOT

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.kernel.halo import CUT_FROM

GRAPHS = awkward_graphs()
SEVERAL = {name for name, plan in all_techniques().items() if not plan.single_pe}
PROGRAM = Path(__file__).parents[2] / "support" / "programs" / "spmm_program.py"
#: Takes ten times as long as any other.
LONG = pytest.param("row of 10,000 arcs", marks=pytest.mark.slow)
#: With weights, without arcs, without rows of some PEs.
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


def test_documented_table_lists_every_technique():
    """The first table of values; its files are there."""
    text = (ROOT / "docs/concepts/techniques.md").read_text(encoding="utf-8")
    table = re.search(r"^\| value \|.*\n\| --- .*\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(listed) > 10 and sorted(listed) == sorted([*all_techniques(), "auto"]), "add a row a technique"
    assert all((ROOT / file).is_file() for file in re.findall(r"`(mgg/\S+\.py)`", table))


@pytest.fixture(scope="module")
def layout_of(tmp_path_factory):
    """``layout_of(name, pes)``: the folder of a graph's layout, made once."""
    return cache(lambda name, pes: make_layout(tmp_path_factory.mktemp("graph"), GRAPHS[name], pes))


def test_graphs_cover_every_case(layout_of):
    parts = [layout.load(layout_of(name, pes), pe) for name in GRAPHS for pes in PES[1:] for pe in range(pes)]
    for case, found in CASES.items():
        for direction in ("forward", "transpose"):
            if direction == "forward" or "many arcs" not in case:
                assert any(found(part.product(direction), part.nodes - part.rows) for part in parts), (case, direction)


@pytest.mark.parametrize("pes", PES)
@pytest.mark.parametrize("name", [LONG if name == LONG.values[0] else name for name in GRAPHS])
def test_simulated_products_match_float64(layout_of, name, pes):
    """The products; and the same bits with device arrays that refuse to mix with those of the host."""
    folder = layout_of(name, pes)
    parts = simulated.run(pes, lambda world: products(world, folder, DIMS if name == "weighted" else [1, 3, 41]))
    assert worst(GRAPHS[name], parts) <= (1e-6,)
    strict = simulated.run(pes, lambda world: products(StrictWorld(world), folder, [1, 41]))
    for expected, found in zip(parts, strict, strict=True):
        for key, rows in found.items():
            if key.startswith("seastar"):  # its kernels are generated for GPUs alone, and sum in another order
                assert np.allclose(expected[key], rows, rtol=1e-5, atol=1e-5), key
            else:
                assert np.array_equal(expected[key], rows), key


def on_hosts(world, label):
    """GPUs on hosts as large as the workgroups of a variant, unless it addresses all PEs."""
    options = variant(label).options
    alone = options.get("fusion", True) and options.get("coalesced", True)
    return HostsWorld(world, options.get("workgroup", world.size) if alone else world.size)


@pytest.mark.parametrize("label", VARIANTS)
def test_every_variant_matches_float64(layout_of, label):
    """On CPU ranks, and on GPUs whose hosts are as large as its workgroups."""
    technique, options, dtype = variant(label)
    sizes = [1] if all_techniques()[technique].single_pe else [4]
    sizes += [6] * ("workgroup" in options) + [8] * ("replication" in options)
    for name, pes, world_of in product(FEW_GRAPHS, sizes, (lambda world, label: world, on_hosts)):
        folder = layout_of(name, pes)
        parts = simulated.run(pes, lambda world: products(world_of(world, label), folder, [1, 41], only=[label]))  # noqa: B023
        assert len(parts[0]) == 4 and worst(GRAPHS[name], parts, dtype) <= (1e-6,), (name, pes)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("pes", "shared"), [pytest.param(4, "1", marks=pytest.mark.sentinel), (4, "0"), (2, "0")])
def test_products_on_mpi_ranks_match_float64(layout_of, tmp_path, pes, shared):
    """Ranks that share memory, and such as reach each other's by MPI alone."""
    folders = {name: layout_of(name, pes) for name in FEW_GRAPHS}
    arguments = [str(PROGRAM), "mpi", str(tmp_path), "--crossing", *map(str, folders.values())]
    succeeded(pes, arguments, MGG_MPI_SHARED_MEMORY=shared)
    labels = SEVERAL | {label for label in CROSSING if divides(variant(label).options, pes)}
    for number, (name, folder) in enumerate(folders.items()):
        check(tmp_path, number, GRAPHS[name], folder, pes, labels)


@settings(max_examples=15)
@given(st.integers(1, 50), st.integers(0, 400), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_random_graphs_match_float64(tmp_path_factory, nodes, arcs, pes, seed, weighted):
    csr = random_csr(nodes, arcs, seed=seed, weighted=weighted)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes, scheme="edge_balanced")
    parts = simulated.run(pes, lambda world: products(world, folder, [1, 5]))
    assert worst(csr, parts) <= (1e-6,)


@pytest.mark.parametrize("world_of", [lambda world, label: world, on_hosts], ids=["ranks", "hosts"])
@pytest.mark.parametrize("label", [*all_techniques(), "broadcast:2", "broadcast:grid", "halo:2", "cola:2", "dgcl:2"])
def test_plans_synchronize_without_callers(tmp_path, label, world_of):
    """Inputs rewritten at once after each product, PEs late by turns: still the right products."""
    csr, (technique, options, _) = random_csr(200, 3_000), variant(label)
    folder = make_layout(tmp_path, csr, pes := 1 if all_techniques()[technique].single_pe else 4)
    expected = matrix(csr) @ inputs(np.arange(200), 8).astype(np.float64)

    def program(raw):
        world, part = world_of(raw, label), layout.load(folder, raw.rank)
        plan = prepare(technique, world, part, "forward", 8, options)
        for round_ in range(1, 16):
            plan.write(8, world.upload(inputs(part.node_ids, 8) * round_))
            time.sleep(2e-3 * (round_ % 5 == raw.rank))
            result = world.download(plan(8))
            assert np.allclose(result, expected[part.lo : part.hi] * round_, atol=1e-3 * round_)
        plan.close()

    simulated.run(pes, program)


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if plan.deterministic])
def test_deterministic_techniques_give_the_same_bits(tmp_path, technique):
    pes = 1 if all_techniques()[technique].single_pe else 4
    folder = make_layout(tmp_path, random_csr(500, 10_000, weighted=True), pes)
    first, second = (
        simulated.run(pes, lambda world: products(world, folder, [33], only=[technique])) for _ in range(2)
    )
    assert all(np.array_equal(a[key], b[key]) for a, b in zip(first, second, strict=True) for key in a)


@pytest.mark.parametrize(("label", "sizes"), [("features", (1, 3, 5)), ("dgcl", (3, 4)), ("dgcl:2", (4, 6))])
def test_products_have_the_bits_of_one_pe(tmp_path, label, sizes):
    """Also where some PEs have no columns."""
    csr = random_csr(300, 6_000, weighted=True)

    def found(label, pes):
        folder = make_layout(tmp_path / f"{label}-{pes}", csr, pes)
        parts = simulated.run(pes, lambda world: products(world, folder, [1, 2, 33], only=[label]))
        return {key.partition(" ")[2]: np.concatenate([part[key] for part in parts]).tobytes() for key in parts[0]}

    one = found("local", 1)
    assert all(found(label, pes) == one for pes in sizes)


@pytest.mark.parametrize("technique", all_techniques())
def test_closed_plan_is_freed_with_its_last_reference(tmp_path, technique):
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


def test_caller_may_pass_the_output(tmp_path):
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


REPLICATION = "option replication: the square of {} must divide the number of PEs, {}$"
GRID = "option grid: the number of PEs must be a square, found {}: take {}$"


@pytest.mark.parametrize(
    ("pes", "technique", "options", "said"),
    [
        (1, "hallo", {}, "did you mean halo"),
        (1, "mgg", {"pss": 3}, "did you mean ps"),
        (1, "mgg", {"ps": 0}, "greater than or equal to 1, found 0"),
        (1, "mgg", {"wpb": "many"}, "wpb"),
        (1, "halo", {"ps": 3}, "ps"),
        (1, "mgg", {"neighbor_partition": False, "ps_remote": 4}, "ps_remote: with neighbor_partition false rows stay"),
        (1, "mgg", {"merge": True, "primitive": "warp"}, "merge: .* once per block, primitive warp gets one per arc"),
        (1, "mgg", {"dtype": "bf16"}, "technique mgg: takes no bf16 embeddings; those that do: halo, local"),
        (2, "local", {}, "technique local: runs on one PE, the job has 2"),
        (4, "halo", {"workgroup": 3}, "technique halo: option workgroup: 3 must divide the number of PEs, 4"),
        (4, "cola", {"workgroup": 3}, "technique cola: option workgroup: 3 must divide the number of PEs, 4"),
        (1, "broadcast", {"replication": 0}, "greater than or equal to 1, found 0"),
        *((pes, "broadcast", {"replication": c}, REPLICATION.format(c, pes)) for pes, c in ((3, 2), (4, 3), (6, 2))),
        *((pes, "broadcast", {"grid": True}, GRID.format(pes, near)) for pes, near in ((2, "1 or 4"), (8, "4 or 9"))),
        (4, "broadcast", {"grid": True, "replication": 2}, "grid: it has no replicas: leave replication at 1, found 2"),
    ],
)
def test_invalid_products_are_one_line(tmp_path, pes, technique, options, said):
    folder, options = make_layout(tmp_path, random_csr(20, 60), pes), dict(options)
    dtype = options.pop("dtype", "fp32")

    def program(world):
        with pytest.raises(InputError, match=said) as caught:
            prepare(technique, world, layout.load(folder, world.rank), "forward", 4, options, dtype)
        assert "\n" not in str(caught.value) and (pes == 1 or caught.value.everywhere or "replicas" in said)

    simulated.run(pes, program)
