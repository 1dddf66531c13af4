"""The cost model: costs grow with what there is to do, and add up; machines and links are checked."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.graphs.crossings import crossings
from support.records import changed

from mgg import layout, partition
from mgg.aggregate import Plan, all_techniques, technique
from mgg.aggregate.auto import Forecast, split_of
from mgg.backend import simulated
from mgg.config import LinkConfig
from mgg.cost import links, machines
from mgg.cost.links import Link, Links, fit
from mgg.cost.machines import H200, MACHINES, find, measure
from mgg.cost.product import Rate, SplitCounts, Workload, crowd, slowest
from mgg.cost.rates import ON_H200
from mgg.errors import InputError
from mgg.records import Partition, read_lines

#: Partitions of the benchmarks' graphs, which the rates of H200 were fitted with.
SPLITS = read_lines(Path(__file__).parents[3] / "tools/measured/splits.jsonl", Partition)
CPUS = H200.model_copy(
    update={
        "gpu": False, "exposed": 1.0, "staged": 1.0,
        "rates": {name: Rate(call=1e-6, arc=1e-9, arc_byte=1e-10, row=1e-9, row_byte=1e-10) for name in
                  ("rows", "partitions", "columns", "finish")},
    }
)  # fmt: skip


def even(pes, *, rows=10_000, arcs=200_000, remote=50_000, halo=8_000, members=8):
    """A split whose PEs all have the same; half of what is remote is in another workgroup, if there are several."""
    groups = -(-pes // members)
    outside = pes * np.array([remote, halo]) // 2 if groups > 1 else (0, 0)
    each = [np.full(pes, count) for count in (rows, arcs, remote, halo)]
    fused = np.full(groups, members * halo // 4 if groups > 1 else 0)
    return SplitCounts(*each, min(members, pes), int(outside[0]), int(outside[1]), fused)


def cost(name, split, machine=H200, dim=64, dtype="fp32", **options):
    plan = technique(name)
    return plan.cost(Workload(split, dim, plan.Options(**options), dtype), machine)


def seconds(name, split, dim=64, machine=H200):
    if technique(name).cost.__func__ is Plan.cost.__func__:
        pytest.skip(f"technique {name} has no cost, so auto never picks it: add it (docs/concepts/costs.md)")
    found = cost(name, split, machine, dim)
    assert found is not None and found.seconds > 0 and 0 <= found.hidden <= found.transfer + found.arithmetic
    return found.seconds


SEVERAL = [name for name, plan in all_techniques().items() if not plan.single_pe]
MODELLED = [(name, machine) for machine in (H200, CPUS) for name in SEVERAL if not (machine.gpu and name == "mgg_uvm")]


@pytest.mark.parametrize(("name", "machine"), MODELLED, ids=lambda value: getattr(value, "gpu", value))
def test_costs_grow_with_columns_arcs_rows_and_hosts(name, machine):
    split = even(4)
    base = seconds(name, split, machine=machine)
    assert seconds(name, split, 128, machine) > base > seconds(name, split, 16, machine)
    assert seconds(name, even(4, arcs=400_000), machine=machine) > base
    assert seconds(name, even(4, rows=20_000), machine=machine) > base
    busy = replace(split, arcs=np.array([200_000, 200_000, 900_000, 200_000]))
    assert seconds(name, busy, machine=machine) > base  # the slowest PE decides
    if machine.gpu and name != "zero_copy":
        assert seconds(name, even(16, members=8)) > seconds(name, even(16, members=16))


def test_fetches_cost_by_halo_remote_arcs_or_blocks():
    for name in ("halo", "cola"):
        assert seconds(name, even(4, halo=50_000)) > seconds(name, even(4, halo=8_000))
    for name in ("mgg", "direct"):
        assert seconds(name, even(4, remote=150_000)) > seconds(name, even(4, remote=50_000))
        assert seconds(name, even(4, halo=50_000)) == seconds(name, even(4, halo=8_000))
    assert cost("broadcast", even(4, halo=10)).transfer == cost("broadcast", even(4, halo=8_000)).transfer > 0


def test_bf16_halves_the_transfer_cost():
    split = even(4, halo=10**6, remote=10**6, arcs=2 * 10**6)
    wide, narrow = (cost("halo", split, dtype=dtype).transfer for dtype in ("fp32", "bf16"))
    assert wide - narrow == pytest.approx(10**6 * 128 / H200.links["nvlink"].bandwidth)


#: A graph on which calls count little, on some workgroups of every machine: hosts of 8, of V100 two domains of 4.
LARGE = {"rows": 1_000_000, "arcs": 20_000_000, "remote": 5_000_000, "halo": 800_000}
SPLIT_OVER = {name: even(32, **LARGE) for name in ("h200", "h100", "a100", "a800")} | {
    "v100": even(8, members=4, **LARGE)
}
#: PEs to a port there: 8 have 8 ports, 8 have 4, 4 have 1.
TO_A_PORT = {"h200": 1, "h100": 1, "a100": 1, "a800": 2, "v100": 4}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_each_ablation_of_cola_costs_more_between_hosts(machine):
    steps = {}, {"pipelined": False}, {"pipelined": False, "coalesced": False}, {"fusion": False}
    times = [cost("cola", SPLIT_OVER[machine.name], machine, 32, **options).seconds for options in steps]
    assert times[0] < times[1] <= times[2] < times[3]  # table 8, from right to left
    # Over QPI a row is no message, so that coalescing saves nothing there.
    assert (times[1] < times[2]) == (machine.links[machine.links.network].message > 0)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_unfused_rows_take_one_link(machine):
    """Half of the 800,000 rows of each PE are outside; over the network mates share the ports."""
    split = SPLIT_OVER[machine.name]
    near, far = machine.links[machine.links.rows], machine.links[machine.links.network]
    crossing = far.message + TO_A_PORT[machine.name] * 256 / far.bandwidth
    expected = near.seconds(400_000, 256) + far.latency + 400_000 * crossing
    assert cost("cola", split, machine, fusion=False).transfer == pytest.approx(expected)


@pytest.mark.parametrize(
    ("members", "ports", "expected"), [(8, 2, 4), (6, 4, 1.5), (8, 8, 1), (2, 8, 1), (1, 2, 1)], ids=str
)
def test_workgroup_shares_its_network_ports(members, ports, expected):
    machine = H200.model_copy(update={"links": H200.links.model_copy(update={"ports": ports})})
    assert crowd(Workload(even(16, members=members), 64, technique("halo").Options()), machine) == expected


def slower(machine, name, **changes):
    """The machine with other values of a link."""
    return machine.model_copy(update={"links": machine.links.changed({name: LinkConfig(**changes)})})


@pytest.mark.parametrize("pipelined", [True, False])
def test_cola_messages_wait_for_the_previous_phase(pipelined):
    """Three of four workgroups send to each; halo sends all of it at once."""
    late = slower(H200, "infiniband-ndr", latency=H200.links["infiniband-ndr"].latency + 1e-3)
    split = even(32)
    cola = [cost("cola", split, machine, pipelined=pipelined).transfer for machine in (H200, late)]
    halo = [cost("halo", split, machine).transfer for machine in (H200, late)]
    assert cola[1] - cola[0] == pytest.approx(3e-3)
    assert halo[1] - halo[0] == pytest.approx(1e-3)


@pytest.mark.parametrize("machine", [H200, CPUS], ids=["gpus", "cpus"])
@pytest.mark.parametrize("name", ["halo", "cola"])
@pytest.mark.parametrize(("pes", "members"), [(8, 4), (6, 2), (4, 1), (4, 4)])
def test_fetched_rows_are_those_needed_from_mates(tmp_path, name, machine, pes, members):
    """Rows of counterparts arrive in the PE's own memory; the others are fetched: counted from the graph."""
    csr = random_csr(600, 10_000)
    make_layout(tmp_path, csr, pes)
    split = SplitCounts.of(
        partition.build(tmp_path / "graph", tmp_path / "p", pes=pes, scheme="equal_nodes", workgroup=members, dim=16)
    )
    assert (split.members, split.groups) == (members, pes // members)
    # Links without latency: what a second a row more costs is the number of rows; latencies count no bytes.
    each = [slower(machine, machine.links.rows, latency=0, message=seconds) for seconds in (0, 1)]
    rows = np.diff([cost(name, split, on).transfer for on in each])[0]
    _, within = crossings(csr, pes, members, "forward")
    assert rows == pytest.approx(within / pes, rel=0.05)
    # Without anything to fetch there is no request either.
    late = [slower(machine, machine.links.rows, latency=seconds) for seconds in (0, 1)]
    first, second = (cost(name, split, on).transfer for on in late)
    assert (first < second) == (members > 1)


@pytest.mark.parametrize("machine", [H200, CPUS], ids=["gpus", "cpus"])
def test_cola_multiplies_received_rows_row_wise(machine):
    """A phase each for three other workgroups reads and writes the sums of the rows that it touches."""
    free = Rate(power=machine.rates["rows"].power)
    by_row = machine.model_copy(update={"rates": machine.rates | {"columns": free, "finish": free}})
    rate, split = machine.rates["rows"], even(32)
    received = 50_000 / 2 / 8
    expected = rate.seconds(150_000, 10_000, 256, 256) + rate.seconds(received, received, 256, 512, 3)
    assert cost("cola", split, by_row).arithmetic == pytest.approx(expected)
    free_rows = machine.model_copy(update={"rates": machine.rates | {"rows": free, "finish": free}})
    alone = replace(even(4, members=1), outside_arcs=4 * 50_000, outside_rows=4 * 8_000)
    assert cost("cola", alone, free_rows).arithmetic == 0


@pytest.mark.parametrize("options", [{}, {"pipelined": False}, {"coalesced": False}, {"fusion": False}], ids=str)
@pytest.mark.parametrize("record", [each for each in SPLITS if each.pes > 1], ids=lambda each: f"{each.name}{each.pes}")
def test_cola_in_one_workgroup_costs_its_fitted_rates(record, options):
    split = SplitCounts.of(record)
    found = cost("cola", split, **options)
    rows, columns, link = H200.rates["rows"], H200.rates["columns"], H200.links["nvlink"]
    work = rows.seconds(split.local_arcs, split.rows, 256, 256)
    work = work + columns.seconds(split.remote_arcs, split.halo_rows, 256, 256)
    moves = link.seconds(split.halo_rows, 256)
    last = np.argmax(work + moves)
    assert (found.arithmetic, found.transfer, found.hidden) == (work[last], moves[last], 0)


@pytest.mark.parametrize("machine", [H200, CPUS], ids=["gpus", "cpus"])
@pytest.mark.parametrize("name", ["halo", "cola"])
def test_workgroups_other_than_the_partitions_have_no_cost(name, machine):
    four, sixteen, eight, none = (cost(name, even(16), machine, workgroup=members) for members in (4, 16, 8, None))
    assert four is None and sixteen is None
    assert eight is not None and eight == none


@pytest.mark.parametrize("machine", [H200, CPUS], ids=["gpus", "cpus"])
def test_far_part_of_halo_costs_its_own_launches(machine):
    one, two = (cost("halo", even(16, members=members), machine).arithmetic for members in (16, 8))
    rate = machine.rates["pulled" if machine.gpu else "rows"]
    assert two - one > rate.call > 0


def test_cost_is_that_of_the_slowest_pe_with_overlap():
    cost = slowest([1.0, 3.0], [2.0, 2.5], 0.5, exposed=0.2)
    assert (cost.arithmetic, cost.transfer) == (3.0, 2.5)
    assert cost.hidden == pytest.approx(0.8 * 2.5) and cost.seconds == pytest.approx(3 + 2.5 + 0.5 - 2)
    assert slowest([4.0], [6.0], 0, exposed=0, beside=[1.0]).seconds == 9.0
    # The second PE has more to do, 3 + 2, and does the 2 beside the 3: the first ends last, after 4.
    first = slowest([4.0, 3.0], [0.0, 2.0], 0, exposed=0)
    assert (first.arithmetic, first.transfer, first.hidden, first.seconds) == (4, 0, 0, 4)


def test_technique_that_cannot_run_has_no_cost():
    two = Forecast(H200, even(2)).costs(16)
    assert "local" not in two and "mgg_uvm" not in two and "halo" in two
    assert set(Forecast(H200, even(2), "bf16").costs(16)) == {"halo"}
    assert set(Forecast(H200, even(1), "bf16").costs(16)) == {"halo", "local"}
    assert "cola" not in Forecast(H200, even(12)).costs(16)  # 8 does not divide 12
    assert "zero_copy" in Forecast(H200, even(8)).costs(16)
    assert "zero_copy" not in Forecast(H200, even(16)).costs(16)  # no bus leads to another host's memory
    assert {"mgg_uvm", "zero_copy"} <= set(Forecast(CPUS, even(2)).costs(16))


@pytest.mark.parametrize("record", [each for each in SPLITS if each.pes == 1], ids=lambda record: record.name)
def test_auto_picks_local_on_one_pe(record):
    """Others do its work and more, whatever their rates come to at widths or row lengths that no fit has seen."""
    for machine in (H200, CPUS):
        for dim in (1, 16, 32, 64, 128, 256, 1024):
            assert Forecast(machine, SplitCounts.of(record)).ranking(dim)[0] == "local", (machine.gpu, dim)


def test_auto_ignores_techniques_without_a_cost(monkeypatch):
    known = Forecast(H200, even(2)).ranking(16)
    best = known[0]
    monkeypatch.setattr(technique(best), "cost", Plan.cost)
    assert Forecast(H200, even(2)).ranking(16) == known[1:] and Forecast(H200, even(2)).seconds(best, 16) is None


def test_auto_ignores_rough_costs():
    long_rows = even(2, rows=100, arcs=50_000_000, remote=0, halo=0)
    free = {"partitions": Rate(), "blocking": Rate()}
    quick = H200.model_copy(update={"rates": H200.rates | free})
    gpus, cpus = Forecast(quick, long_rows), Forecast(CPUS, long_rows)
    costs = gpus.costs(128)
    rough = {name for name in costs if all_techniques()[name].rough}
    assert min(costs, key=lambda name: costs[name].seconds) in rough and rough == {"direct", "features"}
    assert {*gpus.ranking(128)[-2:]} == rough and sorted(gpus.ranking(128)) == sorted(costs)
    # One thread of a CPU core works on all rows, so that none of them is left to it alone.
    by_time = cpus.costs(128)
    assert cpus.ranking(128) == sorted(by_time, key=lambda name: (by_time[name].seconds, name))


def test_layout_and_partition_give_the_same_split(tmp_path):
    folder = make_layout(tmp_path, random_csr(600, 6_000), 12)
    manifest = layout.read_manifest(folder)
    record = partition.load(tmp_path / "partition-12")
    expected = SplitCounts.of(record)
    assert manifest.workgroup == 8 and expected.groups == 2 and expected.outside_rows > 0
    for found in simulated.run(12, lambda world: split_of(world, layout.load(folder, world.rank), "forward")):
        for name in ("rows", "arcs", "remote_arcs", "halo_rows", "fused_rows"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert found.members == 8
        assert (found.outside_arcs, found.outside_rows) == (expected.outside_arcs, expected.outside_rows)


def test_links_are_grouped_by_their_times():
    link = Link(latency=2e-6, bandwidth=5e9, message=3e-9)
    samples = np.array([[1.0, rows, rows * width] for rows in (1, 1000, 50_000) for width in (64.0, 512.0)])
    times = np.array([link.seconds(rows, total / rows) for _, rows, total in samples])
    latency, message, inverse = fit(samples, times)
    assert (latency, message, 1 / inverse) == pytest.approx((2e-6, 3e-9, 5e9))


ROWS = np.array([[1.0, rows, rows * width] for width in (64.0, 256.0, 512.0) for rows in (1, 5_000, 40_000)])


def times_of(link):
    return np.array([link.seconds(rows, total / rows) for _, rows, total in ROWS])


def probed(action):
    """What each of two PEs finds by ``action`` with a probe."""

    def program(world):
        probe = links.Probe(world, 2**12)
        found = action(world, probe)
        probe.close()
        return found

    return simulated.run(2, program)


@pytest.mark.parametrize(("pes", "rows"), [(1, "cache"), (2, "shared_memory")])
def test_network_links_of_one_host_are_not_reported_as_measured(monkeypatch, pes, rows):
    monkeypatch.setattr(links, "CPU_BYTES", 2**16)
    found = simulated.run(pes, links.measure)[0]
    sources = {name: link.source for name, link in found.links.items()}
    taken = {"mpi"} | ({"broadcast", "shift"} if pes == 1 else set())
    assert {name for name, source in sources.items() if source == f"taken from {rows}, not measured"} == taken
    assert all(sources[name] == "measured" for name in sources.keys() - taken)
    assert found["mpi"].bandwidth == found[rows].bandwidth


def test_disturbed_row_probes_are_repeated():
    """Narrow rows that waited for it take as long as wide ones, on one PE; the other goes along."""
    link = Link(latency=2e-6, bandwidth=5e9, message=3e-9)
    disturbed = np.maximum(times_of(link), 1e-7 * ROWS[:, 1])

    def action(world, probe):
        rounds = [disturbed if world.rank else times_of(link), times_of(link)]
        probe._times_of_rows = lambda pe: (ROWS, rounds.pop(0))
        return probe.rows(1 - world.rank, most=8e9), rounds

    for found, left in probed(action):
        assert not left
        assert (found.latency, found.message, found.bandwidth) == pytest.approx((2e-6, 3e-9, 5e9))


def test_links_are_bounded_by_memory_bandwidth():
    """Rows whose width costs nothing, or that get faster with it: what they take is kept, as far as it can be."""
    flat, falling = 1e-7 * ROWS[:, 1], ROWS[:, 1] * 1.05e-7 - 2e-11 * ROWS[:, 2]

    def action(world, probe):
        found = []
        for times in (flat, falling):
            probe._times_of_rows = lambda pe, times=times: (ROWS, times)
            found.append((probe.rows(1, most=8e9), times))
        return found

    for link, times in probed(action)[0]:
        assert link.bandwidth == pytest.approx(8e9) and link.bandwidth <= 8e9 and link.message > 0
        large = ROWS[:, 1] == 40_000
        assert times_of(link)[large] == pytest.approx(times[large], rel=0.5)


@pytest.mark.parametrize(
    ("rounds", "bandwidth"),
    [
        ([(1e-5, 1.01e-3)], 1e9),
        ([(2e-3, 1.5e-3), (1e-5, 1.01e-3)], 1e9),
        ([(1e-3, 1e-3)] * 4, 1e9),  # what all bytes take
        ([(0.9e-3, 0.8e-3)] * 3 + [(1.4e-3, 1.5e-3)], 1.25e9),
        ([(1e-6, 1.1e-5)] * 4, 8e9),
    ],
)
def test_disturbed_block_probes_are_repeated(rounds, bandwidth):
    def action(world, probe):
        left = list(rounds)
        return probe._by_size(lambda: left.pop(0), 10**6, 8e9).bandwidth, left

    assert probed(action) == [(pytest.approx(bandwidth), [])] * 2


def test_links_may_be_overridden():
    found = H200.links.changed({"nvlink": LinkConfig(bandwidth=1e9)}, "infiniband-hdr")
    assert found["nvlink"].bandwidth == 1e9 and found["nvlink"].latency == H200.links["nvlink"].latency
    assert found.network == "infiniband-hdr" and found["nvlink"].source == "given"
    with pytest.raises(InputError, match="link qpi: this machine has none, so latency and bandwidth"):
        H200.links.changed({"qpi": LinkConfig(bandwidth=1e9)})
    few = Links(links={"ram": Link(latency=0, bandwidth=1)}, rows="ram", network="ram", barrier=0)
    with pytest.raises(InputError, match="unknown between workgroups; did you mean infiniband"):
        few.changed({}, "infiniband-hdx")


def test_machines_are_named_or_read_from_a_file(tmp_path):
    assert find("a800") is MACHINES["a800"]
    assert find("H100") is find("NVIDIA H100 80GB HBM3") is MACHINES["h100"]
    assert find(" nvidia h200") is H200
    for name in ("h20", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "somewhere/h200.json"):
        said = rf"{name}'.* known \(there are a100, a800, h100, h200, v100\): run mgg links"
        with pytest.raises(InputError, match=said):
            find(name)
    path = tmp_path / "here.json"
    machines.write(path, H200)
    assert find(str(path)) == H200
    path.write_text(changed(path.read_text(), lambda values: values["links"]["links"]["nvlink"].update(bandwidth=0)))
    with pytest.raises(InputError, match=r"here.json: links.links.nvlink.bandwidth: .*greater than 0.*run mgg links"):
        find(str(path))


def test_unmeasured_rates_scale_with_data_sheets_and_are_marked():
    """A100: 2.039 of H200's 4.8 TB/s, and 600 of its 900 GB/s."""
    found, memory = MACHINES["a100"], 2.039 / 4.8
    assert found.basis.startswith("not measured: ") and found.name == "a100"
    assert found.links["hbm"].bandwidth == pytest.approx(memory * H200.links["hbm"].bandwidth)
    for link in ("nvlink", "broadcast", "shift"):
        assert found.links[link].bandwidth == pytest.approx(2 / 3 * H200.links[link].bandwidth)
    assert found.rates["rows"].arc_byte == pytest.approx(H200.rates["rows"].arc_byte / memory)
    assert found.rates["rows"].call == H200.rates["rows"].call
    assert not any(MACHINES[name].basis.startswith("not measured") for name in ("h200", "h100"))


def test_gpu_with_fitted_constants_uses_them(monkeypatch):
    own = H200.model_copy(update={"name": "h100", "exposed": 0.5})
    monkeypatch.setitem(machines.FITTED, "h100", own)
    monkeypatch.setattr("mgg.cost.links.measure", lambda world: H200.links)
    monkeypatch.setattr("mgg.cost.machines.compared_with_h200", lambda world: dict.fromkeys(ON_H200, (2.0, 3.0)))
    gpus = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB")
    found = [measure(SimpleNamespace(gpu=gpu)) for gpu in gpus]
    assert [machine.exposed for machine in found] == [0.5, H200.exposed, H200.exposed]
    assert [machine.rates["rows"].arc / H200.rates["rows"].arc for machine in found] == [1, 1, 2]
    assert [machine.basis.partition(": ")[0] for machine in found] == [
        "links measured; rates of h100", "links measured; rates of h200",
        "links and operators measured; rates of h200, times as long for work and bytes",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values["rates"].pop("blocking"), "rates: blocking missing"),
        (lambda values: values["links"].update(rows="qpi"), "links: qpi missing"),
        (lambda values: values["links"]["links"].pop("shift"), "links: shift missing"),
    ],
)
def test_incomplete_machine_file_is_refused(tmp_path, change, message):
    path = tmp_path / "here.json"
    path.write_text(changed(H200.model_dump_json(), change))
    with pytest.raises(InputError, match=f"here.json: .*{message}.*run mgg links"):
        find(str(path))


def test_gpu_links_keep_the_fitted_launch_costs(monkeypatch):
    """A probe sees less than a product spends on launches, and the rates hold the barriers."""
    quick = Link(latency=1e-6, bandwidth=2 * H200.links["nvlink"].bandwidth)
    slow = quick.model_copy(update={"bandwidth": 1e9})
    measured = {"hbm": H200.links["hbm"], "nvlink": quick, "broadcast": quick, "shift": slow, "network": quick}
    found = Links(links=measured, rows="nvlink", network="network", barrier=1e-5)
    monkeypatch.setattr("mgg.cost.links.measure", lambda world: found)
    here = measure(SimpleNamespace(gpu="NVIDIA H200")).links
    for name in ("nvlink", "broadcast", "shift"):
        assert here[name].latency == H200.links[name].latency
    assert here["nvlink"].bandwidth == quick.bandwidth and here["network"] == quick
    assert here["broadcast"].bandwidth == pytest.approx(2 * H200.links["broadcast"].bandwidth)
    assert here["shift"].bandwidth == slow.bandwidth
    assert here.barrier == H200.links.barrier


def test_work_and_bytes_add_or_overlap():
    """Arcs and rows take 0.5 s, their bytes 1.2 s, two calls 0.2 s."""
    rate = {"call": 0.1, "arc": 0.01, "arc_byte": 0.001, "row": 0.02, "row_byte": 0.01}
    both = [Rate(**rate, power=power).seconds(10, 20, 40, 4, calls=2) for power in (1, 2, 100)]
    assert both == pytest.approx([0.2 + 0.5 + 1.2, 0.2 + 1.3, 0.2 + 1.2])
    longer = Rate(**rate, power=2).scaled(3, 2)
    assert longer.seconds(10, 20, 40, 4, calls=2) == pytest.approx(0.2 + float(np.hypot(3 * 0.5, 2 * 1.2)))


@pytest.mark.parametrize("wrong", [{"power": 0}, {"power": float("inf")}, {"arc": -1e-12}, {"call": float("nan")}])
def test_rates_of_a_file_must_be_within_their_limits(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rate(**wrong)
