"""The job of this process, as its launcher (mpiexec, srun) and the user's environment variables describe it."""

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


#: Warning for jobs whose PEs share GPUs.
SHARED = "PEs share GPUs (MGG_SHARED_GPUS): results are right, times are not those of one GPU per PE"


def shares_gpus() -> bool:
    """Return whether several PEs may share a GPU (MGG_SHARED_GPUS=1), to try more PEs than there are GPUs."""
    return os.environ.get("MGG_SHARED_GPUS", "0") not in ("", "0")


def job_size() -> int:
    """Return the number of ranks that the launcher of this process started; 0 without a launcher."""
    sizes = [os.environ[name] for name in _LAUNCHERS if name in os.environ]
    return max((int(size) for size in sizes if size.isdigit()), default=0)


def job_rank() -> int:
    """Return this process's rank in the job according to its launcher; 0 without a launcher."""
    ranks = [os.environ[name] for name in _RANKS if name in os.environ]
    return max((int(rank) for rank in ranks if rank.isdigit()), default=0) if job_size() > 1 else 0


def host_ranks() -> tuple[int, int]:
    """Return this process's rank on its host and the host's number of ranks; 0 and 1 if the launcher sets neither."""
    rank, size = (
        next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), other)
        for names, other in ((_HOST_RANKS, 0), (_HOST_SIZES, 1))
    )
    return rank, max(size, 1)


def alone() -> dict[str, str]:
    """Return the environment without the launcher's variables, for a child program that is not a rank of the job."""
    launchers_own = {*_LAUNCHERS, *_RANKS, *_HOST_RANKS, *_HOST_SIZES, "PMI_FD"}
    return {name: value for name, value in os.environ.items() if name not in launchers_own}


def launcher() -> int | None:
    """Return the id of the process that started this rank and ends with its job; None without a launcher.

    It need not be the parent: wrapper scripts and tools have the same job variables as the rank, and may end before it.
    The search stops at the first ancestor without these variables, or whose environment this user cannot read (Slurm's
    daemon, for example): it is no wrapper.
    """
    mine = _of_job(os.environ)
    if not mine:
        return None
    process = os.getppid()
    with suppress(OSError):
        while process > 1 and _of_job(_environment(process)) == mine:
            process = _parent(process)
    # Process 1 is the init process of a host or container; 0 is outside the container. Neither ends with the job.
    return process if process > 1 else None


def _of_job(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in (*_LAUNCHERS, *_RANKS, "PMI_FD") if name in environment}


def _environment(process: int) -> dict[str, str]:
    entries = Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _parent(process: int) -> int:
    """Return the parent of a process, see proc(5); the name in brackets may contain any characters."""
    return int(Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
