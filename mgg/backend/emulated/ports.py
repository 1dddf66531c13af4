"""The port of a PE in an emulated network, which tells when messages arrive."""

from __future__ import annotations

import time
from typing import Protocol

#: Seconds of one sleep, and the last seconds of a wait, for which a sleep is too inexact.
_NAP, _SHORT = 1e-3, 1e-4


class Port(Protocol):
    """The queue of a PE's messages in one direction, in the order of its work."""

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """Send a message: it occupies the port for ``seconds`` after earlier messages, and arrives ``latency`` later.

        ``aside``: it is submitted aside.
        """

    def settle(self, aside: bool = False) -> None:
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

    def settle(self, aside: bool = False) -> None:
        """Wait for the last message."""
        self._clock.wait_until(self._due[aside])
