"""The fields of records that describe a job: its machine, its versions and the resources it used."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from mgg.backend.api import World
from mgg.kernel.threads import threads_of_pe
from mgg.origin import PLACE, cpu_model, origin, this_host
from mgg.records import Machine, Used

_PROCESS = Path("/proc/self")
_START = 19  # index of starttime among the fields of /proc/PID/stat after the command's name (proc_pid_stat(5))


def job_machine(world: World) -> Machine:
    """Return the machine of the whole job, for records (collective)."""
    members = world.gather((my_cores(), platform.node(), world.gpu_bus, world.gpu))
    # Each GPU counts once, even if PEs share it.
    gpus = {(host, bus): gpu for _, host, bus, gpu in members if gpu}
    return this_machine(set().union(*(member[0] for member in members)), gpus.values())


def job_fields(world: World) -> dict[str, Any]:
    """Return the fields that describe the job, the same for every kind of record (collective).

    Call it when the recorded work is done: the fields include the resources that the job has used so far.
    """
    return {
        "backend": world.name,
        "pes": world.size,
        "machine": job_machine(world),
        "versions": these_versions(),
        "used": used_by(world.gather(this_process())),
        "gpu_memory": max((each for each in world.gather(world.peak_memory()) if each is not None), default=None),
        **_origin(world),
    }


def _origin(world: World) -> dict[str, str | None]:
    """Return the origin of the job's records, as its first PE sees it (collective)."""
    hosts = world.gather(this_host([world.gpu]))
    return world.gather(origin(hosts) if world.rank == 0 else None)[0]


def my_cores() -> set[tuple[str, int]]:
    """Return the cores this process may use, as pairs of host name and core number."""
    return {(platform.node(), core) for core in os.sched_getaffinity(0)}


def this_machine(cores: set[tuple[str, int]] | None = None, gpus: Iterable[str] = ()) -> Machine:
    """Describe the job's machine: this process's host, and the ``cores`` of all PEs (default: this process's)."""
    cores = my_cores() if cores is None else cores
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = f"{platform.system()} {platform.release()}"
    hosts = len({host for host, _ in cores})
    return Machine(
        cpu=cpu_model(), cores=len(cores), hosts=hosts, threads=threads_of_pe(), memory_bytes=memory, gpus=list(gpus),
        system=system, place=os.environ.get(PLACE),
    )  # fmt: skip


def these_versions() -> dict[str, str]:
    """Return the versions of MGG, Python and the installed libraries that compute or communicate."""
    versions = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    libraries = ("mgg", "numpy", "scipy", "numba", "pyarrow", "mpi4py", "mpich")
    of_cuda = (f"{name}{cuda}" for cuda in (12, 13) for name in ("nvshmem4py-cu", "nvidia-nvshmem-cu"))
    for name in (*libraries, "cupy-cuda12x", "cupy-cuda13x", *of_cuda):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


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


def used_by(processes: Iterable[Process | None]) -> Used | None:
    """Return the usage of the job from the usage of each PE's process; None if one is unknown.

    A process that several PEs share as threads counts once.
    """
    longest: dict[tuple[tuple[str, str], int], Process] = {}
    for process in processes:
        if process is None:
            return None
        known = longest.setdefault((process.node, process.pid), process)
        longest[process.node, process.pid] = max(known, process)
    nodes: dict[tuple[str, str], int] = defaultdict(int)
    for process in longest.values():
        nodes[process.node] += process.memory
    return Used(
        memory=max(nodes.values()),
        cpu_seconds=sum(process.cpu_seconds for process in longest.values()),
        seconds=max(process.seconds for process in longest.values()),
    )
