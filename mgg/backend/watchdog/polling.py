"""Waits that poll: more PEs than cores do not spin each other out, and a limit ends them.

Limits count the time in which this process is awake: a job that is paused and goes on (Ctrl-Z, scontrol suspend, a
frozen cgroup) has missed none of it, and no PE is to blame.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

#: Seconds that a wait yields the core between looks; after that it sleeps.
PATIENCE = 2e-3
#: Seconds of sleep between looks.
NAP = 20e-6
#: Seconds that count at most between two looks at ``awake``: whoever waits looks much more often, unless it is stopped.
LONGEST_LOOK = 0.5


class Awake:
    """A clock, in seconds, that stands still while this process is stopped, for all threads that wait.

    Two readings may be taken from each other if somebody has looked every LONGEST_LOOK seconds in between.

    Args:
        clock: seconds, also of the time in which the process is stopped.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seconds, self._looked = 0.0, clock()

    def __call__(self) -> float:
        """Look at it."""
        with self._lock:
            now = self._clock()
            self._seconds += min(now - self._looked, LONGEST_LOOK)
            self._looked = now
            return self._seconds


#: That of this process.
awake = Awake()


def poll(done: Callable[[], bool], look: Callable[[float], None]) -> None:
    """Return once ``done()``.

    Args:
        done: whether what is awaited is there.
        look: called before every sleep with the seconds waited so far, this process awake; raises to end the wait.
    """
    start = awake()
    while not done():
        waited = awake() - start
        if waited < PATIENCE:
            os.sched_yield()
        else:
            look(waited)
            time.sleep(NAP)
