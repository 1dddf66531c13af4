"""Technique auto: every PE picks the same, before anything of a plan is there; measured once, marked in the record."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.devices.strict import HostsWorld
from support.graphs import make_layout, random_csr
from support.ranks import succeeded
from support.records.measured import swept

from mgg import layout, partition
from mgg.aggregate import auto
from mgg.aggregate import measure as measuring
from mgg.backend import simulated
from mgg.cost import machines, rates
from mgg.cost.machines import H200, cache_file, of_world
from mgg.cost.product import SplitCounts
from mgg.errors import InputError, MachineError
from mgg.kernel import cpu

pytestmark = pytest.mark.usefixtures("quick_probes")


@pytest.fixture
def folder(tmp_path):
    return make_layout(tmp_path, random_csr(300, 3_000), 3)


def picked(folder, names, dims):
    """Every PE's records and refusals, with the model's picks among them."""
    return swept(folder, 3, names, dims, iterations=2, auto=True)


def test_pes_pick_the_same_and_report_the_prediction(folder):
    first, *others = picked(folder, [], [4, 32])
    records, refused = first
    assert not refused and [record.dim for record in records] == [4, 32]
    assert all(record.chosen and record.predicted > 0 for record in records)
    assert all(found == first for found in others)


def test_pick_that_is_also_named_is_measured_once(folder):
    records, _ = picked(folder, ["halo", "zero_copy", "cola"], [8])[0]
    assert sorted({record.technique for record in records}) == sorted(record.technique for record in records)
    assert [record.chosen for record in records].count(True) == 1
    best = min(records, key=lambda record: record.predicted)
    assert next(record for record in records if record.chosen).predicted <= best.predicted


def test_nothing_is_predicted_without_auto(folder):
    [found] = swept(folder, 3, ["halo"], [4], check=False)[0][0]
    assert (found.chosen, found.predicted) == (False, None)


def test_auto_picks_before_anything_is_allocated(folder, monkeypatch):
    simulated.run(3, of_world)  # links are known, so that nothing is measured

    def program(world):
        made = []
        original = world.symmetric
        world.symmetric = lambda *arguments: made.append(arguments) or original(*arguments)
        part = layout.load(folder, world.rank)
        return auto.forecast(world, part, "forward").ranking(16)[0], made

    found = simulated.run(3, program)
    assert [made for _, made in found] == [[]] * 3
    assert len({name for name, _ in found}) == 1


def test_links_are_measured_once_or_again_on_request(caplog):
    assert simulated.run(1, cache_file)[0] != simulated.run(2, cache_file)[0]
    first = simulated.run(2, of_world)
    assert first[0] == first[1] and not first[0].gpu
    kept = simulated.run(2, cache_file)[0]
    text = kept.read_text()
    assert simulated.run(2, of_world)[0] == first[0] and kept.read_text() == text
    simulated.run(2, lambda world: of_world(world, refresh=True))
    assert kept.read_text() != text
    assert not caplog.records
    kept.write_text("{}")  # as another version may have left it
    found = simulated.run(2, of_world)[0]
    (warning,) = caplog.messages
    assert warning == f"{kept}: has no sha256, so it was altered or is of an earlier MGG; measuring anew"
    assert simulated.run(2, of_world)[0] == found and kept.read_text() != "{}"


def test_impossible_link_times_are_not_stored(caplog):
    found = simulated.run(2, of_world)[0]
    assert not found.links.beyond()
    kept, row = simulated.run(2, cache_file)[0], found.links["shared_memory"].model_copy(update={"bandwidth": 1e15})
    links = found.links.model_copy(update={"links": found.links.links | {"shared_memory": row}})
    machines.write(kept, found.model_copy(update={"links": links}))
    assert simulated.run(2, of_world)[0].links["shared_memory"].bandwidth < 1e15
    assert "shared_memory: faster than memory; measuring anew" in caplog.records[0].message


def in_rounds(monkeypatch, *seconds):
    """Let barriers take ``seconds`` in the rounds of their measurement."""
    rounds = {}

    def typical(probe, action):
        if action != probe._world.barrier:
            return 1e-3
        return rounds.setdefault(probe, list(seconds)).pop(0)

    monkeypatch.setattr(machines.links.Probe, "typical", typical)


def test_disturbed_round_of_barriers_is_ignored(monkeypatch, caplog):
    in_rounds(monkeypatch, 8e-3, 5e-6, 4e-3, 6e-6)
    found = simulated.run(2, of_world)[0]
    assert (found.links.barrier, found.links.barrier_again) == (5e-6, 6e-6)
    assert simulated.run(2, cache_file)[0].is_file() and not caplog.records


def test_inconsistent_barrier_times_are_not_stored(monkeypatch, caplog):
    in_rounds(monkeypatch, 8e-3, 4e-6, 7e-3, 9e-3)
    first = simulated.run(2, of_world)
    assert first[0] == first[1] and first[0].links.barrier == 4e-6
    assert not simulated.run(2, cache_file)[0].exists()
    assert [record.message for record in caplog.records] == [
        "links: a barrier took 4 us in one round and 7000 us in the next, as other work disturbs this machine: not kept"
    ]
    in_rounds(monkeypatch, 5e-6, 5e-6, 5e-6, 5e-6)
    simulated.run(2, of_world)
    assert simulated.run(2, cache_file)[0].is_file()


def test_barrier_times_of_the_old_format_are_measured_again(monkeypatch, caplog):
    """As they were kept before there were rounds, whatever disturbed that one."""
    found, kept = simulated.run(2, of_world)[0], simulated.run(2, cache_file)[0]
    old = found.links.model_copy(update={"barrier": 8e-3, "barrier_again": 0.0})
    machines.write(kept, found.model_copy(update={"links": old}))
    in_rounds(monkeypatch, 5e-6, 5e-6, 5e-6, 5e-6)
    assert simulated.run(2, of_world)[0].links.barrier == 5e-6
    assert caplog.records[0].message.endswith("links.barrier: of one round alone; measuring anew")


def test_gpu_synchronization_is_part_of_the_fit(monkeypatch):
    measured = H200.links.model_copy(update={"barrier": 4e-6, "barrier_again": 1e-3})
    monkeypatch.setattr(machines.links, "measure", lambda world: measured)
    monkeypatch.setattr(rates, "gpu_seconds", lambda world: rates.ON_H200)
    found = machines.measure(SimpleNamespace(gpu="NVIDIA X", name="nvshmem", size=4))
    assert found.links.barrier == H200.links.barrier and not found.links.doubtful()


def test_stored_gpu_links_of_another_fit_are_measured_again(monkeypatch):
    """What is kept of them holds constants of it."""
    monkeypatch.setattr(machines, "job_machine", lambda world: SimpleNamespace(model_dump=dict))
    gpus = SimpleNamespace(gpu="NVIDIA X", name="nvshmem", size=2)
    kept = cache_file(gpus)
    with monkeypatch.context() as another:
        another.setattr(machines, "H200", H200.model_copy(update={"exposed": 0.5}))
        assert cache_file(gpus) != kept
    assert cache_file(gpus) == kept
    monkeypatch.setitem(machines.FITTED, "x", H200.model_copy(update={"staged": 0.5}))
    assert cache_file(gpus) != kept


def test_each_term_of_a_rate_is_that_of_the_slowest_pe(monkeypatch):
    """One PE's calls take longer, the other's arcs."""
    terms = {"PE 0": (1.0e-5, 5e-9, 0, 0, 0), "PE 1": (1.1e-5, 1e-9, 0, 0, 0)}
    monkeypatch.setattr(rates, "fit", lambda samples, taken: np.array(terms[threading.current_thread().name]))
    for found in simulated.run(2, rates.measure_rates):
        assert {(rate.call, rate.arc) for rate in found.values()} == {(1.1e-5, 5e-9)}


def test_no_fitting_technique_is_one_line_on_every_pe(folder, monkeypatch):
    monkeypatch.setattr(auto, "runs", lambda *_: False)
    with pytest.raises(InputError, match="technique auto: the cost model covers none for 3 PEs and fp32") as caught:
        picked(folder, [], [4])
    assert caught.value.everywhere


def test_auto_skips_techniques_beyond_memory(folder, monkeypatch):
    free = picked(folder, [], [4])[0][0][0].technique

    def check(world, plan, *_):
        if plan.name == free:
            raise MachineError("too little").on_every_pe()

    monkeypatch.setattr(measuring.memory, "check", check)
    assert picked(folder, [], [4])[0][0][0].technique != free


def test_width_that_fits_nowhere_is_skipped(folder, monkeypatch):
    def check(world, plan, layout, direction, dim, *_):
        if dim > 4:
            raise MachineError("too little").on_every_pe()

    monkeypatch.setattr(measuring.memory, "check", check)
    records, refused = picked(folder, [], [4, 32])[0]
    assert [(record.dim, record.chosen) for record in records] == [(4, True)]
    assert [str(error) for error in refused] == ["auto, D = 32: too little"]
    with pytest.raises(MachineError, match="auto, D = 32: too little") as caught:
        picked(folder, [], [32])
    assert caught.value.everywhere


def on_gpus(monkeypatch, seconds):
    """What is measured on two GPUs whose operators take ``seconds`` on the probe."""
    monkeypatch.setattr(machines.links, "measure", lambda world: H200.links)
    monkeypatch.setattr(rates, "gpu_seconds", lambda world: seconds)
    return machines.measure(SimpleNamespace(gpu="NVIDIA X", name="nvshmem", size=2))


def test_gpu_operators_are_scaled_from_h200(monkeypatch):
    """Twice the time for arcs and rows, three times for their bytes; other operators as on H200."""
    work, moved = rates.ON_H200["rows"]
    found = on_gpus(monkeypatch, rates.ON_H200 | {"rows": (2 * work, 3 * moved)})
    assert found.gpu and found.name == "NVIDIA X" and found.exposed == H200.exposed
    for name, (arcs, its_bytes) in {"rows": (2, 3), "pulled": (2, 3), "partitions": (1, 1), "columns": (1, 1)}.items():
        here, there = found.rates[name], H200.rates[name]
        work, bytes_ = (arcs * there.arc, arcs * there.row), (its_bytes * there.arc_byte, its_bytes * there.row_byte)
        expected = (there.call, work[0], bytes_[0], work[1], bytes_[1])
        assert here.values() == pytest.approx(expected) and here.power == there.power, name
    assert found.rates["blocking"] == H200.rates["blocking"]
    assert on_gpus(monkeypatch, rates.ON_H200).rates == H200.rates


def test_gpu_probe_times_each_operator_at_each_width(monkeypatch):
    """On CPU ranks, whose operators are the same table, on a graph that is small."""
    monkeypatch.setattr(rates, "REPEATS", 1)
    monkeypatch.setattr(cpu, "spmm_pieces", cpu.spmm_rows, raising=False)  # the one kernel of GPUs that CPUs lack
    first, second = simulated.run(2, rates.gpu_seconds)
    assert first == second and set(first) == set(rates.ON_H200)
    assert all(len(each) == len(rates.GPU_WIDTHS) and min(each) > 0 for each in first.values())


@pytest.mark.parametrize(("halo", "first"), [(1.04, "halo"), (1.06, "cola")])
def test_ties_of_the_model_are_decided_by_volume(halo, first):
    split = SplitCounts(
        *(np.ones(2, int) for _ in range(4)), members=2, outside_arcs=0, outside_rows=0, fused_rows=np.zeros(1)
    )
    seconds = {"ring": 1.0, "mgg": 1.01, "halo": halo, "cola": 1.05, "direct": 0.1}
    ranked = auto.Forecast(H200, split).order(seconds)
    assert ranked[0] == first and ranked[-1] == "direct"
    assert ranked.index("ring") < ranked.index("mgg")


def test_auto_skips_single_host_techniques_on_several_hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(machines.links, "GPU_BYTES", 2**18)
    make_layout(tmp_path, random_csr(300, 3_000), 4)
    partition.build(tmp_path / "graph", tmp_path / "part", pes=4, scheme="equal_nodes", workgroup=2, dim=5)
    layout.build(tmp_path / "graph", tmp_path / "part", tmp_path / "layout")

    def program(world, members):
        world = HostsWorld(world, members)
        part = layout.load(tmp_path / "layout", world.rank)
        known = set(auto.forecast(world, part, "forward").costs(16))
        return known, auto.for_training(world, part, [16, 4]), of_world(world).links.rows

    between = {"broadcast", "broadcast_pipelined", "cola", "features", "halo", "ring"}
    for members, known in (
        (4, between | {"direct", "mgg"}),  # no bus joins the layout's two workgroups, so nothing is said of zero_copy
        (2, between),
        (1, between - {"cola", "halo"}),
    ):
        found = simulated.run(4, lambda world: program(world, members))  # noqa: B023
        assert {each[2] for each in found} <= {"nvlink", "cache"}
        assert all(each[0] == known and set(each[1]) == known for each in found), (members, found)


@pytest.mark.parametrize(
    ("members", "dtypes", "named"),
    [(2, ["fp32"], "cola, halo"), (2, ["bf16"], "halo"), (2, ["fp32", "bf16"], "cola, halo"), (4, ["fp32"], "")],
)
def test_workgroup_that_would_allow_a_technique_is_reported_once(tmp_path, monkeypatch, caplog, members, dtypes, named):
    monkeypatch.setattr(machines.links, "GPU_BYTES", 2**18)
    folder = make_layout(tmp_path, random_csr(300, 3_000), 4)  # for workgroups of 8, as by default

    def program(raw):
        world, part = HostsWorld(raw, members), layout.load(folder, raw.rank)
        if dtypes == ["fp32"]:
            auto.for_training(world, part, [16, 4])
        else:
            auto.tell_left_out(world, part, dtypes)

    simulated.run(4, program)
    said = "workgroup 8 spans hosts of 2 PEs: partition with --workgroup 2 (config: partition.workgroup)"
    found = [record.message for record in caplog.records]
    assert found == ([f"technique auto: leaves out {named}: {said}"] if named else [])


def test_sweep_reports_what_auto_leaves_out(folder, monkeypatch, caplog):
    monkeypatch.setattr(machines.links, "GPU_BYTES", 2**18)
    swept(
        folder, 3, [], [4, 8], dtypes=["fp32", "bf16"], check=False, auto=True, world_of=lambda raw: HostsWorld(raw, 1)
    )
    assert [record.message.split(": ")[1] for record in caplog.records] == ["leaves out cola, halo"]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("pes", "hosts"), [(1, 1), (4, 2), (2, 2)])
def test_links_of_simulated_gpus_are_measured(tmp_path, pes, hosts):
    fake = Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py"
    code = (
        "from mgg.cost import links, machines, rates\nfrom mgg.backend import nvshmem\n"
        "links.GPU_BYTES, rates.GPU_ROWS = 2**18, 256\n"
        f"for found in nvshmem.run(lambda: {pes}, machines.of_world):\n"
        "    said = f'{found.gpu} {found.links.rows} {found.links.network} {sorted(found.links.links)}'\n"
        "    print(said + chr(10), end='', flush=True)\n"
    )
    several = {} if hosts == 1 else {"FAKE_PES_A_HOST": str(pes // hosts), "FAKE_GPUS": str(pes // hosts)}
    done = succeeded(pes, [str(fake), "-c", code], XDG_CACHE_HOME=str(tmp_path), **several)
    rows = "nvlink" if pes > hosts else "cache"
    classes = sorted({"broadcast", "cache", "hbm", "infiniband-ndr", "pcie", "shift", rows})
    assert done.stdout.count(f"True {rows} infiniband-ndr {classes}") == pes
