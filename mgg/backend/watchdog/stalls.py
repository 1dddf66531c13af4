"""PEs that neither work nor wait: their signs of life, compared from look to look.

A thread that computes or reads files uses processor time; one that waits for other PEs or for nvcc says so. A thread
that is stopped, or blocked for good, does neither.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mgg.backend.api import name_pes
from mgg.kernel import compile as kernels

_PER_THREAD = 6  # CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED of linux/posix-timers.h
_TICK = 0.01  # seconds of processor time that count as work
#: Seconds beyond its limit after which a process ends whose Python does not run, so that nobody in it can say so.
LAST_WORD = 8.0


class Stalls:
    """How long the signs of PEs have been the same."""

    def __init__(self) -> None:
        self._signs: dict[int, Any] = {}
        self._still: dict[int, float] = {}
        self._looked = time.monotonic()

    def look(self, signs: Mapping[int, Any], period: float) -> None:
        """Take note of each PE's sign, which changes while it moves; looks are meant to be ``period`` seconds apart.

        A look that comes late counts as two periods: the process has been stopped itself, or its machine slept.
        """
        now = time.monotonic()
        passed = min(now - self._looked, 2 * period)
        self._looked = now
        for pe, sign in signs.items():
            moved = pe not in self._signs or sign != self._signs[pe]
            self._still[pe] = 0.0 if moved else self._still[pe] + passed
        self._signs = dict(signs)

    def longer_than(self, seconds: float) -> list[int]:
        """The PEs that have not moved for more than ``seconds``."""
        return [pe for pe in self._signs if self._still[pe] > seconds]


def ticks_of(thread: int) -> int:
    """Processor time that a thread of this process has used, in hundredths of a second.

    While it waits for a kernel to be compiled, all time counts: another process works for it.

    Args:
        thread: its ``threading.get_native_id``.

    Raises:
        OSError: it has ended.
    """
    if thread in kernels.waiting:
        return int(time.monotonic() / _TICK)
    # As clock_getcpuclockid(3) makes it of a process; pthread_getcpuclockid reads freed memory of a thread that ended.
    return int(time.clock_gettime((~thread << 3) | _PER_THREAD) / _TICK)


def no_further(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """That PEs work and work, for messages."""
    verb = "has" if len(pes) == 1 else "have"
    return f"{name_pes(pes, places)} {verb} worked for {seconds:g} s without coming further"


def seized(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """That a native call keeps Python from running on the only PE of a process, or one of several, for messages."""
    whose = "" if len(pes) == 1 else "one of "
    return f"{whose}{name_pes(pes, places)} has not moved for {seconds:g} s: a native call does not return"


def unmoved(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """That PEs do not move, for messages."""
    verb = "has" if len(pes) == 1 else "have"
    return f"{name_pes(pes, places)} {verb} not moved for {seconds:g} s: neither worked nor waited for others"
