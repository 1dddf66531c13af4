"""What the launcher of this process (mpiexec, srun) says of its job, and what the user allows it."""

from __future__ import annotations

import os

# Set by the launchers of MPICH (hydra, srun --mpi=pmi2), PMIx, Open MPI and plain srun.
_LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


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
