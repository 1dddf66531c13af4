"""The port of a PE in a network that is emulated: when what it moves has arrived."""

from __future__ import annotations

import time
from typing import Protocol

#: Seconds that the host sleeps at a time, and that it does not trust a sleep with.
_NAP, _SHORT = 1e-3, 1e-4


class Port(Protocol):
    """A queue: what a PE moves in one direction, one message after another, in the order of its work."""

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """A message leaves: it has the port for ``seconds``, as soon as those before it are through, and arrives
        ``latency`` seconds later; ``aside``: it goes beside other work.
        """

    def settle(self, aside: bool = False) -> None:
        """Wait until all messages so far have arrived, of those that go aside or of the others."""


class HostTime:
    """The time of this host, the same for all of its processes."""

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()

    def wait_until(self, when: float) -> None:
        """Come back when ``now`` has reached ``when``. Naps are short, so that a PE that waits is not taken for one
        that stands still.
        """
        while (left := when - self.now()) > 0:
            time.sleep(min(left - _SHORT, _NAP) if left > _SHORT else 0)


class HostPort:
    """The port of a CPU PE.

    Args:
        clock: what it goes by.
    """

    def __init__(self, clock: HostTime) -> None:
        self._clock = clock
        self._free, self._due = 0.0, [0.0, 0.0]

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """A message leaves."""
        self._free = max(self._clock.now(), self._free) + seconds
        self._due[aside] = max(self._due[aside], self._free + latency)

    def due(self, aside: bool = False) -> float:
        """When the last message arrives."""
        return self._due[aside]

    def settle(self, aside: bool = False) -> None:
        """Wait for the last message."""
        self._clock.wait_until(self._due[aside])
