"""Technique cola over workgroups: the product with each of its steps on and off, and what crosses where."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossings import crossings
from support.graphs import awkward_graphs, make_layout, random_csr
from support.products import worst
from support.spmm_program import products
from support.strict import StrictWorld

from mgg import layout
from mgg.aggregate import prepare
from mgg.backend import simulated
from mgg.errors import InputError

GRAPHS = awkward_graphs()
STEPS = [
    {},
    {"pipelined": False},
    {"coalesced": False},
    {"coalesced": False, "pipelined": False},
    {"fusion": False},
]


@pytest.mark.parametrize("world_of", [lambda world: world, StrictWorld], ids=["host", "device"])
@pytest.mark.parametrize(("pes", "members"), [(4, 1), (4, 2), (6, 2), (6, 3)])
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_every_step_gives_the_product(tmp_path, steps, pes, members, world_of):
    for number, csr in enumerate((GRAPHS["weighted"], GRAPHS["more PEs than nodes"], GRAPHS["no remote arcs"])):
        folder = make_layout(tmp_path / str(number), csr, pes)
        options = {"cola": {"workgroup": members, **steps}}
        parts = simulated.run(pes, lambda world: products(world_of(world), folder, [1, 17], options, only=["cola"]))  # noqa: B023
        assert worst(csr, parts) <= (1e-6,)


def moved(world, folder, direction, dim, options):
    plan = prepare("cola", world, layout.load(folder, world.rank), direction, dim, options)
    plan(dim)
    plan.close()
    return world.counters.bytes


@settings(max_examples=25)
@given(
    st.integers(1, 60), st.integers(0, 500), st.sampled_from([(4, 2), (4, 1), (6, 3), (6, 2)]), st.integers(0, 10**6),
    st.sampled_from(["forward", "transpose"]), st.booleans(),
)  # fmt: skip
def test_bytes_between_and_within_workgroups(tmp_path_factory, nodes, arcs, shape, seed, direction, pipelined):
    pes, members = shape
    csr = random_csr(nodes, arcs, seed=seed)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes)
    options = {"workgroup": members, "pipelined": pipelined}
    counted = simulated.run(pes, lambda world: moved(world, folder, direction, 5, options))
    between, within = crossings(csr, pes, members, direction)
    assert sum(part.get("put", 0) for part in counted) == 4 * 5 * between
    assert sum(part.get("get", 0) for part in counted) == 4 * 5 * within


def test_fetching_instead_of_sending_moves_the_same(tmp_path):
    folder = make_layout(tmp_path, random_csr(300, 4_000), 4)
    totals = []
    for coalesced in (True, False):
        options = {"workgroup": 2, "coalesced": coalesced}
        counted = simulated.run(4, lambda world: moved(world, folder, "forward", 3, options))  # noqa: B023
        totals.append(sum(sum(part.values()) for part in counted))
        assert any("put" in part for part in counted) == coalesced
    assert totals[0] == totals[1]


def test_without_fusion_each_pe_fetches_for_itself(tmp_path):
    csr = random_csr(300, 4_000)
    folder = make_layout(tmp_path, csr, 4)
    counted = simulated.run(4, lambda world: moved(world, folder, "forward", 3, {"workgroup": 2, "fusion": False}))
    assert sum(part["get"] for part in counted) == 4 * 3 * crossings(csr, 4, 4, "forward")[1]


def test_workgroups_of_another_size_are_refused(tmp_path):
    folder = make_layout(tmp_path, random_csr(30, 100), 4)

    def program(world):
        with pytest.raises(InputError, match="option workgroup: 3 must divide the number of PEs, 4"):
            prepare("cola", world, layout.load(folder, world.rank), "forward", 4, {"workgroup": 3})

    simulated.run(4, program)
