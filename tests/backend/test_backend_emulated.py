"""Emulated networks: how long each operation is delayed, on clocks that the tests set; results stay the same."""

import math

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.programs.spmm_program import products
from support.programs.world_program import program as check_world
from support.ranks import mpiexec
from support.ranks.ready import FAKE, ready

from mgg import layout
from mgg.aggregate import prepare
from mgg.aggregate.workgroups import joined_here
from mgg.backend import simulated
from mgg.backend.api import Emulated
from mgg.backend.emulated import EmulatedWorld, HostPort, HostTime, emulating
from mgg.errors import InputError
from mgg.network import Network

#: 1,000 bytes per second, a latency of half a second.
SLOW = Network(1e3, 0.5)


class ManualTime(HostTime):
    """A clock that advances only while somebody waits."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def wait_until(self, when):
        self.time = max(self.time, when)


@pytest.mark.parametrize(
    ("text", "bandwidth", "latency", "printed"),
    [
        ("20GB/s,5us", 20e9, 5e-6, "emulated 20 GB/s, 5 us"),
        (" 1.5 GB/s , 1ms ", 1.5e9, 1e-3, "emulated 1.5 GB/s, 1000 us"),
        ("200Gbit/s,700ns", 25e9, 7e-7, "emulated 25 GB/s, 0.7 us"),
        ("1GiB/s,0s", 2**30, 0.0, "emulated 1.07374 GB/s, 0 us"),
    ],
)
def test_network_is_parsed_and_printed(text, bandwidth, latency, printed):
    found = Network.parse(text)
    assert (found.bandwidth, found.latency) == (bandwidth, pytest.approx(latency)) and str(found) == printed


@pytest.mark.parametrize(
    "text",
    ["", "20GB/s", "20GB,5us", "5us,20GB/s", "0GB/s,5us", "-1GB/s,5us", "20GB/s,5", "20GB/s,2s", "20GB/s,-5us",
     "20GB/s,5us,1", "nanGB/s,5us", "2e9PB/s,5us", "9999PB/s,1us", "x" * 500],
)  # fmt: skip
def test_invalid_network_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^'[^\n]*write for example 20GB/s,5us$"):
        Network.parse(text)


def test_messages_queue_at_a_shared_port():
    clock = ManualTime()
    port = HostPort(clock)
    port.take(2.0, 0.5)
    clock.time += 1
    port.take(1.0, 0.5)  # after the first message, until 103
    assert port.due() == 103.5
    clock.time = 110.0
    port.take(0.25, 0.0)
    port.take(1.0, 0.5, aside=True)
    port.wait_for_arrivals()  # not for messages on the side stream
    assert clock.time == 110.25
    port.wait_for_arrivals(aside=True)
    assert clock.time == 111.75


def emulated_world(world, members=2):
    clock = ManualTime()
    return EmulatedWorld(world, Emulated(SLOW, members), clock), clock


def seconds_of(pes, work, members=2):
    """The seconds that ``work(world, rows)`` takes by each PE's clock."""

    def program(world):
        emulated, clock = emulated_world(world, members)
        rows = emulated.symmetric(1000).view(100, 10)
        start = clock.time
        work(emulated, rows)
        return round(clock.time - start, 9)

    return simulated.run(pes, program)


def test_put_arrives_before_its_signal():
    """Two messages of 400 bytes to another workgroup are sent in sequence; one within the workgroup takes no time."""
    values = np.ones((10, 10), np.float32)

    def work(world, rows):
        if world.rank == 0:
            world.put_rows(rows, 1, 0, values)
            world.signal(1)
            assert world._clock.time == 100.0
            for pe in (2, 3):
                world.put_rows(rows, pe, 0, values)
            assert world._clock.time == 100.0
            world.signal(2)
            world.signal(3)
        elif world.rank:
            world.wait_signal(0)
            assert (rows.local[:10] == 1).all()

    # The second signal is sent after the first has arrived.
    assert seconds_of(4, work) == [0.4 + 0.4 + 0.5 + 0.5, 0, 0, 0]


def test_get_blocks_except_on_the_side_stream():
    wanted = np.arange(10)

    def fetch(world, rows):
        out = np.empty((10, 10), np.float32)
        for pe in range(world.size):
            world.get_rows(rows, pe, wanted, out)

    def aside(world, rows):
        with world.side_stream() as work:
            fetch(world, rows)
        assert world._clock.time == 100.0
        world._clock.time += 0.75  # other work, which hides as much of the transfer
        work.wait()

    assert seconds_of(4, fetch) == [2 * (0.4 + 0.5)] * 4
    assert seconds_of(3, fetch) == [0.9, 0.9, 2 * 0.9]
    assert seconds_of(4, aside) == [max(2 * 0.4 + 0.5, 0.75)] * 4


@pytest.mark.parametrize(("pes", "members", "rounds"), [(4, 2, 1), (4, 1, 2), (5, 1, 3), (6, 2, 2)])
def test_barrier_takes_one_latency_per_round(pes, members, rounds):
    assert seconds_of(pes, lambda world, _: world.barrier(), members) == [0.5 * rounds] * pes


def test_collectives_delay_data_from_other_workgroups():
    values = np.ones(25, np.float32)

    def shift(world, _):
        world.shift(values, np.empty_like(values), 1)

    def broadcast(world, _):
        world.broadcast(values.copy(), 1)

    def team(world, _):
        before = dict(world.counters.bytes)
        pair = world.team([pe for pe in range(4) if pe % 2 == world.rank % 2])  # one of each workgroup
        pair.broadcast(values.copy(), world.rank % 2)
        pair.shift(values, np.empty_like(values), 1)
        pair.all_gather(values, np.empty((2, 25), np.float32))
        pair.reduce_scatter(np.stack([values, values]), np.empty_like(values))
        found = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
        wanted = {"broadcast": 100 * (world.rank >= 2), "shift": 100, "all_gather": 100, "reduce_scatter": 100}
        assert {name: found[name] for name in found if found[name]} == {k: v for k, v in wanted.items() if v}

    # PE 0 receives from 3, 2 from 1.
    assert seconds_of(4, shift) == [0.6, 0, 0.6, 0]
    assert seconds_of(4, broadcast) == [0, 0, 0.6, 0.6]
    assert seconds_of(4, team) == [pytest.approx(seconds) for seconds in (1.8, 1.8, 2.4, 2.4)]
    # 200 of the 3 x 100 received bytes come from the other workgroup.
    assert seconds_of(4, lambda world, _: world.all_reduce(values)) == [0.7] * 4
    assert seconds_of(4, lambda world, _: (world.gather(1), world.exchange([1] * 4))) == [0] * 4


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("split", ["rows", "cover"])
def test_halo_time_follows_bytes_between_workgroups(tmp_path, split, members):
    """halo has three barriers (before, until messages have arrived, after), and sends a message to each PE that needs
    rows. Workgroups that add up partial sums have one more barrier.
    """
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)

    def program(world):
        emulated, clock = emulated_world(world, members)
        options = {"workgroup": members, "split": split}
        plan = prepare("halo", emulated, layout.load(folder, world.rank), "forward", 8, options)
        plan.input(8)[:] = 1
        start, before = clock.time, world.counters.intergroup_bytes()
        plan(8)
        return clock.time - start, world.counters.intergroup_bytes() - before

    found = simulated.run(4, program)
    assert sum(moved for _, moved in found) > 0
    for seconds, moved in found:
        barriers = (3 + (split == "cover" and members > 1)) * SLOW.latency * math.log2(4 // members)
        assert seconds == pytest.approx(barriers + (moved / SLOW.bandwidth + SLOW.latency if moved else 0))


def test_dgcl_stages_take_their_messages_in_sequence(tmp_path):
    """A PE forwards rows only after they have arrived, so each stage waits for the messages of the one before."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)

    def program(world):
        emulated, clock = emulated_world(world, 2)
        options = {"workgroup": 2, "batch": 1}
        plan = prepare("dgcl", emulated, layout.load(folder, world.rank), "forward", 8, options)
        plan.input(8)[:] = 1
        start, before = clock.time, world.counters.intergroup_bytes()
        plan(8)
        sends = sum(transfer.outbox is not None for transfer in plan._transfers)
        return clock.time - start, world.counters.intergroup_bytes() - before, sends, sum(plan._met)

    found = simulated.run(4, program)
    assert sum(moved for _, moved, _, _ in found) > 0 and found[0][3] > 1
    for seconds, moved, sends, meetings in found:
        assert seconds == pytest.approx((2 + meetings + sends) * SLOW.latency + moved / SLOW.bandwidth)


def test_stale_rows_are_transferred_during_the_epoch(tmp_path):
    """After the first pass products wait only at their barriers; after long other work nothing is in flight."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 2)

    def program(world):
        emulated, clock = emulated_world(world, 1)
        plan = prepare("halo", emulated, layout.load(folder, world.rank), "forward", 8, {"workgroup": 1, "stale": 1})
        plan.input(8)[:] = 1
        times, before = [], world.counters.intergroup_bytes()
        for work in (0.0, 0.5, 100.0):
            plan.stale.begin(training=True)
            start = clock.time
            plan(8)
            times.append(clock.time - start)
            clock.time += work
        start = clock.time
        plan.stale.begin(training=True)
        times.append(clock.time - start)
        moved = (world.counters.intergroup_bytes() - before) // 3
        plan.close()
        return times, moved / SLOW.bandwidth + SLOW.latency

    for (first, second, third, after), message in simulated.run(2, program):
        barrier = SLOW.latency
        assert message > 2 * barrier  # otherwise nothing would be hidden
        assert first == pytest.approx(message + 4 * barrier)
        assert second == third == pytest.approx(3 * barrier)
        assert after == pytest.approx(barrier)


def test_emulation_changes_no_product_and_no_byte_count(tmp_path):
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    labels = ["broadcast", "broadcast:grid", "broadcast:2", "broadcast_pipelined", "cola:2", "cola:fetched", "direct"]
    labels += ["features", "halo:1", "halo:2", "halo:2-bf16", "halo:2-cover", "mgg", "mgg_uvm", "ring", "zero_copy"]

    def program(world):
        moved = {}
        return products(world, folder, [3, 16], only=labels, moved=moved), moved

    plain, emulated = simulated.run(4, program), simulated.run(4, lambda world: program(emulated_world(world)[0]))
    for (expected, moved), (found, counted) in zip(plain, emulated, strict=True):
        assert moved == counted and expected.keys() == found.keys() and len(found) == 4 * len(labels)
        assert all(np.allclose(expected[key], found[key], rtol=1e-6, atol=1e-6) for key in expected)


def test_world_methods_do_as_documented():
    assert simulated.run(3, lambda world: check_world(emulated_world(world)[0])) == ["ok"] * 3


def test_workgroups_stand_for_hosts():
    network = Network(1e15, 0.0)

    def program(world):
        emulated = emulating(world, network, 2)
        array = emulated.symmetric(8)
        return sorted(array.peers), joined_here(emulated)[0], emulating(world, None, 1) is world

    assert simulated.run(4, program) == [([0, 1], 2, True)] * 2 + [([2, 3], 2, True)] * 2
    for members in (4, 8):
        with pytest.raises(InputError, match=r"--emulate-network: the 4 PEs .* are one workgroup") as refused:
            simulated.run(4, lambda world, members=members: emulating(world, network, members))
        assert refused.value.everywhere
    with pytest.raises(InputError, match=r"--emulate-network: this layout has 1 PE, so that nothing crosses"):
        simulated.run(1, lambda world: emulating(world, network, 1))


GPU_PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from mgg.backend import nvshmem
from mgg.backend.emulated import emulating
from mgg.errors import InputError
from mgg.network import Network
from support.programs.spmm_program import products

def program(world):
    emulated = emulating(world, Network(1e9, 1e-6), 2)
    labels = ["halo:2", "halo:2-cover", "cola:2", "ring", "features"]
    found, moved = [], []
    for each in (world, emulated):
        moved.append({})
        found.append(products(each, Path(sys.argv[-1]), [3, 12], only=labels, moved=moved[-1]))
    assert found[0].keys() == found[1].keys() and len(found[1]) == 20 and moved[0] == moved[1]
    assert all(np.allclose(found[0][key], found[1][key], rtol=1e-6, atol=1e-6) for key in found[0])
    try:
        products(emulated, Path(sys.argv[-1]), [3], only=["mgg"])
    except InputError as error:
        print("refused", "on another host" in str(error), flush=True)

nvshmem.run(lambda: 4, program)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_emulated_network_on_fake_gpus(tmp_path):
    """GPUs address only their workgroup, and their streams wait by the kernels of port.cu."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    done = mpiexec(4, [FAKE, "-c", GPU_PROGRAM, str(folder)], under=ready())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused True") == 4, done.stdout


def test_host_time_waits_until_the_given_time():
    """It sleeps in short naps, so that the watchdog does not take the wait for a stall."""
    clock = HostTime()
    end = clock.now() + 0.01
    clock.wait_until(end)
    assert clock.now() >= end
