"""Status of a host's ranks in shared memory: rendezvous, epoch, phase, heartbeat, processor time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mgg.backend.api import PHASES, place_of

if TYPE_CHECKING:
    from mgg.backend.mpi import MpiWorld

_COUNTS = 2**24  # whole numbers that a float32 holds exactly
_LOOK = 0.3  # seconds within which a waiting PE beats again
_NAPS = 30  # sleeps that make up these seconds: if the whole job is paused meanwhile, the others still get time to beat


class Arrivals:
    """Rendezvous counts and places of a host's PEs, in memory that its ranks share.

    The constructor is collective. A PE writes five numbers: its count of rendezvous, epoch, phase + 1, a heartbeat
    while it waits (-1: it has given up), and, while it is watched, the processor time it has used. A PE whose numbers
    do not change is stopped, or works without a watch.
    """

    def __init__(self, world: MpiWorld):
        self.count = 0
        self._world = world
        self._board = world.symmetric(5)

    def come(self) -> int:
        """Count one more rendezvous of this PE and return its number."""
        self.count += 1
        self._board.local[0] = self.count % _COUNTS
        return self.count

    def away(self, number: int) -> list[int]:
        """Return the PEs of this host that have not reached rendezvous ``number``."""
        self._world.sync()
        missing = {pe: (number - int(copy[0])) % _COUNTS for pe, copy in self._board.peers.items()}
        return [pe for pe, count in missing.items() if 0 < count < _COUNTS // 2]

    def at(self, epoch: int, phase: str) -> None:
        """Write this PE's place."""
        self._board.local[1:3] = epoch % _COUNTS, PHASES.index(phase) + 1

    def beat(self) -> None:
        """Write a heartbeat: this PE is alive and waits."""
        self._board.local[3] = (self._board.local[3] + 1) % _COUNTS

    def work(self, ticks: int) -> None:
        """Write the processor time that this PE has used; 0: it is not watched, and others must ignore the number."""
        self._board.local[4] = ticks % _COUNTS

    def give_up(self) -> None:
        """Write that this PE no longer waits, so that no other PE suspects it."""
        self._board.local[3] = -1

    def places(self) -> dict[int, str]:
        """Return the places of this host's PEs that have written one."""
        self._world.sync()
        seen = {pe: (int(copy[1]), int(copy[2])) for pe, copy in self._board.peers.items()}
        return {pe: place_of(epoch, PHASES[phase - 1]) for pe, (epoch, phase) in seen.items() if phase}

    def suspects(self) -> list[int]:
        """Return the PEs of this host that neither work nor wait."""
        before = self._seen()
        for _ in range(_NAPS):
            self.beat()
            time.sleep(_LOOK / _NAPS)
        after = self._seen()
        return [pe for pe, seen in after.items() if seen == before[pe] and seen[3] >= 0 and pe != self._world.rank]

    def signs(self) -> dict[int, tuple[float, ...]]:
        """Return the numbers of this host's PEs without ordering loads and stores, so they may be stale."""
        return {pe: tuple(copy.tolist()) for pe, copy in self._board.peers.items()}

    def _seen(self) -> dict[int, tuple[float, ...]]:
        self._world.sync()
        return self.signs()
