"""Technique cola over workgroups: the product with each of its steps on and off, and what crosses where."""

from collections import Counter

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
WORLDS = {"host": lambda world: world, "device": StrictWorld}
STEPS = [
    {},
    {"pipelined": False},
    {"coalesced": False},
    {"coalesced": False, "pipelined": False},
    {"fusion": False},
]


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(("pes", "members"), [(4, 1), (6, 2), (6, 3)])
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_every_step_gives_the_product(tmp_path, steps, pes, members, kind):
    world_of = WORLDS[kind]
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


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 60), st.integers(0, 500), st.sampled_from([(4, 2), (4, 1), (6, 3), (6, 2)]), st.integers(0, 10**6),
    st.sampled_from(["forward", "transpose"]), st.sampled_from(STEPS), st.sampled_from(["host", "device"]),
)  # fmt: skip
def test_bytes_between_and_within_workgroups(tmp_path_factory, nodes, arcs, shape, seed, direction, steps, kind):
    """VI_CoLa between them, put or fetched; without fusion VI_FC, and within, the rows of a workgroup's own owners."""
    pes, members = shape
    csr, world_of = random_csr(nodes, arcs, seed=seed), WORLDS[kind]
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes)
    options = {"workgroup": members, **steps}
    counted = simulated.run(pes, lambda world: moved(world_of(world), folder, direction, 5, options))
    between, within = crossings(csr, pes, members, direction, fused=steps.get("fusion", True))
    sent = steps.get("fusion", True) and steps.get("coalesced", True)
    expected = {"put" if sent else "get_between": between, "get": within}
    found = Counter()
    for part in counted:
        found.update(part)
    assert {name: count for name, count in found.items() if count} == {
        name: 4 * 5 * rows for name, rows in expected.items() if rows
    }


def test_workgroups_of_another_size_are_refused(tmp_path):
    folder = make_layout(tmp_path, random_csr(30, 100), 4)

    def program(world):
        with pytest.raises(InputError, match="option workgroup: 3 must divide the number of PEs, 4"):
            prepare("cola", world, layout.load(folder, world.rank), "forward", 4, {"workgroup": 3})

    simulated.run(4, program)
