"""What carries data between PEs: ``simulated`` (threads), ``mpi`` (ranks), ``nvshmem`` (GPUs), behind ``api.World``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from mgg.backend.api import World, job_machine, together
from mgg.errors import InputError, MachineError

__all__ = [
    "World",
    "abort_job",
    "job_machine",
    "job_rank",
    "job_size",
    "launch",
    "launch_threads",
    "mpi_runs",
    "resolve",
    "splits",
    "together",
]

T = TypeVar("T")

# Set by the launchers of MPICH (hydra, srun --mpi=pmi2), PMIx, Open MPI and plain srun.
_LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def job_size() -> int:
    """Number of ranks that the launcher of this process started; 0 without a launcher."""
    sizes = [os.environ[name] for name in _LAUNCHERS if name in os.environ]
    return max((int(size) for size in sizes if size.isdigit()), default=0)


def job_rank() -> int:
    """This process's rank in the job, as its launcher says; 0 without a launcher."""
    ranks = [os.environ[name] for name in _RANKS if name in os.environ]
    return max((int(rank) for rank in ranks if rank.isdigit()), default=0) if job_size() > 1 else 0


def abort_job(exit_code: int) -> None:
    """End every rank with ``exit_code``: one that failed alone must not leave the others waiting."""
    sys.modules["mgg.backend.mpi"].abort(exit_code)


def mpi_runs() -> bool:
    """Whether this process has started MPI in a job of several ranks."""
    return job_size() > 1 and "mgg.backend.mpi" in sys.modules


def resolve(backend: str, pes: Callable[[], int]) -> str:
    """The backend that ``auto`` stands for.

    The ranks of a launcher and a single PE take nvshmem where there is a GPU for each, else mpi; several PEs without a
    launcher are simulated. A single PE takes mpi where there is one, so that its times belong to the same series as
    those of more ranks.
    """
    if backend != "auto":
        return backend
    ranks = job_size() or (1 if pes() == 1 else 0)
    if ranks and _gpus() >= ranks:
        return "nvshmem"
    if job_size():
        return "mpi"
    return "mpi" if ranks and _has_mpi() else "simulated"


def _gpus() -> int:
    """GPUs that this process may use with the packages it has, for a PE each."""
    return _gpus_of("mgg.backend.nvshmem")


def _gpus_of(module: str) -> int:
    """GPUs that this process may use, by the module that says what is missing."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    try:
        user = importlib.import_module(module)
    except (ImportError, RuntimeError):
        return 0
    return 0 if user.missing() else importlib.import_module("mgg.backend.gpu").device_count()


def splits(backend: str, pes: Callable[[], int], alone: bool) -> bool:
    """Whether techniques whose PEs must share a process run apart from the others, through ``launch_threads``.

    Args:
        backend: as the user gave it.
        pes: number of PEs.
        alone: no other techniques are asked for; then several PEs without a launcher take the GPUs there are.
    """
    if pes() == 1:
        return False
    if resolve(backend, pes) == "nvshmem":
        return True
    return backend == "auto" and alone and not job_size() and _gpus_of("mgg.backend.gpu") >= pes()


def launch_threads(pes: Callable[[], int], program: Callable[[World], T]) -> T | None:
    """Run ``program`` on ``pes()`` GPUs as threads of rank 0's process, while the job's other ranks wait (collective).

    Returns:
        PE 0's result on rank 0, None on the other ranks.

    Raises:
        InputError: the job has another number of ranks than ``pes()``.
        MachineError: rank 0 sees fewer GPUs than there are PEs.
        Exception: the first failure of any PE; an MggError on every rank.
    """
    try:
        from mgg.backend import gpu, threads
    except ImportError as error:
        raise MachineError(f"{error}: pip install mgg[gpu], or take --backend mpi") from None

    def here() -> T:
        lack, needed = gpu.missing(), pes()
        if lack:
            raise MachineError(lack)
        if gpu.device_count() < needed:
            raise MachineError(
                f"{needed} PEs in one process need {needed} GPUs and it sees {gpu.device_count()}: let every rank see"
                " all GPUs of the host (CUDA_VISIBLE_DEVICES, srun --gpu-bind=none)"
            )
        first: T = threads.run(needed, program)[0]
        return first

    if job_size() <= 1:
        return here()
    from mgg.backend import mpi

    if not gpu.missing():
        gpu.give_back()
    return mpi.on_first_rank(pes, here)


def _has_mpi() -> bool:
    try:
        importlib.import_module("mgg.backend.mpi")
    except (ImportError, RuntimeError):
        return False
    return True


def launch(backend: str, pes: Callable[[], int], program: Callable[[World], T]) -> list[T]:
    """Run ``program`` on ``pes()`` PEs; the ranks of a job all call ``pes``, and fail together if one of them cannot.

    Returns:
        ``simulated``: every PE's result, in rank order; ``mpi`` and ``nvshmem``: this rank's result alone.

    Raises:
        InputError: the job has another number of ranks than ``pes()``.
        MachineError: mpi4py finds no MPI library, or something that GPUs need is missing.
    """
    backend = resolve(backend, pes)
    if backend == "simulated":
        from mgg.backend import simulated

        if job_size() > 1:
            raise InputError(
                f"--backend simulated runs all PEs in one process, but the job has {job_size()} ranks:"
                " start it without mpiexec, or take --backend mpi"
            ).on_every_pe()
        return simulated.run(pes(), program)
    try:
        from mgg.backend import mpi
    except (ImportError, RuntimeError) as error:
        raise MachineError(f"no MPI library for mpi4py ({error}): pip install mpich, or load your MPI module") from None
    if backend == "mpi":
        return mpi.run(pes, program)
    try:
        from mgg.backend import nvshmem
    except ImportError as error:
        raise MachineError(f"{error}: pip install mgg[gpu], or take --backend mpi") from None
    return nvshmem.run(pes, program)
