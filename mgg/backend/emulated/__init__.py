"""A World whose transfers between workgroups take as long as in a slower network: what helps there can be measured.

The workgroups stand for hosts. What is put, fetched, shifted, broadcast or summed across them has the port of a PE for
bytes / bandwidth, one message after another, and arrives ``latency`` later; a barrier takes log2 W latencies. Nothing
is faster than it is without. Control data (``gather``, ``exchange``) is not held up.

GPUs address the memory of their workgroup alone, as between hosts. The stream waits there, by the GPU's timer, in
the place where it waits for the transfer itself; of CPU PEs it is the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from mgg.backend.api import Array, Emulated, SymmetricArray, Team, Work, World, together
from mgg.backend.emulated.ports import HostPort, HostTime, Port
from mgg.errors import InputError
from mgg.network import Network


def emulating(world: World, network: Network | None, members: int) -> World:
    """``world``, held to ``network`` between workgroups of ``members`` PEs; as it is without one (collective).

    Raises:
        InputError: all PEs are one workgroup.
        MachineError: GPUs, and the kernels cannot be compiled.
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
    """``world`` as it is, held to nothing."""
    found: World = getattr(world, "bare", world)
    return found


class EmulatedWorld:
    """One PE's view of the job; see ``World`` for the methods, and for those that are not here, which are as they were.

    Args:
        world: the PEs.
        emulated: what they are held to.
        clock: what CPU PEs go by.

    Attributes:
        bare: ``world``.
    """

    def __init__(self, world: World, emulated: Emulated, clock: HostTime | None = None) -> None:
        self.bare, self.emulated = world, emulated
        self._on_gpu = bool(world.gpu)
        self._clock = clock or HostTime()
        self._sends, self._fetches, self._meets = together(world, lambda: [self._port() for _ in range(3)])
        self._aside = False  # what is submitted goes beside other work

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
        """On GPUs those of the workgroup; on CPUs all, which fetch over the network, too."""
        return [pe for pe in self.bare.addressable if pe in self._mates] if self._on_gpu else self.bare.addressable

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective); beyond the workgroup nothing is addressed."""
        near = [pe for pe in self._mates if reach is None or pe in reach]
        return self.bare.symmetric(elements, near)

    def managed(self, elements: int) -> SymmetricArray:
        """Of CPU PEs ``symmetric``; techniques of GPUs that need it address all PEs, and are refused."""
        return self.bare.managed(elements) if self._on_gpu else self.symmetric(elements)

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """As ``managed``."""
        return self.bare.host_symmetric(elements) if self._on_gpu else self.symmetric(elements)

    def get_rows(self, source: SymmetricArray, pe: int, rows: Array, out: Array, operation: str = "get") -> None:
        """Fetch rows of PE ``pe``."""
        if pe not in self._mates:
            self._take(self._fetches, out.nbytes)
        self.bare.get_rows(source, pe, rows, out, operation)
        if pe not in self._mates:
            self._settle(self._fetches)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool = False) -> None:
        """Write rows of PE ``pe``: they have arrived where this PE signals or meets others; of those that go aside
        where it waits for the work.
        """
        if pe not in self._mates:
            self._take(self._sends, values.nbytes)
        self.bare.put_rows(target, pe, first, values, alone)

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``."""
        if pe not in self._mates:
            self._sends.take(0.0, self.emulated.network.latency, self._aside)
            self._sends.settle(self._aside)
        self.bare.signal(pe)

    @contextmanager
    def aside(self) -> Iterator[Work]:
        """On CPUs the host goes on, and waits for what is on its way together with the work."""
        with self.bare.aside() as work:
            self._aside, arriving = True, _Arriving(self._clock)
            try:
                yield work if self._on_gpu else arriving
                if self._on_gpu:
                    self._sends.settle(aside=True)
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
        """A team (collective)."""
        return _EmulatedTeam(self, self.bare.team(pes), self._mates)

    def barrier(self) -> None:
        """Wait until every PE is here, and what it has put has arrived, but for what goes aside."""
        self._sends.settle()
        self.bare.barrier()
        rounds = math.ceil(math.log2(-(-self.bare.size // self.emulated.members)))
        self._meets.take(0.0, rounds * self.emulated.network.latency)
        self._meets.settle()

    def all_reduce(self, values: Array) -> Array:
        """Sum in rank order (collective): of the bytes that arrive those of other workgroups are held up."""
        before = self.bare.counters.bytes.get("all_reduce", 0)
        total = self.bare.all_reduce(values)
        moved = self.bare.counters.bytes.get("all_reduce", 0) - before
        self.across(lambda: None, values, moved * (self.bare.size - len(self._mates)) // (self.bare.size - 1))
        return total

    def _meet(self) -> None:
        """Have CPU PEs come together before a collective: its messages leave when all are there.

        GPUs do so inside, which takes the time of the real transfer besides: two barriers of NVSHMEM must not be on
        their way at once, and collectives go on both streams.
        """
        if not self._on_gpu:
            self.bare.barrier()

    def across(self, move: Callable[[], None], values: Array, size: int) -> None:
        """Submit ``move``, which brings ``size`` bytes of other workgroups; ``values``: what it moves, or like it."""
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
            port.settle(self._aside)

    def come_together(self, team: Team) -> None:
        """``_meet`` of a team (collective over it); it counts no bytes."""
        if not self._on_gpu:
            counters = self.bare.counters
            before = dict(counters.bytes)
            team.all_gather(np.zeros(1, np.float32), np.empty((len(team.pes), 1), np.float32))
            counters.bytes = before


class _Arriving:
    """Transfers of a CPU PE that the host has gone on from.

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
        """Send to the PE ``step`` places on, receive from the one ``step`` places before (collective)."""
        source = self.pes[(self._place - step) % len(self.pes)]
        self._do(lambda: self._team.shift(send, receive, step), receive, receive.nbytes * (source not in self._mates))

    def all_gather(self, values: Array, out: Array) -> None:
        """Collect the values of all (collective)."""
        self._do(lambda: self._team.all_gather(values, out), values, values.nbytes * self._outside)

    def reduce_scatter(self, values: Array, out: Array) -> None:
        """Sum (collective)."""
        self._do(lambda: self._team.reduce_scatter(values, out), out, out.nbytes * self._outside)

    def _do(self, move: Callable[[], None], values: Array, size: int) -> None:
        if self._outside:
            self._world.come_together(self._team)
        self._world.across(move, values, size)
