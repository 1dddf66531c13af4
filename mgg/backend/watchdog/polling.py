"""Polling waits with a time limit, which leave the core to other PEs, so that PEs may outnumber cores.

A short wait yields the core, a longer one sleeps. Where some processes of a session call ``sched_yield`` without end
and others wake every 100 microseconds, Linux 6.18 starves processes of other sessions for minutes: so no wait yields
without end, and waits of over 0.2 s wake less often.

Limits count only the time in which this process is awake. A job that is paused and resumed (Ctrl-Z, scontrol suspend, a
frozen cgroup) therefore loses no time, and no PE is blamed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

#: Seconds in which a wait yields the core between checks; after that it sleeps.
PATIENCE = 2e-3
#: Seconds of sleep between checks: this share of the time waited so far, within limits.
NAP_SHARE, SHORTEST_NAP, LONGEST_NAP = 1e-4, 20e-6, 1e-3
#: Maximum seconds that count between two readings of ``awake``; a waiting process reads it more often unless stopped.
LONGEST_LOOK = 0.5


class Awake:
    """A clock in seconds that pauses while this process is stopped; all waiting threads share it.

    The difference of two readings is valid if some thread has read the clock every LONGEST_LOOK seconds in between.

    Args:
        clock: returns seconds, including the time in which the process is stopped.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seconds, self._looked = 0.0, clock()

    def __call__(self) -> float:
        """Return the seconds awake so far."""
        with self._lock:
            now = self._clock()
            self._seconds += min(now - self._looked, LONGEST_LOOK)
            self._looked = now
            return self._seconds


#: This process's clock.
awake = Awake()


def poll(done: Callable[[], bool], look: Callable[[float], None]) -> None:
    """Wait until ``done()`` is true.

    Args:
        done: returns whether the wait is over.
        look: called before every sleep with the awake seconds waited so far; may raise to end the wait.
    """
    start = awake()
    while not done():
        waited = awake() - start
        if waited < PATIENCE:
            os.sched_yield()
        else:
            look(waited)
            time.sleep(min(max(NAP_SHARE * waited, SHORTEST_NAP), LONGEST_NAP))
