"""Memory and CPU time that a job's processes have used, for its records; each rank reports its own."""

from __future__ import annotations

import os
import platform
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mgg.record import Used

_PROCESS = Path("/proc/self")
_START = 19  # index of starttime among the fields of /proc/PID/stat after the command's name (proc_pid_stat(5))


class Process(NamedTuple):
    """Usage of one process so far: peak resident set in bytes, CPU seconds, seconds since its start."""

    node: tuple[str, str]
    pid: int
    memory: int
    cpu_seconds: float
    seconds: float


def this_process() -> Process | None:
    """Return the usage of this process; None if the system does not report it, which must not fail a job."""
    # Not ru_maxrss, which includes the peak of the parent process before exec.
    try:
        peak = re.search(r"^VmHWM:\s*(\d+) kB$", (_PROCESS / "status").read_text(encoding="utf-8"), re.MULTILINE)
        ticks = int((_PROCESS / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_START])
    except (OSError, ValueError, IndexError):
        return None
    if peak is None:
        return None
    # Slurm may have several nodes on one host, and some launchers give every rank the first node's variables.
    node = platform.node(), os.environ.get("SLURMD_NODENAME", "")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return Process(node, os.getpid(), 1024 * int(peak[1]), time.process_time(), max(age, 0.0))


def of_all(processes: Iterable[Process | None]) -> Used | None:
    """Return the usage of the job from the usage of each PE's process; None if one is unknown.

    A process that several PEs share as threads counts once.
    """
    told: dict[tuple[tuple[str, str], int], Process] = {}
    for process in processes:
        if process is None:
            return None
        known = told.setdefault((process.node, process.pid), process)
        told[process.node, process.pid] = max(known, process)
    nodes: dict[tuple[str, str], int] = defaultdict(int)
    for process in told.values():
        nodes[process.node] += process.memory
    return Used(
        memory=max(nodes.values()),
        cpu_seconds=sum(process.cpu_seconds for process in told.values()),
        seconds=max(process.seconds for process in told.values()),
    )
