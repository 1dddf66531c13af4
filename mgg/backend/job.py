"""What the launcher of this process (mpiexec, srun) says of its job, and what the user allows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# Set by the launchers of MPICH (hydra, srun --mpi=pmi2), PMIx, Open MPI and plain srun.
_LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_HOST_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_HOST_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


#: What a job is told whose PEs do.
SHARED = "PEs share GPUs (MGG_SHARED_GPUS): results are right, times say nothing of a GPU each"


def shares_gpus() -> bool:
    """Whether several PEs may take one GPU: the user has set MGG_SHARED_GPUS=1, to try more PEs than there are GPUs."""
    return os.environ.get("MGG_SHARED_GPUS", "0") not in ("", "0")


def job_size() -> int:
    """Number of ranks that the launcher of this process started; 0 without a launcher."""
    sizes = [os.environ[name] for name in _LAUNCHERS if name in os.environ]
    return max((int(size) for size in sizes if size.isdigit()), default=0)


def job_rank() -> int:
    """This process's rank in the job, as its launcher says; 0 without a launcher."""
    ranks = [os.environ[name] for name in _RANKS if name in os.environ]
    return max((int(rank) for rank in ranks if rank.isdigit()), default=0) if job_size() > 1 else 0


def host_ranks() -> tuple[int, int]:
    """This process's rank among those of its host, and how many these are; 0 and 1 where its launcher does not say."""
    rank, size = (
        next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), other)
        for names, other in ((_HOST_RANKS, 0), (_HOST_SIZES, 1))
    )
    return rank, max(size, 1)


def alone() -> dict[str, str]:
    """The environment without what a launcher says of its job: for a program that is not to be a rank of it."""
    told = {*_LAUNCHERS, *_RANKS, *_HOST_RANKS, *_HOST_SIZES, "PMI_FD"}
    return {name: value for name, value in os.environ.items() if name not in told}


def launcher() -> int | None:
    """The process that has started this rank and ends when its job does; None without a launcher.

    It need not be the parent: scripts and tools around a rank have the same variables of the job as the rank, and may
    end before it. Environments of others, Slurm's daemon among them, cannot be read: what has one is no such script.
    """
    mine = _of_job(os.environ)
    if not mine:
        return None
    process = os.getppid()
    with suppress(OSError):
        while process > 1 and _of_job(_environment(process)) == mine:
            process = _parent(process)
    # Nobody waits for the first process of a host or container; 0 is outside of the container.
    return process if process > 1 else None


def _of_job(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in (*_LAUNCHERS, *_RANKS, "PMI_FD") if name in environment}


def _environment(process: int) -> dict[str, str]:
    entries = Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _parent(process: int) -> int:
    """See proc(5): the name, in brackets, may hold anything."""
    return int(Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
