"""CPU cores of ranks: GPU ranks that a launcher has bound to very few cores take a share of the free ones.

Open MPI binds each of two ranks to one core by default. A GPU rank also has threads of CUDA, NVSHMEM and NCCL, some of
which spin, and compilers that inherit its mask. Ranks never take cores that may belong to others: cores that the
launcher itself may not use (``taskset``), cores that cgroups withhold, and, if the scheduler does not confine the job,
any core beyond the rank's own. CPU PEs stay where they are bound, and need one core per thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mgg.backend.api import World, together
from mgg.backend.job import job_size, launcher
from mgg.errors import InputError

#: Environment variable that decides whether ranks may leave the cores they are bound to.
VARIABLE = "MGG_BIND"
#: Cores that are enough for a rank: for its own thread, and those of CUDA, NVSHMEM and NCCL that may spin.
ENOUGH = 4
_CHOICES = ("auto", "keep", "spread")
_SCHEDULERS = {
    "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "SGE_ROOT": "Grid Engine", "FLUX_JOB_ID": "Flux", "OAR_JOB_ID": "OAR",
    "COBALT_JOBID": "Cobalt",
}  # fmt: skip
_MOST = 4096  # maximum number of cores of a host


@dataclass(frozen=True)
class Found:
    """The cores that a rank is bound to and may use.

    Attributes:
        host: the rank's host.
        bound: the cores in its mask.
        allowed: the cores that its launcher and the cgroups permit.
        kept: why it must not leave ``bound``; None if it may.
    """

    host: str
    bound: frozenset[int]
    allowed: frozenset[int]
    kept: str | None


def find(host: str) -> Found:
    """Return the cores of this process.

    Raises:
        InputError: MGG_BIND is none of auto, keep, spread.
    """
    choice = os.environ.get(VARIABLE) or "auto"
    if choice not in _CHOICES:
        raise InputError(f"{VARIABLE}={choice}: takes {', '.join(_CHOICES)}")
    bound, allowed = frozenset(os.sched_getaffinity(0)), _granted()
    starter = launcher()
    with suppress(OSError):
        allowed &= os.sched_getaffinity(starter) if starter else bound
    allowed |= bound
    kept = {"keep": f"{VARIABLE}=keep", "spread": None, "auto": withheld(allowed, os.environ)}[choice]
    return Found(host, bound, allowed, kept)


def withheld(allowed: frozenset[int], environment: Mapping[str, str], online: int | None = None) -> str | None:
    """Return why some ``allowed`` cores may belong to another job; None if all of them belong to this one.

    Args:
        allowed: the cores that the kernel permits this job.
        environment: the environment, with the scheduler's variables.
        online: number of cores of the host; None: ask the system.
    """
    if "SLURM_JOB_ID" in environment:
        count = environment.get("SLURM_CPUS_ON_NODE") or environment.get("SLURM_JOB_CPUS_PER_NODE", "")
        # For example "32(x2),16", which does not say which node has which number.
        given = [int(each) for part in count.split(",") if (each := part.partition("(")[0]).isdigit()]
        if given and len(allowed) <= min(given):
            return None
        return f"Slurm has given this job {min(given, default='unknown')} cores of a host and does not confine it"
    whole = len(allowed) >= (online or os.cpu_count() or 1)
    name = next((name for variable, name in _SCHEDULERS.items() if variable in environment), None)
    return f"{name} does not confine this job to its cores" if name and whole else None


def share(masks: Sequence[frozenset[int]], allowed: frozenset[int], place: int) -> frozenset[int]:
    """Return the cores for rank ``place`` of a host: its own, and an equal share of the cores bound to no rank.

    Args:
        masks: the cores that each rank of the host is bound to.
        allowed: the cores that all of them may use.
        place: the rank's place among the ranks of its host.

    Returns:
        The cores; just ``masks[place]`` if the ranks' masks overlap, or if this rank has enough cores.
    """
    mine, taken = masks[place], frozenset[int]().union(*masks)
    apart = sum(map(len, masks)) == len(taken)
    free = sorted(allowed - taken)
    if not apart or len(mine) >= ENOUGH:
        return mine
    if len(free) < len(masks):  # too few for a share each
        return mine | frozenset(free)
    # Shares follow the order of the cores, so that a rank stays near the cores it was bound to.
    turn = sorted(range(len(masks)), key=lambda each: min(masks[each])).index(place)
    first, last = (len(free) * edge // len(masks) for edge in (turn, turn + 1))
    return mine | frozenset(free[first:last])


def spread(world: World, host: str) -> None:
    """Let all threads of this rank run on its share of the host's cores; rank 0 reports the binding (collective).

    Args:
        world: a World that carries control data between the ranks.
        host: this rank's host.

    Raises:
        InputError: MGG_BIND is none of auto, keep, spread (on every rank).
    """
    ranks: list[Found] = world.gather(together(world, lambda: find(host)))
    mine = ranks[world.rank]
    here = [pe for pe, each in enumerate(ranks) if each.host == host]
    allowed = frozenset[int].intersection(*(ranks[pe].allowed for pe in here))
    kept = next((ranks[pe].kept for pe in here if ranks[pe].kept), None)
    masks = [ranks[pe].bound for pe in here]
    cores = mine.bound if kept else share(masks, allowed, here.index(world.rank))
    if cores != mine.bound:
        widen(mine.bound, cores)
    if world.rank == 0 and (line := said(masks, allowed, cores, kept)):
        print(line, file=sys.stderr, flush=True)


def check_threads(world: World, threads: int, host: str) -> None:
    """Raise InputError on every PE if CPU PEs have more threads than cores (collective).

    Args:
        world: this PE's view of the job.
        threads: threads per PE.
        host: this PE's host.
    """
    members: list[tuple[str, frozenset[int], str]] = world.gather((host, frozenset(os.sched_getaffinity(0)), binder()))
    masks: dict[str, list[frozenset[int]]] = {}
    for name, mine, _ in members:
        masks.setdefault(name, []).append(mine)
    every = {name: frozenset[int]().union(*each) for name, each in masks.items()}
    for pe, (name, mine, by) in enumerate(members):
        if len(mine) < threads and mine != every[name]:
            raise InputError(
                f"--threads {threads}: PE {pe} is bound to {_counted(mine)} by {by}: start ranks with {threads} cores"
                f" each (mpiexec --map-by slot:PE={threads} or -bind-to core:{threads}, srun --cpus-per-task={threads})"
            ).on_every_pe()
    for name, here in masks.items():
        if len(every[name]) < threads * len(here):
            pes, most = f"{len(here)} PEs" if len(here) > 1 else "the PE", max(1, len(every[name]) // len(here))
            raise InputError(
                f"--threads {threads}: {pes} on {name} may use {_counted(every[name])}: give {most} at most,"
                " or the job more"
            ).on_every_pe()


def _counted(cores: frozenset[int]) -> str:
    return f"{len(cores)} core{'s' * (len(cores) > 1)}"


def said(
    masks: Sequence[frozenset[int]], allowed: frozenset[int], cores: frozenset[int], kept: str | None
) -> str | None:
    """Return the line about a host whose first rank has taken ``cores``; None if its ranks have enough cores."""
    mine, every = masks[0], frozenset[int]().union(*masks)
    unbound = mine == allowed and len(mine) >= len(masks)
    if unbound or len(mine) >= ENOUGH * len(masks) or (len(mine) >= ENOUGH and every != mine):
        return None
    ranks = f"{len(masks)} rank{'s' * (len(masks) > 1)} on this host"
    each = ", each" * (len(masks) > 1)
    if every == mine and len(masks) > 1:
        shared = f"{len(mine)} core{'s' * (len(mine) > 1)}"
        return f"{ranks} share {shared}: GPUs wait for them; start ranks with more cores (docs/concepts/training.md)"
    bound = f"{ranks}{each} bound to {len(mine)} core{'s' * (len(mine) > 1)} by {binder()}"
    if cores != mine:
        return f"{bound}; took {len(cores)} of the {len(allowed)} allowed cores{' each' * (len(masks) > 1)}"
    why = kept or "no other core is allowed"
    return f"{bound}, and left there: {why}; GPUs wait for so few (docs/concepts/training.md)"


def binder() -> str:
    """Return the name of the launcher that has bound this rank, according to the environment."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "Open MPI"
    if "SLURM_STEP_ID" in os.environ or "SLURM_PROCID" in os.environ:
        return "Slurm"
    return "MPICH" if "PMI_SIZE" in os.environ else "its launcher"


def described(host: str) -> str:
    """Return the line of ``mgg doctor`` about the cores of this process and those that it may use."""
    found = find(host)
    if found.bound == found.allowed:
        return f"{len(found.bound)} of the {len(_granted())} that the system would grant"
    by = f" by {binder()}" if job_size() else ""
    left = f"left there: {found.kept}" if found.kept else f"ranks with GPUs take their share ({VARIABLE}=keep: none)"
    return f"bound to {len(found.bound)} of {len(found.allowed)} allowed{by}; {left}"


def widen(bound: Iterable[int], cores: Iterable[int]) -> None:
    """Let the threads of this process that are bound to ``bound`` run on ``cores``; later threads inherit the mask."""
    old = set(bound)
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            if os.sched_getaffinity(int(task.name)) == old:
                os.sched_setaffinity(int(task.name), cores)
    os.sched_setaffinity(0, cores)


def _granted() -> frozenset[int]:
    """Return the cores that the kernel grants this process, within cpusets and online cores; a trial thread asks."""
    granted = frozenset[int]()

    def ask() -> None:
        nonlocal granted
        with suppress(OSError):
            os.sched_setaffinity(0, range(_MOST))
        granted = frozenset(os.sched_getaffinity(0))

    thread = threading.Thread(target=ask, name="cores")
    thread.start()
    thread.join()
    return granted
