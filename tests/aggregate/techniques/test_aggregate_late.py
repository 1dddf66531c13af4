"""What techniques submit beside their work comes as late as it may: only their own waits make the products right."""

import numpy as np
import pytest
from support.devices.late import LateWorld
from support.devices.strict import StrictWorld
from support.graphs import expected_product, make_layout, matrix, random_csr, scaled_error
from support.programs.spmm_program import inputs

from mgg import layout
from mgg.aggregate import prepare
from mgg.backend import simulated

WORLDS = {"host": lambda world: world, "device": StrictWorld}
SHAPES = [(4, 1), (4, 2), (6, 2)]
COLA = [{}, {"pipelined": False}, {"coalesced": False}, {"coalesced": False, "pipelined": False}]
DIM = 5


def late_products(folder, csr, pes, technique, options, world_of):
    """Check three products in each direction, whose inputs are gone once they are done.

    Returns:
        Of each PE what it submitted in each product.
    """

    def program(world):
        late, part = LateWorld(world_of(world)), layout.load(folder, world.rank)
        results, logs = [], []
        for direction in ("forward", "transpose"):
            plan = prepare(technique, late, part, direction, DIM, options)
            for round_ in range(1, 4):
                plan.write(DIM, late.upload(inputs(part.node_ids, DIM) * round_))
                late.log.clear()
                results.append(late.download(plan(DIM)) / round_)
                logs.append([*late.log])
                assert not late.pending, "the caller may overwrite rows that are still to be sent"
                plan.input(DIM).fill(np.nan)
            plan.close()
        return results, logs

    found = simulated.run(pes, program, timeout=30)
    a, b = matrix(csr), inputs(np.arange(csr.rows), DIM)
    expected = [expected_product(each, b) for each in (a, a.T.tocsr())]
    for number, parts in enumerate(zip(*(results for results, _ in found), strict=True)):
        assert scaled_error(np.concatenate(parts), *expected[number // 3]) <= 1e-6
    return [log for _, logs in found for log in logs]


def in_turn(phases, pipelined):
    """Algorithm 3: rows for a phase are sent before the product of the phase before, or after it."""
    found = []
    for phase in range(phases):
        found += ["aside"] * (phase > 0 and not pipelined) + ["wait", "barrier"] * (phase > 0)
        found += ["aside"] * (pipelined and phase + 1 < phases) + ["product"]
    return ["barrier", *found, "barrier"]


@pytest.fixture(scope="module")
def csr():
    return random_csr(200, 3_000, weighted=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, csr):
    folder = tmp_path_factory.mktemp("late")
    return {pes: make_layout(folder, csr, pes) for pes in (4, 6)}


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(("pes", "members"), SHAPES)
@pytest.mark.parametrize("steps", COLA, ids=str)
def test_cola_overlaps_late_messages(csr, folders, steps, pes, members, kind):
    logs = late_products(folders[pes], csr, pes, "cola", {"workgroup": members, **steps}, WORLDS[kind])
    expected = in_turn(pes // members, steps.get("pipelined", True))
    assert len(logs) == 6 * pes and all(log == expected for log in logs), logs[0]


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(("pes", "members"), SHAPES)
def test_halo_overlaps_late_messages(csr, folders, pes, members, kind):
    """Messages leave before the near part is worked on; the far part waits for them."""
    logs = late_products(folders[pes], csr, pes, "halo", {"workgroup": members}, WORLDS[kind])
    # On CPU ranks the plan's barriers stand around; PEs with GPUs meet by flags and signals.
    expected = {
        "host": ["barrier", "aside", "product", "wait", "barrier", "product", "barrier"],
        "device": ["aside", "product", "wait", "product", "barrier"],
    }
    assert len(logs) == 6 * pes and all(log == expected[kind] for log in logs), logs[0]


def test_broadcast_pipelined_overlaps_late_broadcasts(csr, folders):
    """Two broadcasts run ahead; a PE waits for those of others, and once more at the end."""
    logs = late_products(folders[4], csr, 4, "broadcast_pipelined", {}, WORLDS["host"])
    assert all(log[:3] == ["aside", "aside", "product"] and log.count("wait") == 4 for log in logs), logs[0]
