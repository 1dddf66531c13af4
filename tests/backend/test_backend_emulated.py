"""Networks that are emulated: what is held up for how long, by clocks that the tests set; results stay the same."""

import math

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.programs.spmm_program import products
from support.programs.world_program import program as promises
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

#: 1,000 bytes a second, half a second on the way.
SLOW = Network(1e3, 0.5)


class SetTime(HostTime):
    """Time that goes on where somebody waits alone."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def wait_until(self, when):
        self.time = max(self.time, when)


@pytest.mark.parametrize(
    ("text", "bandwidth", "latency", "written"),
    [
        ("20GB/s,5us", 20e9, 5e-6, "emulated 20 GB/s, 5 us"),
        (" 1.5 GB/s , 1ms ", 1.5e9, 1e-3, "emulated 1.5 GB/s, 1000 us"),
        ("200Gbit/s,700ns", 25e9, 7e-7, "emulated 25 GB/s, 0.7 us"),
        ("1GiB/s,0s", 2**30, 0.0, "emulated 1.07374 GB/s, 0 us"),
    ],
)
def test_network_is_parsed_and_printed(text, bandwidth, latency, written):
    found = Network.parse(text)
    assert (found.bandwidth, found.latency) == (bandwidth, pytest.approx(latency)) and str(found) == written


@pytest.mark.parametrize(
    "text",
    ["", "20GB/s", "20GB,5us", "5us,20GB/s", "0GB/s,5us", "-1GB/s,5us", "20GB/s,5", "20GB/s,2s", "20GB/s,-5us",
     "20GB/s,5us,1", "nanGB/s,5us", "2e9PB/s,5us", "9999PB/s,1us", "x" * 500],
)  # fmt: skip
def test_invalid_network_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^'[^\n]*write for example 20GB/s,5us$"):
        Network.parse(text)


def test_messages_queue_at_a_shared_port():
    clock = SetTime()
    port = HostPort(clock)
    port.take(2.0, 0.5)
    clock.time += 1
    port.take(1.0, 0.5)  # behind the first one, until 103
    assert port.due() == 103.5
    clock.time = 110.0
    port.take(0.25, 0.0)
    port.take(1.0, 0.5, aside=True)
    port.wait_for_arrivals()  # not for what goes aside
    assert clock.time == 110.25
    port.wait_for_arrivals(aside=True)
    assert clock.time == 111.75


def slowed(world, members=2):
    clock = SetTime()
    return EmulatedWorld(world, Emulated(SLOW, members), clock), clock


def seconds_of(pes, work, members=2):
    """What each PE's clock says ``work(world, rows, clock)`` has taken."""

    def program(world):
        held, clock = slowed(world, members)
        rows = held.symmetric(1000).view(100, 10)
        begun = clock.time
        work(held, rows)
        return round(clock.time - begun, 9)

    return simulated.run(pes, program)


def test_put_arrives_before_its_signal():
    """Two messages of 400 bytes to other workgroups follow one another; one to a mate takes no time."""
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

    # The second signal leaves when the first has arrived.
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
        world._clock.time += 0.75  # of other work, which hides as much
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
        mine = world.team([pe for pe in range(4) if pe % 2 == world.rank % 2])  # one of each workgroup
        mine.broadcast(values.copy(), world.rank % 2)
        mine.shift(values, np.empty_like(values), 1)
        mine.all_gather(values, np.empty((2, 25), np.float32))
        mine.reduce_scatter(np.stack([values, values]), np.empty_like(values))
        found = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
        wanted = {"broadcast": 100 * (world.rank >= 2), "shift": 100, "all_gather": 100, "reduce_scatter": 100}
        assert {name: found[name] for name in found if found[name]} == {k: v for k, v in wanted.items() if v}

    # PE 0 receives from 3, 2 from 1.
    assert seconds_of(4, shift) == [0.6, 0, 0.6, 0]
    assert seconds_of(4, broadcast) == [0, 0, 0.6, 0.6]
    assert seconds_of(4, team) == [pytest.approx(each) for each in (1.8, 1.8, 2.4, 2.4)]
    # Of 3 x 100 bytes that come, 200 are of the other workgroup.
    assert seconds_of(4, lambda world, _: world.all_reduce(values)) == [0.7] * 4
    assert seconds_of(4, lambda world, _: (world.gather(1), world.exchange([1] * 4))) == [0] * 4


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("split", ["rows", "cover"])
def test_halo_time_follows_bytes_between_workgroups(tmp_path, split, members):
    """halo: three barriers (before, until messages are there, after), and a message to each PE that needs rows; one
    more barrier where a workgroup adds its sums up.
    """
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)

    def program(world):
        held, clock = slowed(world, members)
        options = {"workgroup": members, "split": split}
        plan = prepare("halo", held, layout.load(folder, world.rank), "forward", 8, options)
        plan.input(8)[:] = 1
        begun, before = clock.time, world.counters.intergroup_bytes()
        plan(8)
        return clock.time - begun, world.counters.intergroup_bytes() - before

    found = simulated.run(4, program)
    assert sum(moved for _, moved in found) > 0
    for seconds, moved in found:
        barriers = (3 + (split == "cover" and members > 1)) * SLOW.latency * math.log2(4 // members)
        assert seconds == pytest.approx(barriers + (moved / SLOW.bandwidth + SLOW.latency if moved else 0))


def test_dgcl_stages_take_their_messages_in_sequence(tmp_path):
    """dgcl: rows that a PE passes on have arrived there first, so that stages take their messages one after another."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)

    def program(world):
        held, clock = slowed(world, 2)
        options = {"workgroup": 2, "batch": 1}
        plan = prepare("dgcl", held, layout.load(folder, world.rank), "forward", 8, options)
        plan.input(8)[:] = 1
        begun, before = clock.time, world.counters.intergroup_bytes()
        plan(8)
        sends = sum(each.outbox is not None for each in plan._transfers)
        return clock.time - begun, world.counters.intergroup_bytes() - before, sends, sum(plan._met)

    found = simulated.run(4, program)
    assert sum(moved for _, moved, _, _ in found) > 0 and found[0][3] > 1
    for seconds, moved, sends, meetings in found:
        assert seconds == pytest.approx((2 + meetings + sends) * SLOW.latency + moved / SLOW.bandwidth)


def test_stale_rows_are_transferred_during_the_epoch(tmp_path):
    """After the first pass products wait at their barriers alone; by the end of long work nothing is on its way."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 2)

    def program(world):
        held, clock = slowed(world, 1)
        plan = prepare("halo", held, layout.load(folder, world.rank), "forward", 8, {"workgroup": 1, "stale": 1})
        plan.input(8)[:] = 1
        times, before = [], world.counters.intergroup_bytes()
        for work in (0.0, 0.5, 100.0):
            plan.stale.begin(training=True)
            begun = clock.time
            plan(8)
            times.append(clock.time - begun)
            clock.time += work
        begun = clock.time
        plan.stale.begin(training=True)
        times.append(clock.time - begun)
        moved = (world.counters.intergroup_bytes() - before) // 3
        plan.close()
        return times, moved / SLOW.bandwidth + SLOW.latency

    for (first, second, third, after), message in simulated.run(2, program):
        barrier = SLOW.latency
        assert message > 2 * barrier  # or nothing would be hidden
        assert first == pytest.approx(message + 4 * barrier)
        assert second == third == pytest.approx(3 * barrier)
        assert after == pytest.approx(barrier)


def test_emulation_changes_no_product_and_no_byte_count(tmp_path):
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    labels = ["broadcast", "broadcast:grid", "broadcast:2", "broadcast_pipelined", "cola:2", "cola:fetched", "direct"]
    labels += ["features", "halo:1", "halo:2", "halo:2-bf16", "halo:2-cover", "mgg", "mgg_uvm", "ring", "zero_copy"]

    def program(world, held=False):
        moved = {}
        here = slowed(world)[0] if held else world
        return products(here, folder, [3, 16], only=labels, moved=moved), moved

    plain, emulated = simulated.run(4, program), simulated.run(4, lambda world: program(world, held=True))
    for (mine, moved), (found, counted) in zip(plain, emulated, strict=True):
        assert moved == counted and mine.keys() == found.keys() and len(found) == 4 * len(labels)
        assert all(np.allclose(mine[key], found[key], rtol=1e-6, atol=1e-6) for key in mine)


def test_world_methods_do_as_documented():
    assert simulated.run(3, lambda world: promises(slowed(world)[0])) == ["ok"] * 3


def test_workgroups_stand_for_hosts():
    network = Network(1e15, 0.0)

    def program(world):
        held = emulating(world, network, 2)
        array = held.symmetric(8)
        return sorted(array.peers), joined_here(held)[0], emulating(world, None, 1) is world

    assert simulated.run(4, program) == [([0, 1], 2, True)] * 2 + [([2, 3], 2, True)] * 2
    for members in (4, 8):
        with pytest.raises(InputError, match=r"--emulate-network: the 4 PEs .* are one workgroup") as refused:
            simulated.run(4, lambda world, members=members: emulating(world, network, members))
        assert refused.value.everywhere
    with pytest.raises(InputError, match=r"--emulate-network: this layout has 1 PE, so that nothing crosses"):
        simulated.run(1, lambda world: emulating(world, network, 1))


ON_GPUS = """
import sys
from pathlib import Path
import numpy as np
from mgg.backend import nvshmem
from mgg.backend.emulated import emulating
from mgg.errors import InputError
from mgg.network import Network
from support.programs.spmm_program import products

def program(world):
    held = emulating(world, Network(1e9, 1e-6), 2)
    labels = ["halo:2", "halo:2-cover", "cola:2", "ring", "features"]
    found, moved = [], []
    for here in (world, held):
        moved.append({})
        found.append(products(here, Path(sys.argv[-1]), [3, 12], only=labels, moved=moved[-1]))
    assert found[0].keys() == found[1].keys() and len(found[1]) == 20 and moved[0] == moved[1]
    assert all(np.allclose(found[0][key], found[1][key], rtol=1e-6, atol=1e-6) for key in found[0])
    try:
        products(held, Path(sys.argv[-1]), [3], only=["mgg"])
    except InputError as error:
        print("refused", "on another host" in str(error), flush=True)

nvshmem.run(lambda: 4, program)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_emulated_network_on_fake_gpus(tmp_path):
    """They address their workgroup alone, and their streams wait by the kernels of port.cu."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    done = mpiexec(4, [FAKE, "-c", ON_GPUS, str(folder)], under=ready())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused True") == 4, done.stdout


def test_host_time_waits_until_the_given_time():
    """Whoever waits is not taken for one that stands still, and comes back in time."""
    clock = HostTime()
    until = clock.now() + 0.01
    clock.wait_until(until)
    assert clock.now() >= until
