"""Workgroups found from the machine: the matrix of nvidia-smi, hosts, and what a start says of a layout's."""

import logging

import pytest
from support.graphs import awkward_graphs, make_layout
from support.programs.spmm_program import inputs

from mgg import layout
from mgg.aggregate import parse_options, prepare
from mgg.aggregate.workgroups import WorkgroupOptions, joined_here, resolved_workgroup, tell_difference
from mgg.backend import simulated
from mgg.backend.machine import topology

#: Two pairs with NVLink between, PCIe in a pair's socket, and two sockets.
PAIRS = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity
GPU0\t X \tNV4\tSYS\tSYS\tPIX\t0-31
GPU1\tNV4\t X \tSYS\tSYS\tSYS\t0-31
GPU2\tSYS\tSYS\t X \tNV4\tSYS\t32-63
GPU3\tSYS\tSYS\tNV4\t X \tSYS\t32-63
NIC0\tPIX\tSYS\tSYS\tSYS\t X
"""
NUMBERS = "".join(f"{n}, 00000000:{n}A:00.0\n" for n in range(4))
SWITCH = PAIRS.replace("NV4", "NV18").replace("SYS\tSYS\t", "NV18\tNV18\t").replace("SYS\tNV18", "NV18\tNV18")
PCIE = PAIRS.replace("NV4", "PHB")


def found(monkeypatch, pes, printed, buses, hosts=None, gpu="GPU"):
    """What PEs whose GPUs have the ``buses`` find, and which links."""
    monkeypatch.setattr(topology, "_nvidia_smi", lambda *words: printed if words[0] == "topo" else NUMBERS)

    def program(world):
        world.gpu, world.gpu_bus = gpu, buses[world.rank] if gpu else ""
        if hosts:
            gathered = world.gather
            world.gather = lambda value: [
                (hosts[pe], *each[1:]) if isinstance(each, tuple) else each for pe, each in enumerate(gathered(value))
            ]
        return joined_here(world)

    every = simulated.run(pes, program)
    assert len(set(every)) == 1
    return every[0]


BUSES = [f"0000:{n}a:00.0" for n in range(4)]


@pytest.mark.parametrize(
    ("printed", "buses", "members", "links"),
    [
        (PAIRS, BUSES, 2, "NVLink"),
        (PAIRS, [BUSES[n] for n in (0, 2, 1, 3)], 1, "NVLink"),  # consecutive PEs are in other pairs
        (PAIRS, [BUSES[0]] * 2 + [BUSES[1]] * 2, 4, "NVLink"),  # PEs share GPUs
        (SWITCH, BUSES, 4, "NVLink"),
        (PCIE, BUSES, 2, "PCIe of one socket"),
        ("", BUSES, 4, "one host, of which nvidia-smi tells no links"),
        (PAIRS, ["0000:ff:00.0", *BUSES[1:]], 4, "one host, of which nvidia-smi tells no links"),
    ],
)
def test_workgroups_are_gpus_joined_by_links(monkeypatch, printed, buses, members, links):
    assert found(monkeypatch, 4, printed, buses) == (members, links)


def test_workgroups_do_not_span_hosts(monkeypatch):
    buses = [BUSES[0], BUSES[1]] * 2
    assert found(monkeypatch, 4, SWITCH, buses, ["a", "a", "b", "b"]) == (2, "NVLink")
    assert found(monkeypatch, 4, "", buses, ["a", "a", "a", "b"], gpu="")[0] == 1, (
        "three are no divisor, nor is one left"
    )
    assert found(monkeypatch, 4, "", buses, ["a", "a", "b", "b"], gpu="") == (2, "memory of one host")


def test_workgroup_auto_becomes_a_number_first(tmp_path, monkeypatch):
    """The product is that of the number, and so are its bytes."""
    monkeypatch.setattr(topology, "_nvidia_smi", lambda *words: PAIRS if words[0] == "topo" else NUMBERS)
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)

    def program(world, workgroup, gpus):
        if gpus:
            monkeypatch.setattr(
                "mgg.aggregate.workgroups.domain", lambda world: ({world.rank, world.rank ^ 1}, "NVLink")
            )
        plan = prepare("halo", world, layout.load(folder, world.rank), "forward", 4, {"workgroup": workgroup})
        plan.write(4, inputs(plan.layout.node_ids, 4))
        before = dict(world.counters.bytes)
        out = plan(4).tobytes()
        moved = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
        plan.close()
        return plan.options.workgroup, out, moved

    given = simulated.run(4, lambda world: program(world, 2, False))
    assert simulated.run(4, lambda world: program(world, "auto", True)) == given
    assert given[0][0] == 2 and any("put" in moved for _, _, moved in given)


def test_start_reports_a_different_workgroup_of_the_layout(tmp_path, caplog):
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)  # of workgroups of 8: all are one

    def warnings(members, *options):
        caplog.clear()

        def program(world):
            part = layout.load(folder, world.rank)
            tell_difference(world, part, [parse_options("halo", each) for each in options])
            return resolved_workgroup(world, WorkgroupOptions(workgroup="auto")).workgroup

        with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
            near = {rank: set(range(rank - rank % members, rank - rank % members + members)) for rank in range(4)}
            patch.setattr("mgg.aggregate.workgroups.domain", lambda world: (set(near[world.rank]), "NVLink"))
            assert simulated.run(4, program) == [members] * 4
        return [each.getMessage() for each in caplog.records]

    assert warnings(4, {}) == [] == warnings(2, {"workgroup": 4}) == warnings(2, {"workgroup": "auto"})
    (line,) = warnings(2, {"workgroup": 1}, {})
    assert line == (
        "workgroups: this layout has them of 4 PEs, and here 2 are joined (NVLink): workgroup=auto takes those, or"
        " partition with --workgroup 2"
    )
