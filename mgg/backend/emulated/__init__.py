"""A World that emulates a slower network between workgroups, to measure what helps in such networks.

The workgroups stand for hosts. A message between workgroups (put, get, shift, broadcast or sum) occupies a PE's port
for bytes / bandwidth, one message after another, and arrives ``latency`` later; a barrier takes log2 W latencies.
Nothing is faster than without emulation. Control data (``gather``, ``exchange``) is not delayed.

GPUs address only the memory of their workgroup, as between hosts. On GPUs the stream waits by the GPU's timer, at the
point where it waits for the transfer itself; on CPUs the host waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np

from mgg.backend.api import Array, Emulated, SideWork, SymmetricArray, Team, World, together
from mgg.errors import InputError
from mgg.network import Network

#: Seconds of one sleep, and the last seconds of a wait, for which a sleep is too inexact.
_NAP, _SHORT = 1e-3, 1e-4


class Port(Protocol):
    """The queue of a PE's messages in one direction, in the order of its work."""

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """Send a message: it occupies the port for ``seconds`` after earlier messages, and arrives ``latency`` later.

        ``aside``: it is submitted aside.
        """

    def wait_for_arrivals(self, aside: bool = False) -> None:
        """Wait until all messages so far have arrived: those submitted ``aside``, or the others."""


class HostTime:
    """The time of this host, the same for all of its processes."""

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def wait_until(self, when: float) -> None:
        """Return when ``now`` has reached ``when``; short sleeps keep the watchdog from seeing a stalled PE."""
        while (left := when - self.now()) > 0:
            time.sleep(min(left - _SHORT, _NAP) if left > _SHORT else 0)


class HostPort:
    """The port of a CPU PE.

    Args:
        clock: the host's clock.
    """

    def __init__(self, clock: HostTime) -> None:
        self._clock = clock
        self._free, self._due = 0.0, [0.0, 0.0]

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """Send a message."""
        self._free = max(self._clock.now(), self._free) + seconds
        self._due[aside] = max(self._due[aside], self._free + latency)

    def due(self, aside: bool = False) -> float:
        """Return when the last message arrives."""
        return self._due[aside]

    def wait_for_arrivals(self, aside: bool = False) -> None:
        """Wait for the last message."""
        self._clock.wait_until(self._due[aside])


def emulating(world: World, network: Network | None, members: int) -> World:
    """Return ``world`` with ``network`` emulated between workgroups of ``members`` PEs; None: ``world`` (collective).

    Raises:
        InputError: all PEs are one workgroup.
        MachineError: on GPUs, if the kernels cannot be compiled.
    """
    if network is None:
        return world
    if members >= world.size:
        if world.size == 1:
            raise InputError(
                "--emulate-network: this layout has 1 PE, so that nothing crosses the network: leave it out, or take a"
                " layout of several PEs"
            )
        raise InputError(
            f"--emulate-network: the {world.size} PEs of this layout are one workgroup, so that nothing crosses the"
            " network: partition with a smaller --workgroup (config: partition.workgroup)"
        ).on_every_pe()
    slowed: World = cast(Any, EmulatedWorld(world, Emulated(network, members)))
    return slowed


def bare(world: World) -> World:
    """Return the World without emulation."""
    found: World = getattr(world, "bare", world)
    return found


class EmulatedWorld:
    """One PE's view of the job; see ``World`` for the methods. Methods that are not here are the bare world's.

    Args:
        world: the World without emulation.
        emulated: the emulated network.
        clock: the clock of CPU PEs.

    Attributes:
        bare: ``world``.
    """

    def __init__(self, world: World, emulated: Emulated, clock: HostTime | None = None) -> None:
        self.bare, self.emulated = world, emulated
        self._on_gpu = bool(world.gpu)
        self._clock = clock or HostTime()
        self._sends, self._fetches, self._meets = together(world, lambda: [self._port() for _ in range(3)])
        self._aside = False  # whether submitted work goes to the side stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)

    def _port(self) -> Port:
        if not self._on_gpu:
            return HostPort(self._clock)
        from mgg.backend.emulated.device_port import DevicePort

        return DevicePort(self.bare.operators)

    @property
    def _mates(self) -> range:
        return self.emulated.mates(self.bare.rank, self.bare.size)

    @property
    def addressable(self) -> Sequence[int]:
        """Return the workgroup's PEs on GPUs; all PEs on CPUs, which can also fetch over the network."""
        return [pe for pe in self.bare.addressable if pe in self._mates] if self._on_gpu else self.bare.addressable

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective); no PE addresses memory outside its workgroup."""
        near = [pe for pe in self._mates if reach is None or pe in reach]
        return self.bare.symmetric(elements, near)

    def managed(self, elements: int) -> SymmetricArray:
        """Allocate ``symmetric`` on CPUs; GPU techniques that need unified memory address all PEs and are refused."""
        return self.bare.managed(elements) if self._on_gpu else self.symmetric(elements)

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """Allocate like ``managed``."""
        return self.bare.host_symmetric(elements) if self._on_gpu else self.symmetric(elements)

    def get_rows(
        self, source: SymmetricArray, pe: int, rows: Array | range, out: Array, operation: str = "get"
    ) -> None:
        """Fetch rows of PE ``pe``."""
        if pe not in self._mates:
            self._take(self._fetches, out.nbytes)
        self.bare.get_rows(source, pe, rows, out, operation)
        if pe not in self._mates:
            self._settle(self._fetches)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool = False) -> None:
        """Write rows of PE ``pe``; they have arrived at this PE's next signal or barrier, or, if submitted aside, once
        it has waited for that work.
        """
        if pe not in self._mates:
            self._take(self._sends, values.nbytes)
        self.bare.put_rows(target, pe, first, values, alone)

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``."""
        if pe not in self._mates:
            self._sends.take(0.0, self.emulated.network.latency, self._aside)
            self._sends.wait_for_arrivals(self._aside)
        self.bare.signal(pe)

    @contextmanager
    def side_stream(self) -> Iterator[SideWork]:
        """Submit work aside; on CPUs the host continues, and ``work.wait`` also waits for the emulated messages."""
        with self.bare.side_stream() as work:
            self._aside, arriving = True, _Arriving(self._clock)
            try:
                yield work if self._on_gpu else arriving
                if self._on_gpu:
                    self._sends.wait_for_arrivals(aside=True)
            finally:
                self._aside = False
            ports = (self._sends, self._fetches)
            arriving.due = max((port.due(aside=True) for port in ports if isinstance(port, HostPort)), default=0.0)

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values everywhere (collective)."""
        self._meet()
        self.across(lambda: self.bare.broadcast(values, root), values, values.nbytes * (root not in self._mates))

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send to PE ``rank + step``, receive from PE ``rank - step`` (collective)."""
        source = (self.bare.rank - step) % self.bare.size
        self._meet()
        self.across(lambda: self.bare.shift(send, receive, step), receive, receive.nbytes * (source not in self._mates))

    def team(self, pes: Sequence[int]) -> _EmulatedTeam:
        """Return a team (collective)."""
        return _EmulatedTeam(self, self.bare.team(pes), self._mates)

    def barrier(self) -> None:
        """Wait until every PE is here and its puts have arrived, except those submitted aside."""
        self._sends.wait_for_arrivals()
        self.bare.barrier()
        rounds = math.ceil(math.log2(-(-self.bare.size // self.emulated.members)))
        self._meets.take(0.0, rounds * self.emulated.network.latency)
        self._meets.wait_for_arrivals()

    def all_reduce(self, values: Array) -> Array:
        """Sum in rank order (collective); the bytes that arrive from other workgroups are delayed."""
        before = self.bare.counters.bytes.get("all_reduce", 0)
        total = self.bare.all_reduce(values)
        moved = self.bare.counters.bytes.get("all_reduce", 0) - before
        self.across(lambda: None, values, moved * (self.bare.size - len(self._mates)) // (self.bare.size - 1))
        return total

    def _meet(self) -> None:
        """Make CPU PEs meet before a collective, so that its messages leave once all PEs are there.

        GPUs meet inside the collective, which adds the time of the real transfer: two of NVSHMEM's barriers must not be
        pending at once, and collectives run on both streams.
        """
        if not self._on_gpu:
            self.bare.barrier()

    def across(self, move: Callable[[], None], values: Array, size: int) -> None:
        """Submit ``move``, which takes ``size`` bytes from other workgroups; ``values`` is like the moved array."""
        if not self._on_gpu:
            self._take(self._fetches, size)
            move()
        else:
            move()
            if isinstance(values, np.ndarray):  # control data, on the hosts
                return
            self._take(self._fetches, size)
        self._settle(self._fetches)

    def _take(self, port: Port, size: int) -> None:
        network = self.emulated.network
        if size:
            port.take(size / network.bandwidth, network.latency, self._aside)

    def _settle(self, port: Port) -> None:
        if self._on_gpu or not self._aside:
            port.wait_for_arrivals(self._aside)

    def come_together(self, team: Team) -> None:
        """Make a team's CPU PEs meet like ``_meet`` (collective over the team); counts no bytes."""
        if not self._on_gpu:
            counters = self.bare.counters
            before = dict(counters.bytes)
            team.all_gather(np.zeros(1, np.float32), np.empty((len(team.pes), 1), np.float32))
            counters.bytes = before


class _Arriving:
    """Transfers of a CPU PE that the host has submitted aside.

    Attributes:
        due: when the last of them arrives.
    """

    def __init__(self, clock: HostTime) -> None:
        self._clock, self.due = clock, 0.0

    def wait(self) -> None:
        """Wait until they have arrived."""
        self._clock.wait_until(self.due)


class _EmulatedTeam:
    """One PE's view of a team; see ``Team`` for the methods."""

    def __init__(self, world: EmulatedWorld, team: Team, mates: range) -> None:
        self.pes = team.pes
        self._world, self._team, self._mates = world, team, mates
        self._place = self.pes.index(world.bare.rank)
        self._outside = sum(pe not in mates for pe in self.pes)

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values (collective)."""
        self._do(lambda: self._team.broadcast(values, root), values, values.nbytes * (root not in self._mates))

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send to the PE ``step`` places later, receive from the PE ``step`` places earlier (collective)."""
        source = self.pes[(self._place - step) % len(self.pes)]
        self._do(lambda: self._team.shift(send, receive, step), receive, receive.nbytes * (source not in self._mates))

    def all_gather(self, values: Array, out: Array) -> None:
        """Collect the values of all PEs (collective)."""
        self._do(lambda: self._team.all_gather(values, out), values, values.nbytes * self._outside)

    def reduce_scatter(self, values: Array, out: Array) -> None:
        """Sum (collective)."""
        self._do(lambda: self._team.reduce_scatter(values, out), out, out.nbytes * self._outside)

    def _do(self, move: Callable[[], None], values: Array, size: int) -> None:
        if self._outside:
            self._world.come_together(self._team)
        self._world.across(move, values, size)
