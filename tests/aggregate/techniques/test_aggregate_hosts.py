"""halo, cola and dgcl in several workgroups: bytes and waits where no PE addresses memory of another host."""

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.devices.strict import HostsWorld
from support.graphs import make_layout, random_csr
from support.graphs.checked_products import worst
from support.graphs.crossings import crossings
from support.programs.spmm_program import inputs, products
from support.records.measured import record

from mgg import layout, partition
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated
from mgg.errors import InputError, PeError
from mgg.graph.csr import from_arcs
from mgg.kernel.halo import halo_schedule

BETWEEN_HOSTS = ["broadcast", "broadcast_pipelined", "cola", "dgcl", "features", "halo", "ring"]


def worlds(members):
    """CPU ranks, and GPUs whose hosts have ``members`` PEs each."""
    return {"ranks": lambda world: world, "hosts": lambda world: HostsWorld(world, members)}


def moved(world, folder, technique, direction, members, dtype="fp32", **steps):
    """Bytes of one product of 5 columns on this PE, by what moved them."""
    options = {"workgroup": members, **steps}
    plan = prepare(technique, world, layout.load(folder, world.rank), direction, 5, options, dtype)
    plan(5)
    plan.close()
    return world.counters.bytes


def total(counted):
    """Bytes of all PEs, by what moved them."""
    found = Counter()
    for part in counted:
        found.update(part)
    return {name: count for name, count in found.items() if count}


STEPS = [{}, {"pipelined": False}, {"coalesced": False}, {"coalesced": False, "pipelined": False}, {"fusion": False}]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60), st.integers(0, 500), st.sampled_from([(4, 4), (4, 2), (4, 1), (6, 3), (6, 2)]),
    st.integers(0, 10**6), st.sampled_from(["forward", "transpose"]),
    st.sampled_from([("halo", {}), ("halo bf16", {}), *(("cola", each) for each in STEPS), ("dgcl", {"batch": 3})]),
    st.sampled_from(["ranks", "hosts"]),
)  # fmt: skip
def test_bytes_between_and_within_workgroups_are_counted(
    tmp_path_factory, nodes, arcs, shape, seed, direction, case, kind
):
    """Between them VI_CoLa, put or fetched; within, the rows of mates, by dgcl those that trees pass on."""
    (pes, members), (label, steps) = shape, case
    technique, _, dtype = label.partition(" ")
    fused = steps.get("fusion", True)
    sent = fused and steps.get("coalesced", True)
    csr, world_of = random_csr(nodes, arcs, seed=seed), worlds(members if sent else pes)[kind]
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes)
    counted = simulated.run(
        pes, lambda world: moved(world_of(world), folder, technique, direction, members, dtype or "fp32", **steps)
    )
    between, within = crossings(csr, pes, members, direction, fused=fused)
    if technique == "dgcl":
        within = sum(crossings(csr, pes, 1, direction)) - between
    expected = {"put" if sent else "get_between": between, "get": within}
    assert total(counted) == {name: 5 * (2 if dtype else 4) * rows for name, rows in expected.items() if rows}


def test_bytes_between_workgroups_equal_vi_cola(tmp_path):
    """The partition's quality report says the same of the forward product, and of VI_FC, which fusion lowers."""
    folder = make_layout(tmp_path, random_csr(300, 4_000), 6)
    record = partition.build(tmp_path / "graph", tmp_path / "part", pes=6, scheme="equal_nodes", workgroup=2, dim=5)
    for technique in ("halo", "cola"):
        counted = simulated.run(6, lambda world: moved(world, folder, technique, "forward", 2))  # noqa: B023
        assert total(counted)["put"] == record.quality.vi_cola > 0
    counted = simulated.run(6, lambda world: moved(world, folder, "cola", "forward", 2, fusion=False))
    assert total(counted)["get_between"] == record.quality.vi_fc > record.quality.vi_cola


@pytest.mark.parametrize(("pes", "made_for", "members"), [(4, 2, 2), (6, 4, 2), (5, 3, 1), (4, 8, 4)])
def test_default_workgroups_are_those_of_the_partition(tmp_path, pes, made_for, members):
    """As far as they divide the PEs: hosts of four and of two PEs make workgroups of two."""
    csr = random_csr(300, 4_000)
    folder = partitioned(tmp_path, csr, pes, made_for)
    for technique in ("halo", "cola"):
        counted = simulated.run(pes, lambda world: moved(world, folder, technique, "forward", None))  # noqa: B023
        assert total(counted).get("put", 0) == 20 * crossings(csr, pes, members, "forward")[0]


@pytest.fixture(scope="module")
def hubs(tmp_path_factory):
    """A layout with two rows of 1,500 arcs, which are cut into pieces, of a PE's own columns and of others'."""
    nodes, rng = 1_500, np.random.default_rng(3)
    rows = np.append(np.repeat([5, nodes - 1], nodes), rng.integers(0, nodes, 5_000))
    columns = np.append(np.tile(np.arange(nodes), 2), rng.integers(0, nodes, 5_000))
    weights = rng.standard_normal(len(rows)).astype(np.float32)
    return make_layout(tmp_path_factory.mktemp("hubs"), from_arcs(rows, columns, n=nodes, weights=weights), 4)


@pytest.mark.parametrize("kind", ["ranks", "hosts"])
@pytest.mark.parametrize("members", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_halo_products_repeat_bit_by_bit(hubs, dtype, members, kind):
    """Six of a plan and six of another, to which PEs come in ever another order; a row is in many pieces."""

    def program(raw):
        world, part = worlds(members)[kind](raw), layout.load(hubs, raw.rank)
        cut = halo_schedule(part.forward.local, part.forward.remote, part.rows).split_rows
        found = []
        for _ in range(2):
            plan = prepare("halo", world, part, "forward", 33, {"workgroup": members}, dtype)
            for dim in (1, 33):
                plan.write(dim, world.upload(inputs(part.node_ids, dim)))
                for round_ in range(6):
                    time.sleep(1e-3 * ((raw.rank + round_) % 4))
                    found.append((dim, world.download(plan(dim)).tobytes()))
            plan.close()
        return set(cut.tolist()), len(found), len(set(found))

    parts = simulated.run(4, program)
    assert parts[0][0] == {5} and parts[3][0] == {374}
    assert [found for _, *found in parts] == [[24, 2]] * 4


def test_parts_run_and_are_timed_alone(tmp_path):
    folder = make_layout(tmp_path, random_csr(200, 2_000, weighted=True), 4)

    def program(raw):
        world, part = HostsWorld(raw, 2), layout.load(folder, raw.rank)
        plan = prepare("halo", world, part, "forward", 4, {"workgroup": 2})
        plan.write(4, world.upload(inputs(part.node_ids, 4)))
        whole, full = world.download(plan(4)), world.counters.embeddings()
        out = world.xp.empty((part.rows, 4), np.float32)
        plan.part("compute", 4, out)
        computed, none = world.download(out), world.counters.embeddings() - full
        plan.part("transfer", 4, out)
        assert np.array_equal(whole, computed) and none == 0 and world.counters.embeddings() == 2 * full

    simulated.run(4, program)
    how = {"options": {"workgroup": 2}, "direction": "transpose", "breakdown": True}
    found = record(folder, 4, "halo", 4, world_of=lambda raw: HostsWorld(raw, 2), **how)
    assert found.transfer > 0 and found.compute > 0 and found.error <= found.tolerance
    assert found.options["workgroup"] == 2


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if not plan.single_pe])
def test_techniques_that_address_all_pes_are_refused_on_several_hosts(tmp_path, technique):
    folder = make_layout(tmp_path, random_csr(200, 2_000), 4)
    options = {"workgroup": 2} if technique in ("halo", "cola", "dgcl") else {}

    def program(world):
        return products(HostsWorld(world, 2), folder, [3], {technique: options}, only=[technique])

    def refused(raw):
        with pytest.raises(InputError, match="PE 0 would address memory of PEs 2, 3, on another host: take") as caught:
            prepare(technique, HostsWorld(raw, 2), layout.load(folder, raw.rank), "forward", 3, options)
        assert caught.value.everywhere and "\n" not in str(caught.value)

    if technique in BETWEEN_HOSTS:
        assert worst(random_csr(200, 2_000), simulated.run(4, program)) <= (1e-6,)
    else:
        simulated.run(4, refused)


@pytest.mark.parametrize(
    ("technique", "workgroup", "members", "off"),
    [
        ("cola", 2, 2, ["coalesced"]),
        ("cola", 2, 2, ["fusion"]),
        ("cola", 2, 2, ["fusion", "coalesced"]),
        ("cola", 4, 2, []),
        ("halo", 4, 2, []),
        ("halo", 2, 3, []),
    ],
)
def test_workgroups_larger_than_a_host_are_refused(tmp_path, technique, workgroup, members, off):
    """Who has workgroups of a host's size already is told which steps of cola it is that need all PEs on one."""
    folder = make_layout(tmp_path, random_csr(200, 2_000), 2 * members)
    options = {"workgroup": workgroup, **dict.fromkeys(off, False)}
    beyond = "PE 0 would address memory of PEs 2, 3" if members == 2 else "PE 2 would address memory of PE 3"
    remedy = "take halo or cola with workgroup=G"
    if off:
        remedy = f"with {' and '.join(f'{step}=false' for step in off)} rows are fetched by address: between hosts"
        remedy += " fusion and coalesced must be on, and workgroup=G"

    def program(raw):
        with pytest.raises(InputError) as caught:
            prepare(technique, HostsWorld(raw, members), layout.load(folder, raw.rank), "forward", 3, options)
        line = f"technique {technique}: {beyond}, on another host: {remedy}, where G divides the PEs of every host"
        assert str(caught.value) == line and caught.value.everywhere

    simulated.run(2 * members, program)


def partitioned(folder, csr, pes, workgroup):
    """The folder of a layout whose partition is made for workgroups of so many PEs."""
    make_layout(folder, csr, pes)
    partition.build(folder / "graph", folder / "part", pes=pes, scheme="equal_nodes", workgroup=workgroup, dim=5)
    layout.build(folder / "graph", folder / "part", folder / "layout")
    return folder / "layout"


@pytest.mark.parametrize(
    ("pes", "members", "made_for", "hosts", "fits"),
    [
        (8, 4, 8, "hosts of 4 PEs", 4),
        (4, 2, 8, "hosts of 2 PEs", 2),
        (6, 4, 6, "hosts of 2 and 4 PEs", 2),
        (3, 1, 3, "hosts of 1 PE", 1),
    ],
)
@pytest.mark.parametrize("technique", ["halo", "cola"])
def test_partition_for_larger_hosts_names_a_fitting_workgroup(tmp_path, technique, pes, members, made_for, hosts, fits):
    csr = random_csr(200, 2_000)
    folder = partitioned(tmp_path / "large", csr, pes, made_for)
    remedy = f"partition with --workgroup {fits} (config: partition.workgroup), or take workgroup={fits}"

    def refused(raw):
        with pytest.raises(InputError) as caught:
            prepare(technique, HostsWorld(raw, members), layout.load(folder, raw.rank), "forward", 3)
        return caught.value.everywhere, str(caught.value)

    said = simulated.run(pes, refused)
    assert said == [said[0]] * pes and said[0][0]
    assert said[0][1].endswith(f", on another host: workgroup {made_for} spans {hosts}: {remedy}")

    def program(world, folder, options):
        return products(HostsWorld(world, members), folder, [3], {technique: options}, only=[technique])

    assert worst(csr, simulated.run(pes, lambda world: program(world, folder, {"workgroup": fits}))) <= (1e-6,)
    small = partitioned(tmp_path / "small", csr, pes, fits)
    assert worst(csr, simulated.run(pes, lambda world: program(world, small, {}))) <= (1e-6,)


def test_cola_steps_that_need_one_host_are_named(tmp_path):
    folder = partitioned(tmp_path, random_csr(200, 2_000), 4, 8)

    def refused(raw):
        with pytest.raises(InputError, match="with fusion=false rows are fetched by address"):
            prepare("cola", HostsWorld(raw, 2), layout.load(folder, raw.rank), "forward", 3, {"fusion": False})

    simulated.run(4, refused)


@pytest.mark.parametrize(("kind", "said"), [("ranks", "PE 3 did not reach a barrier"), ("hosts", "PE 3 did not|PE 3")])
@pytest.mark.parametrize("technique", ["halo", "cola"])
def test_absent_pe_ends_the_product(tmp_path, technique, kind, said):
    folder, world_of = make_layout(tmp_path, random_csr(200, 2_000), 4), worlds(1)[kind]

    def program(raw):
        plan = prepare(technique, world_of(raw), layout.load(folder, raw.rank), "forward", 4, {"workgroup": 1})
        if raw.rank != 3:
            plan(4)
        else:
            time.sleep(0.9)

    with pytest.raises(PeError, match=said):
        simulated.run(4, program, timeout=0.6)
