"""Where the seconds of a job's start go: MGG_START_TIMES=1 has each PE say it, once, after its first epoch."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

VARIABLE = "MGG_START_TIMES"


class StartTimes:
    """Parts of a start, each from the end of the one before; the first begins with the process."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, float]] = []
        self._last: float | None = None

    def done(self, part: str) -> None:
        """``part`` ends now."""
        if os.environ.get(VARIABLE, "0") in ("", "0"):
            return
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._parts.append((part, now - (_began() if self._last is None else self._last)))
        self._last = now

    def say(self, pe: int) -> None:
        """Write them to standard error and forget them."""
        if self._parts:
            parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in self._parts)
            total = sum(seconds for _, seconds in self._parts)
            print(f"PE {pe}: start, in seconds: {parts}; in all {total:.2f}", file=sys.stderr, flush=True)
        self._parts = []


def _began() -> float:
    """When this process began, by CLOCK_BOOTTIME; see proc(5), /proc/pid/stat."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


#: That of this process.
start_times = StartTimes()
