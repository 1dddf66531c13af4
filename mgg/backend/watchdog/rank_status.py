"""Where the ranks of a host are, in memory that they share: rendezvous, epoch, phase, looks, processor time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mgg.backend.api import PHASES, place_of

if TYPE_CHECKING:
    from mgg.backend.mpi import MpiWorld

_COUNTS = 2**24  # whole numbers that a float32 tells apart
_LOOK = 0.3  # seconds in which whoever waits has looked again
_NAPS = 30  # of which those seconds are made: whoever is stopped meanwhile, with all others, still gives them time


class Arrivals:
    """Who has come to a rendezvous, and where each PE is, in memory that the ranks of a host share.

    Making one is collective. A PE writes five numbers: rendezvous it has come to, epoch, phase + 1, a count of its
    looks at what it waits for (-1: it has given up), and while it is watched the processor time that it has used. What
    of a PE moves none of them is stopped, or works on its own unwatched.
    """

    def __init__(self, world: MpiWorld):
        self.count = 0
        self._world = world
        self._board = world.symmetric(5)

    def come(self) -> int:
        """Say that this PE has come to one more; returns its number."""
        self.count += 1
        self._board.local[0] = self.count % _COUNTS
        return self.count

    def away(self, number: int) -> list[int]:
        """The PEs of this host that have not come to rendezvous ``number``."""
        self._world.sync()
        missing = {pe: (number - int(copy[0])) % _COUNTS for pe, copy in self._board.peers.items()}
        return [pe for pe, count in missing.items() if 0 < count < _COUNTS // 2]

    def at(self, epoch: int, phase: str) -> None:
        """Say where this PE is."""
        self._board.local[1:3] = epoch % _COUNTS, PHASES.index(phase) + 1

    def beat(self) -> None:
        """Say that this PE lives and waits."""
        self._board.local[3] = (self._board.local[3] + 1) % _COUNTS

    def work(self, ticks: int) -> None:
        """Say how much processor time this PE has used; 0: it is not watched, so that nobody is to judge by that."""
        self._board.local[4] = ticks % _COUNTS

    def give_up(self) -> None:
        """Say that this PE waits no longer: nobody is to suspect it."""
        self._board.local[3] = -1

    def places(self) -> dict[int, str]:
        """Where the PEs of this host are, as far as they have said it."""
        self._world.sync()
        seen = {pe: (int(copy[1]), int(copy[2])) for pe, copy in self._board.peers.items()}
        return {pe: place_of(epoch, PHASES[phase - 1]) for pe, (epoch, phase) in seen.items() if phase}

    def suspects(self) -> list[int]:
        """The PEs of this host that come no further, neither in their work nor in a wait for others."""
        before = self._seen()
        for _ in range(_NAPS):
            self.beat()
            time.sleep(_LOOK / _NAPS)
        after = self._seen()
        return [pe for pe, seen in after.items() if seen == before[pe] and seen[3] >= 0 and pe != self._world.rank]

    def signs(self) -> dict[int, tuple[float, ...]]:
        """What the PEs of this host have written, as far as it can be seen without ordering loads and stores."""
        return {pe: tuple(copy.tolist()) for pe, copy in self._board.peers.items()}

    def _seen(self) -> dict[int, tuple[float, ...]]:
        self._world.sync()
        return self.signs()
