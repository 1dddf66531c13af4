"""Finds PEs that neither work nor wait, by comparing their signs of life between checks.

A thread that computes or reads files uses processor time; a thread that waits for other PEs or for nvcc reports it. A
thread that is stopped or blocked for good does neither.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mgg.backend.api import name_pes
from mgg.kernel import compile as kernels

_PER_THREAD = 6  # CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED of linux/posix-timers.h
_TICK = 0.01  # seconds of processor time that count as work
#: Extra seconds after the limit before the native thread ends a process whose interpreter does not run.
LAST_WORD = 8.0


class Stalls:
    """Tracks how long the signs of PEs have not changed."""

    def __init__(self) -> None:
        self._signs: dict[int, Any] = {}
        self._still: dict[int, float] = {}
        self._looked = time.monotonic()

    def look(self, signs: Mapping[int, Any], period: float) -> None:
        """Record each PE's sign, which changes while the PE moves; the caller checks every ``period`` seconds.

        A late check counts as two periods at most: this process was stopped itself, or its machine slept.
        """
        now = time.monotonic()
        passed = min(now - self._looked, 2 * period)
        self._looked = now
        for pe, sign in signs.items():
            moved = pe not in self._signs or sign != self._signs[pe]
            self._still[pe] = 0.0 if moved else self._still[pe] + passed
        self._signs = dict(signs)

    def longer_than(self, seconds: float) -> list[int]:
        """Return the PEs that have not moved for more than ``seconds``."""
        return [pe for pe in self._signs if self._still[pe] > seconds]


def ticks_of(thread: int) -> int:
    """Return the processor time that a thread of this process has used, in hundredths of a second.

    While the thread waits for a kernel's compilation, wall time counts: the compiler works in another process.

    Args:
        thread: the thread's ``threading.get_native_id``.

    Raises:
        OSError: the thread has ended.
    """
    if thread in kernels.waiting:
        return int(time.monotonic() / _TICK)
    # The clock id is made like in clock_getcpuclockid(3); pthread_getcpuclockid reads freed memory of an ended thread.
    return int(time.clock_gettime((~thread << 3) | _PER_THREAD) / _TICK)


def no_further(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """Return the message that PEs work without progress."""
    verb = "has" if len(pes) == 1 else "have"
    return f"{name_pes(pes, places)} {verb} worked for {seconds:g} s without coming further"


def seized(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """Return the message that a native call blocks Python on a process's only PE, or on one of its PEs."""
    whose = "" if len(pes) == 1 else "one of "
    return f"{whose}{name_pes(pes, places)} has not moved for {seconds:g} s: a native call does not return"


def unmoved(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """Return the message that PEs do not move."""
    verb = "has" if len(pes) == 1 else "have"
    return f"{name_pes(pes, places)} {verb} not moved for {seconds:g} s: neither worked nor waited for others"
