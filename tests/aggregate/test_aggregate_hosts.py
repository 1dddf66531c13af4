"""halo and cola in several workgroups: products, bytes and waits where no PE addresses memory of another host."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossings import crossings
from support.graphs import awkward_graphs, expected_product, make_layout, matrix, random_csr, scaled_error
from support.measured import measure
from support.products import worst
from support.ranks import mpiexec
from support.spmm_program import inputs, products
from support.strict import HostsWorld

from mgg import layout, partition
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated
from mgg.errors import InputError, PeError
from mgg.graph.csr import from_arcs
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.halo import halo_schedule

GRAPHS = awkward_graphs()
SHAPES = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
BETWEEN_HOSTS = ["broadcast", "broadcast_pipelined", "cola", "dgcl", "features", "halo", "ring"]


def worlds(members):
    """CPU ranks, and GPUs whose hosts have ``members`` PEs each."""
    return {"ranks": lambda world: world, "hosts": lambda world: HostsWorld(world, members)}


def both(members):
    return {name: {"workgroup": members} for name in ("halo", "cola", "dgcl")}


@pytest.mark.parametrize("kind", ["ranks", "hosts"])
@pytest.mark.parametrize(("pes", "members"), SHAPES)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_product(tmp_path, name, pes, members, kind):
    folder, world_of = make_layout(tmp_path, GRAPHS[name], pes), worlds(members)[kind]
    parts = simulated.run(
        pes, lambda world: products(world_of(world), folder, [1, 16, 41], both(members), only=["halo", "cola"])
    )
    assert len(parts[0]) == 12 and worst(GRAPHS[name], parts) <= (1e-6,)


@pytest.mark.parametrize("kind", ["ranks", "hosts"])
@pytest.mark.parametrize(("pes", "members"), SHAPES)
@pytest.mark.parametrize("direction", ["forward", "transpose"])
def test_bf16_products_are_those_of_the_rounded_inputs(tmp_path, direction, pes, members, kind):
    for number, name in enumerate(("weighted", "empty rows", "more PEs than nodes")):
        csr = GRAPHS[name]
        folder, world_of = make_layout(tmp_path / str(number), csr, pes), worlds(members)[kind]
        a = matrix(csr) if direction == "forward" else matrix(csr).T.tocsr()

        def program(raw):
            world, part = world_of(raw), layout.load(folder, raw.rank)  # noqa: B023
            plan = prepare("halo", world, part, direction, 9, {"workgroup": members}, "bf16")
            found = []
            for dim in (9, 1, 4):  # rows of an odd number of half words, too
                plan.write(dim, world.upload(inputs(part.node_ids, dim)))
                found.append(world.download(plan(dim)))
            plan.close()
            return found

        for dim, parts in zip((9, 1, 4), zip(*simulated.run(pes, program), strict=True), strict=True):
            rounded = from_bf16(to_bf16(inputs(np.arange(csr.rows), dim)))
            assert scaled_error(np.concatenate(parts), *expected_product(a, rounded)) <= 1e-6


def moved(world, folder, technique, direction, members, dtype="fp32", **steps):
    """Bytes put and fetched by this PE in one product of 5 columns."""
    options = {"workgroup": members, **steps}
    plan = prepare(technique, world, layout.load(folder, world.rank), direction, 5, options, dtype)
    plan(5)
    plan.close()
    return world.counters.bytes.get("put", 0), world.counters.bytes.get("get", 0), world.counters.embeddings()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 60), st.integers(0, 500), st.sampled_from([(4, 2), (4, 1), (6, 3), (6, 2)]), st.integers(0, 10**6),
    st.sampled_from(["forward", "transpose"]), st.sampled_from(["halo", "cola", "halo bf16"]),
    st.sampled_from(["ranks", "hosts"]),
)  # fmt: skip
def test_bytes_between_and_within_workgroups(tmp_path_factory, nodes, arcs, shape, seed, direction, label, kind):
    (pes, members), (technique, _, dtype) = shape, label.partition(" ")
    csr = random_csr(nodes, arcs, seed=seed)
    folder, world_of = make_layout(tmp_path_factory.mktemp("graph"), csr, pes), worlds(members)[kind]
    counted = simulated.run(
        pes, lambda world: moved(world_of(world), folder, technique, direction, members, dtype or "fp32")
    )
    between, within = (5 * (2 if dtype else 4) * rows for rows in crossings(csr, pes, members, direction))
    put, fetched, all_ = (sum(column) for column in zip(*counted, strict=True))
    assert (put, fetched, all_) == (between, within, between + within)


RANKS = (
    "import json, sys\nimport numpy as np\nfrom mgg.backend import launch\nfrom support.spmm_program import products\n"
    "from mgg import layout\nfrom mgg.aggregate import prepare\n"
    "out, folder, chosen = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])\n"
    "def program(world):\n"
    "    part, moved = layout.load(folder, world.rank), {}\n"
    "    np.savez(f'{out}/{world.rank}.npz', **products(world, folder, [1, 41], chosen, only=chosen))\n"
    "    for technique, dtype in (('halo', 'fp32'), ('cola', 'fp32'), ('halo', 'bf16')):\n"
    "        plan = prepare(technique, world, part, 'forward', 5, chosen[technique], dtype)\n"
    "        before = dict(world.counters.bytes)\n"
    "        plan(5)\n"
    "        plan.close()\n"
    "        moved[f'{technique} {dtype}'] = [world.counters.bytes[way] - before[way] for way in ('put', 'get')]\n"
    "    found = world.gather(moved)\n"
    "    if world.rank == 0: print(json.dumps(found))\n"
    "launch('mpi', lambda: 4, program)\n"
)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    "shared",
    [pytest.param("1", marks=pytest.mark.sentinel, id="shared memory"), pytest.param("0", id="one-sided")],
)
def test_mpi_ranks_put_between_workgroups(tmp_path, shared):
    csr = GRAPHS["weighted"]
    folder = make_layout(tmp_path, csr, 4)
    chosen = both(2) | {"halo:cover": {}, "halo:2-cover": {}}
    arguments = ["-c", RANKS, str(tmp_path), str(folder), json.dumps(chosen)]
    done = mpiexec(4, arguments, MGG_MPI_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
    parts = [dict(np.load(tmp_path / f"{pe}.npz")) for pe in range(4)]
    assert len(parts[0]) == 4 * len(chosen) and worst(csr, parts) <= (1e-6,)
    counted, rows = json.loads(done.stdout), np.array(crossings(csr, 4, 2, "forward"))
    for label in counted[0]:
        found = np.sum([part[label] for part in counted], axis=0)
        assert found.tolist() == (5 * (2 if "bf16" in label else 4) * rows).tolist(), label


def test_bytes_between_workgroups_are_vi_cola(tmp_path):
    """The partition's quality report says the same of the forward product, and of VI_FC, which fusion lowers."""
    folder = make_layout(tmp_path, random_csr(300, 4_000), 6)
    record = partition.build(tmp_path / "graph", tmp_path / "part", pes=6, scheme="equal_nodes", workgroup=2, dim=5)
    for technique in ("halo", "cola"):
        counted = simulated.run(6, lambda world: moved(world, folder, technique, "forward", 2))  # noqa: B023
        assert sum(put for put, _, _ in counted) == record.quality.vi_cola > 0
    counted = simulated.run(6, lambda world: moved(world, folder, "cola", "forward", 2, fusion=False))
    assert sum(all_ - fetched for _, fetched, all_ in counted) == record.quality.vi_fc > record.quality.vi_cola


@pytest.mark.parametrize(("pes", "made_for", "members"), [(4, 2, 2), (6, 4, 2), (5, 3, 1), (4, 8, 4)])
def test_without_an_option_workgroups_are_those_of_the_partition(tmp_path, pes, made_for, members):
    """As far as they divide the PEs: hosts of four and of two PEs make workgroups of two."""
    csr = random_csr(300, 4_000)
    make_layout(tmp_path, csr, pes)
    partition.build(tmp_path / "graph", tmp_path / "part", pes=pes, scheme="equal_nodes", workgroup=made_for, dim=5)
    layout.build(tmp_path / "graph", tmp_path / "part", tmp_path / "layout")
    for technique in ("halo", "cola"):
        counted = simulated.run(pes, lambda world: moved(world, tmp_path / "layout", technique, "forward", None))  # noqa: B023
        assert sum(put for put, _, _ in counted) == 20 * crossings(csr, pes, members, "forward")[0]


@pytest.mark.parametrize("kind", ["ranks", "hosts"])
@pytest.mark.parametrize("technique", ["halo", "cola", "dgcl"])
def test_the_plan_alone_synchronizes(tmp_path, technique, kind):
    """Inputs rewritten at once after each product, PEs late by turns: still the right products."""
    folder, world_of = make_layout(tmp_path, random_csr(200, 3_000), 4), worlds(2)[kind]
    expected = matrix(random_csr(200, 3_000)) @ inputs(np.arange(200), 8).astype(np.float64)

    def program(raw):
        world, part = world_of(raw), layout.load(folder, raw.rank)
        plan = prepare(technique, world, part, "forward", 8, {"workgroup": 2})
        for round_ in range(1, 31):
            plan.write(8, world.upload(inputs(part.node_ids, 8) * round_))
            time.sleep(2e-3 * (round_ % 5 == raw.rank))
            result = world.download(plan(8))
            assert np.allclose(result, expected[part.lo : part.hi] * round_, atol=1e-3 * round_)
        plan.close()

    simulated.run(4, program)


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
def test_twenty_products_of_halo_have_the_same_bits(hubs, dtype, members, kind):
    """Ten of a plan and ten of another, to which PEs come in ever another order; a row is in many pieces."""

    def program(raw):
        world, part = worlds(members)[kind](raw), layout.load(hubs, raw.rank)
        cut = halo_schedule(part.forward.local, part.forward.remote, part.rows).split_rows
        found = []
        for _ in range(2):
            plan = prepare("halo", world, part, "forward", 33, {"workgroup": members}, dtype)
            for dim in (1, 33):
                plan.write(dim, world.upload(inputs(part.node_ids, dim)))
                for round_ in range(10):
                    time.sleep(1e-3 * ((raw.rank + round_) % 4))
                    found.append((dim, world.download(plan(dim)).tobytes()))
            plan.close()
        return set(cut.tolist()), len(found), len(set(found))

    parts = simulated.run(4, program)
    assert parts[0][0] == {5} and parts[3][0] == {374}
    assert [found for _, *found in parts] == [[40, 2]] * 4


def test_parts_alone_move_or_compute(tmp_path):
    folder = make_layout(tmp_path, random_csr(200, 2_000), 4)

    def program(raw):
        world, part = HostsWorld(raw, 2), layout.load(folder, raw.rank)
        plan = prepare("halo", world, part, "forward", 4, {"workgroup": 2})
        plan.write(4, world.upload(inputs(part.node_ids, 4)))
        whole, full = world.download(plan(4)), world.counters.embeddings()
        out = world.xp.empty((part.rows, 4), np.float32)
        plan.part("compute", 4, out)
        computed, none = world.download(out), world.counters.embeddings() - full
        plan.part("transfer", 4, out)
        return np.array_equal(whole, computed), none, world.counters.embeddings() - 2 * full

    assert simulated.run(4, program) == [(True, 0, 0)] * 4


def test_both_parts_are_timed_and_checked(tmp_path):
    folder = make_layout(tmp_path, random_csr(200, 2_000, weighted=True), 4)
    arguments = {"dims": [4], "options": {"workgroup": 2}, "direction": "transpose", "warmup": 1, "iterations": 2}

    def program(world):
        part = layout.load(folder, world.rank)
        return measure(HostsWorld(world, 2), part, "halo", breakdown=True, check=True, **arguments)

    record = simulated.run(4, program)[0][0]
    assert record.transfer > 0 and record.compute > 0 and record.error <= record.tolerance
    assert record.options["workgroup"] == 2


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if not plan.single_pe])
def test_techniques_that_address_all_pes_say_so(tmp_path, technique):
    folder = make_layout(tmp_path, random_csr(200, 2_000), 4)
    options = both(2).get(technique, {})

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
    ("technique", "options", "members", "beyond", "off"),
    [
        ("cola", {"workgroup": 2, "coalesced": False}, 2, "PE 0 would address memory of PEs 2, 3", ["coalesced"]),
        ("cola", {"workgroup": 2, "fusion": False}, 2, "PE 0 would address memory of PEs 2, 3", ["fusion"]),
        (
            "cola", {"workgroup": 2, "fusion": False, "coalesced": False}, 2,
            "PE 0 would address memory of PEs 2, 3", ["fusion", "coalesced"],
        ),
        ("cola", {"workgroup": 4}, 2, "PE 0 would address memory of PEs 2, 3", []),
        ("halo", {"workgroup": 4}, 2, "PE 0 would address memory of PEs 2, 3", []),
        ("halo", {"workgroup": 2}, 3, "PE 2 would address memory of PE 3", []),
    ],
)  # fmt: skip
def test_workgroups_that_no_host_holds_are_refused(tmp_path, technique, options, members, beyond, off):
    """Who has workgroups of a host's size already is told which steps of cola it is that need all PEs on one."""
    folder = make_layout(tmp_path, random_csr(200, 2_000), 6 if members == 3 else 4)
    remedy = "take halo or cola with workgroup=G"
    if off:
        remedy = f"with {' and '.join(f'{step}=false' for step in off)} rows are fetched by address: between hosts"
        remedy += " fusion and coalesced must be on, and workgroup=G"

    def program(raw):
        with pytest.raises(InputError) as caught:
            prepare(technique, HostsWorld(raw, members), layout.load(folder, raw.rank), "forward", 3, options)
        line = f"technique {technique}: {beyond}, on another host: {remedy}, where G divides the PEs of every host"
        assert str(caught.value) == line and caught.value.everywhere

    simulated.run(6 if members == 3 else 4, program)


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
def test_a_partition_for_larger_hosts_names_the_workgroup_that_fits(
    tmp_path, technique, pes, members, made_for, hosts, fits
):
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


def test_steps_of_cola_that_need_one_host_are_not_the_partitions_fault(tmp_path):
    folder = partitioned(tmp_path, random_csr(200, 2_000), 4, 8)

    def refused(raw):
        with pytest.raises(InputError, match="with fusion=false rows are fetched by address"):
            prepare("cola", HostsWorld(raw, 2), layout.load(folder, raw.rank), "forward", 3, {"fusion": False})

    simulated.run(4, refused)


@pytest.mark.parametrize("technique", ["halo", "cola"])
def test_pes_that_make_no_workgroups_are_one_line(tmp_path, technique):
    folder = make_layout(tmp_path, random_csr(30, 100), 4)
    command = ["aggregate", str(folder), "--technique", technique, "--dim", "4", "--backend", "simulated"]
    command += ["--set", f"{technique}.workgroup=3", "--out", str(tmp_path / "records.jsonl")]
    done = subprocess.run([sys.executable, "-m", "mgg.cli", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"technique {technique}: option workgroup: 3 must divide the number of PEs, 4" in done.stderr
    assert not (tmp_path / "records.jsonl").exists()


@pytest.mark.parametrize(("kind", "said"), [("ranks", "PE 3 did not reach a barrier"), ("hosts", "PE 3 did not|PE 3")])
@pytest.mark.parametrize("technique", ["halo", "cola"])
def test_a_pe_that_stays_away_ends_the_product(tmp_path, technique, kind, said):
    folder, world_of = make_layout(tmp_path, random_csr(200, 2_000), 4), worlds(1)[kind]

    def program(raw):
        plan = prepare(technique, world_of(raw), layout.load(folder, raw.rank), "forward", 4, {"workgroup": 1})
        if raw.rank != 3:
            plan(4)
        else:
            time.sleep(1.5)

    start = time.monotonic()
    with pytest.raises(PeError, match=said):
        simulated.run(4, program, timeout=0.5)
    assert time.monotonic() - start < 10
