"""What carries data between PEs: ``simulated`` (threads), ``mpi`` (ranks), ``nvshmem`` (GPUs), behind ``api.World``."""

from __future__ import annotations

import logging
import platform
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from mgg.backend.api import World, name_pes, together
from mgg.backend.choice import enough, gpus, not_installed, resolve
from mgg.backend.job import SHARED, job_rank, job_size, shares_gpus
from mgg.backend.machine import cores
from mgg.backend.machine.facts import job_fields, job_machine
from mgg.errors import InputError, MachineError, MggError
from mgg.kernel.threads import threads_per_pe

__all__ = [
    "World",
    "abort_job",
    "job_fields",
    "job_machine",
    "job_rank",
    "job_size",
    "launch",
    "launch_script",
    "launch_threads",
    "mpi_runs",
    "on_first_rank",
    "refuse_threads",
    "resolve",
    "splits",
    "together",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)


def abort_job(exit_code: int) -> None:
    """End every rank with ``exit_code``: one that failed alone must not leave the others waiting."""
    sys.modules["mgg.backend.mpi"].abort(exit_code)


def mpi_runs() -> bool:
    """Whether this process has started MPI in a job of several ranks."""
    return job_size() > 1 and "mgg.backend.mpi" in sys.modules


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
    return backend == "auto" and alone and not job_size() and enough(len(gpus("mgg.backend.gpu")), pes(), shares_gpus())


def launch_threads(pes: Callable[[], int], program: Callable[[World], T]) -> T | None:
    """Run ``program`` on ``pes()`` GPUs as threads of rank 0's process, while the job's other ranks wait (collective).

    Returns:
        PE 0's result on rank 0, None on the other ranks.

    Raises:
        InputError: the job has another number of ranks than ``pes()``.
        MachineError: CuPy is missing, or rank 0 sees fewer GPUs than there are PEs, which may not share them.
        Exception: the first failure of any PE; an MggError on every rank.
    """
    _need_everywhere("mgg.backend.threads")
    from mgg.backend import gpu, threads

    def here() -> T:
        lack, needed = gpu.missing(), pes()
        if lack:
            raise MachineError(lack)
        if not enough(gpu.device_count(), needed, shares_gpus()):
            raise MachineError(
                f"{needed} PEs in one process need {needed} GPUs and it sees {gpu.device_count()}: let every rank see"
                " all GPUs of the host (CUDA_VISIBLE_DEVICES, srun --gpu-bind=none)"
            )
        if gpu.device_count() < needed:
            _log.warning(SHARED)
        first: T = threads.run(needed, program)[0]
        return first

    if job_size() > 1 and not gpu.missing():
        gpu.give_back()
    return on_first_rank(pes, here)


def on_first_rank(pes: Callable[[], int], action: Callable[[], T]) -> T | None:
    """Run ``action`` on rank 0 while the other ranks of the job wait; an MggError is raised on each (collective).

    Returns:
        The result on rank 0, None on the others.

    Raises:
        InputError: the job has another number of ranks than ``pes()``.
    """
    if job_size() <= 1:
        return action()
    found: T | None = _mpi().on_first_rank(pes, action)
    return found


def _mpi() -> ModuleType:
    try:
        from mgg.backend import mpi
    except (ImportError, RuntimeError) as error:
        raise MachineError(f"no MPI library for mpi4py ({error}): pip install mpich, or load your MPI module") from None
    return mpi


def _need_everywhere(module: str) -> None:
    """Raise one MachineError on every rank where some of them cannot import ``module`` (collective)."""
    lack = not_installed(module)
    told = _mpi().gathered(lack) if job_size() > 1 else [lack]
    short = [pe for pe, each in enumerate(told) if each]
    if short:
        who = "" if len(short) == len(told) else f"{name_pes(short)}: "
        raise MachineError(f"{who}{told[short[0]]}").on_every_pe()


def refuse_threads(threads: int) -> None:
    """Raise InputError, on every PE, where a job with GPUs is given several ``threads`` per PE."""
    if threads > 1:
        raise InputError(
            f"--threads {threads}: PEs with GPUs compute products there: leave it out, or take --backend mpi"
        ).on_every_pe()


def launch(backend: str, pes: Callable[[], int], program: Callable[[World], T], threads: int = 1) -> list[T]:
    """Run ``program`` on ``pes()`` PEs; the ranks of a job all call ``pes``, and fail together if one of them cannot.

    Args:
        backend: what the PEs are.
        pes: their number.
        program: what each runs.
        threads: of each CPU PE, for row-wise products.

    Returns:
        ``simulated``: every PE's result, in rank order; ``mpi`` and ``nvshmem``: this rank's result alone.

    Raises:
        InputError: an unknown backend, or the job has another number of ranks than ``pes()``; several threads on GPUs,
            or more of them than a host's cores.
        MachineError: mpi4py finds no MPI library, or something that GPUs need is missing.
    """
    backend = resolve(backend, pes)
    if backend == "nvshmem":
        refuse_threads(threads)

    def threaded(world: World) -> T:
        if threads > 1:
            cores.check_threads(world, threads, platform.node())
        return program(world)

    if backend == "simulated":
        from mgg.backend import simulated

        if job_size() > 1:
            raise InputError(
                f"--backend simulated runs all PEs in one process, but the job has {job_size()} ranks:"
                " start it without mpiexec, or take --backend mpi"
            ).on_every_pe()
        with threads_per_pe(threads, pes()):
            return simulated.run(pes(), threaded)
    mpi = _mpi()
    if backend == "mpi":
        with threads_per_pe(threads, 1):
            found: list[T] = mpi.run(pes, threaded)
        return found
    _need_everywhere("mgg.backend.nvshmem")
    from mgg.backend import nvshmem

    return nvshmem.run(pes, program)


def launch_script(backend: str, pes: Callable[[], int], program: Callable[[World], T], threads: int = 1) -> list[T]:
    """As ``launch``, for a user's own script: where this rank of a job fails alone, it ends the others, too.

    Raises:
        InputError, MachineError: as ``launch``.
        Exception: what the program raised.
    """
    try:
        return launch(backend, pes, program, threads)
    except Exception as error:
        # The others would wait for this rank until their time limit.
        if mpi_runs() and not getattr(error, "everywhere", False):
            traceback.print_exc()
            abort_job(error.exit_code if isinstance(error, MggError) else 1)
        raise
