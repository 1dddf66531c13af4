"""What the processes of a job have used of their hosts, for its records: nobody else sees ranks of other hosts."""

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
_START = 19  # place of starttime among the fields of /proc/PID/stat after the command's name (proc_pid_stat(5))


class Process(NamedTuple):
    """What one process has used so far: its peak resident set in bytes, CPU seconds, seconds since it started."""

    node: tuple[str, str]
    pid: int
    memory: int
    cpu_seconds: float
    seconds: float


def this_process() -> Process | None:
    """What this process has used; None where the system does not tell, which no job fails for."""
    # Not ru_maxrss: that begins with what the process held that started this one.
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
    """What the job has used, from what each PE says of its process; None where one could not tell.

    PEs that are threads share a process, which counts once.
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
