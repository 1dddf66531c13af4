"""Cores of ranks. Ranks with GPUs that a launcher has bound to very few take their share of the free ones.

Open MPI binds each of two ranks to one core by default. A rank with a GPU has threads of CUDA, NVSHMEM and NCCL beside
its own, some of which spin, and compilers that inherit its mask. Cores that somebody else may count on are left alone:
what the launcher itself may not use (``taskset``), what cgroups withhold, and all beyond a job's own where a scheduler
does not confine it. CPU PEs stay where they are bound, and must have a core for each of their threads.
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

#: What says whether ranks may leave the cores they are bound to.
VARIABLE = "MGG_BIND"
#: Cores a rank that are enough: its own thread, and those of CUDA, NVSHMEM and NCCL that may spin beside it.
ENOUGH = 4
_CHOICES = ("auto", "keep", "spread")
_SCHEDULERS = {
    "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "SGE_ROOT": "Grid Engine", "FLUX_JOB_ID": "Flux", "OAR_JOB_ID": "OAR",
    "COBALT_JOBID": "Cobalt",
}  # fmt: skip
_MOST = 4096  # cores that a host may have


@dataclass(frozen=True)
class Found:
    """What a rank may run on.

    Attributes:
        host: where it is.
        bound: the cores of its mask.
        allowed: those that its launcher and the cgroups would let it have.
        kept: why it must not leave ``bound``; None where it may.
    """

    host: str
    bound: frozenset[int]
    allowed: frozenset[int]
    kept: str | None


def find(host: str) -> Found:
    """That of this process.

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
    """Why cores of ``allowed`` may be another job's; None where all of them are this one's.

    Args:
        allowed: what the kernel would let this job have.
        environment: variables of the scheduler.
        online: cores of the host.
    """
    if "SLURM_JOB_ID" in environment:
        count = environment.get("SLURM_CPUS_ON_NODE") or environment.get("SLURM_JOB_CPUS_PER_NODE", "")
        # As 32(x2),16: of which node is not said.
        given = [int(each) for part in count.split(",") if (each := part.partition("(")[0]).isdigit()]
        if given and len(allowed) <= min(given):
            return None
        return f"Slurm has given this job {min(given, default='unknown')} cores of a host and does not confine it"
    whole = len(allowed) >= (online or os.cpu_count() or 1)
    name = next((name for variable, name in _SCHEDULERS.items() if variable in environment), None)
    return f"{name} does not confine this job to its cores" if name and whole else None


def share(masks: Sequence[frozenset[int]], allowed: frozenset[int], place: int) -> frozenset[int]:
    """The cores that rank ``place`` of a host takes: its own, and an equal part of those that no rank is bound to.

    Args:
        masks: what each rank of the host is bound to.
        allowed: what they might have.

    Returns:
        ``masks[place]`` where the launcher has not bound each rank to cores of its own, or to enough of them.
    """
    mine, taken = masks[place], frozenset[int]().union(*masks)
    apart = sum(map(len, masks)) == len(taken)
    free = sorted(allowed - taken)
    if not apart or len(mine) >= ENOUGH:
        return mine
    if len(free) < len(masks):  # too few for a part each
        return mine | frozenset(free)
    # In the order of the cores, so that a rank stays near those it was bound to.
    turn = sorted(range(len(masks)), key=lambda each: min(masks[each])).index(place)
    first, last = (len(free) * edge // len(masks) for edge in (turn, turn + 1))
    return mine | frozenset(free[first:last])


def spread(world: World, host: str) -> None:
    """Let all threads of this rank run on its share of the host's cores; rank 0 says what was found (collective).

    Args:
        world: the ranks, whose control data is carried by MPI.
        host: of this rank.

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
    """Raise InputError, on every PE, where ``threads`` of each CPU PE outnumber cores (collective).

    Args:
        world: the PEs.
        threads: of each of them.
        host: where this one is.
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
    """The line about the ranks of a host, of which the first has taken ``cores``; None where none is bound closely."""
    mine, every = masks[0], frozenset[int]().union(*masks)
    unbound = mine == allowed and len(mine) >= len(masks)
    if unbound or len(mine) >= ENOUGH * len(masks) or (len(mine) >= ENOUGH and every != mine):
        return None
    ranks = f"{len(masks)} rank{'s' * (len(masks) > 1)} on this host"
    each = ", each" * (len(masks) > 1)
    if every == mine and len(masks) > 1:
        shared = f"{len(mine)} core{'s' * (len(mine) > 1)}"
        return f"{ranks} share {shared}: GPUs wait for them; start the ranks with more cores (docs/training.md)"
    bound = f"{ranks}{each} bound to {len(mine)} core{'s' * (len(mine) > 1)} by {binder()}"
    if cores != mine:
        return f"{bound}; took {len(cores)} of the {len(allowed)} allowed cores{' each' * (len(masks) > 1)}"
    why = kept or "no other core is allowed"
    return f"{bound}, and left there: {why}; GPUs wait for so few (docs/training.md)"


def binder() -> str:
    """Who has bound this rank, as far as the environment shows."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "Open MPI"
    if "SLURM_STEP_ID" in os.environ or "SLURM_PROCID" in os.environ:
        return "Slurm"
    return "MPICH" if "PMI_SIZE" in os.environ else "its launcher"


def described(host: str) -> str:
    """For ``mgg doctor``: the cores of this process, and those that it might have."""
    found = find(host)
    if found.bound == found.allowed:
        return f"{len(found.bound)} of the {len(_granted())} that the system would grant"
    by = f" by {binder()}" if job_size() else ""
    left = f"left there: {found.kept}" if found.kept else f"ranks with GPUs take their share ({VARIABLE}=keep: none)"
    return f"bound to {len(found.bound)} of {len(found.allowed)} allowed{by}; {left}"


def widen(bound: Iterable[int], cores: Iterable[int]) -> None:
    """Let the threads of this process that are bound to ``bound`` run on ``cores``; later ones inherit it."""
    old = set(bound)
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            if os.sched_getaffinity(int(task.name)) == old:
                os.sched_setaffinity(int(task.name), cores)
    os.sched_setaffinity(0, cores)


def _granted() -> frozenset[int]:
    """What the kernel would grant this process, its cgroups' cpusets and cores that are off counted: a thread asks."""
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
