"""Times of the parts of a job's start; with MGG_START_TIMES=1 each PE prints them once, after its first epoch."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

VARIABLE = "MGG_START_TIMES"


class StartTimes:
    """The parts of a start; each begins when the one before ends, the first when the process starts."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, float]] = []
        self._last: float | None = None

    def done(self, part: str) -> None:
        """Record that ``part`` ends now."""
        if os.environ.get(VARIABLE, "0") in ("", "0"):
            return
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._parts.append((part, now - (_began() if self._last is None else self._last)))
        self._last = now

    def say(self, pe: int) -> None:
        """Print the times to standard error and clear them."""
        if self._parts:
            parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in self._parts)
            total = sum(seconds for _, seconds in self._parts)
            print(f"PE {pe}: start, in seconds: {parts}; in all {total:.2f}", file=sys.stderr, flush=True)
        self._parts = []


def _began() -> float:
    """Return when this process started, in seconds of CLOCK_BOOTTIME; see proc(5), /proc/pid/stat."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


#: The start times of this process.
start_times = StartTimes()
