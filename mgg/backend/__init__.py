"""Backends that move data between PEs (``api.World``): ``simulated`` (threads), ``mpi`` (ranks), ``nvshmem`` (GPUs)."""

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
    """End every rank with ``exit_code``, so that no rank waits for one that failed alone."""
    sys.modules["mgg.backend.mpi"].abort(exit_code)


def mpi_runs() -> bool:
    """Return whether this process has started MPI in a job of several ranks."""
    return job_size() > 1 and "mgg.backend.mpi" in sys.modules


def splits(backend: str, pes: Callable[[], int], alone: bool) -> bool:
    """Return whether techniques whose PEs must share a process need a separate run through ``launch_threads``.

    Args:
        backend: the backend that the user gave.
        pes: returns the number of PEs.
        alone: the user asked for no other techniques; several PEs without a launcher then use this machine's GPUs.
    """
    if pes() == 1:
        return False
    if resolve(backend, pes) == "nvshmem":
        return True
    return backend == "auto" and alone and not job_size() and enough(len(gpus("mgg.backend.gpu")), pes(), shares_gpus())


def launch_threads(pes: Callable[[], int], program: Callable[[World], T]) -> T | None:
    """Run ``program`` on ``pes()`` GPUs as threads of rank 0 while the job's other ranks wait (collective).

    Returns:
        PE 0's result on rank 0, None on the other ranks.

    Raises:
        InputError: the number of ranks differs from ``pes()``.
        MachineError: CuPy is missing, or rank 0 sees fewer GPUs than PEs and PEs may not share them.
        Exception: the first failure of any PE; every rank raises it if it is an MggError.
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
    """Run ``action`` on rank 0 while the other ranks wait; every rank raises its MggError (collective).

    Returns:
        The result on rank 0, None on the other ranks.

    Raises:
        InputError: the number of ranks differs from ``pes()``.
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
    """Raise one MachineError on every rank if any rank cannot import ``module`` (collective)."""
    lack = not_installed(module)
    lacks = _mpi().gathered(lack) if job_size() > 1 else [lack]
    short = [pe for pe, each in enumerate(lacks) if each]
    if short:
        who = "" if len(short) == len(lacks) else f"{name_pes(short)}: "
        raise MachineError(f"{who}{lacks[short[0]]}").on_every_pe()


def refuse_threads(threads: int) -> None:
    """Raise InputError on every PE of a GPU job if the user asked for several ``threads`` per PE."""
    if threads > 1:
        raise InputError(
            f"--threads {threads}: PEs with GPUs compute products there: leave it out, or take --backend mpi"
        ).on_every_pe()


def launch(backend: str, pes: Callable[[], int], program: Callable[[World], T], threads: int = 1) -> list[T]:
    """Run ``program`` on ``pes()`` PEs.

    Every rank of a job calls ``pes``; if the call fails on one rank, all ranks fail with its error.

    Args:
        backend: the backend's name, or ``auto``.
        pes: returns the number of PEs.
        program: the function that each PE runs.
        threads: threads per CPU PE (``mgg.kernel.threads``).

    Returns:
        The results of all PEs in rank order (``simulated``), or a list of this rank's result (``mpi``, ``nvshmem``).

    Raises:
        InputError: the backend is unknown, the number of ranks differs from ``pes()``, GPU PEs are given several
            threads, or a host has fewer cores than threads.
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
    """Run ``launch`` for a user's own script; a rank that fails alone also ends the other ranks.

    Raises:
        InputError, MachineError: see ``launch``.
        Exception: the exception that the program raised.
    """
    try:
        return launch(backend, pes, program, threads)
    except Exception as error:
        # Otherwise the other ranks would wait for this one until their time limit.
        if mpi_runs() and not getattr(error, "everywhere", False):
            traceback.print_exc()
            abort_job(error.exit_code if isinstance(error, MggError) else 1)
        raise
