"""What ``--backend auto`` stands for: GPUs where every PE has one, of its own or shared, else CPUs."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import platform
from collections.abc import Callable
from typing import get_args

from mgg.backend.job import job_rank, job_size, shares_gpus
from mgg.backend.machine.slurm_job import held_gpus
from mgg.config import Backend
from mgg.errors import InputError, MachineError

_log = logging.getLogger(__name__)


def resolve(backend: str, pes: Callable[[], int]) -> str:
    """The backend that ``auto`` stands for (collective in a job of several ranks, which all get the same answer).

    The ranks of a launcher and a single PE take nvshmem where there is a GPU for each, else mpi; several PEs without a
    launcher are simulated. A single PE takes mpi where there is one, so that its times belong to the same series as
    those of more ranks.

    Raises:
        InputError: there is no such backend.
        MachineError: Slurm has given GPUs to the job, and none of them can be used.
    """
    if backend not in (known := get_args(Backend)):
        raise InputError(f"unknown backend {backend!r}; known: {', '.join(known)}").on_every_pe()
    if backend != "auto":
        return backend
    if job_size() > 1:
        return "nvshmem" if _has_mpi() and _a_gpu_each() else "mpi"
    if job_size() == 1 or pes() == 1:
        if gpus():
            return "nvshmem"
        _refuse_to_waste(held_gpus())
        return "mpi" if job_size() or _has_mpi() else "simulated"
    return "simulated"


def _a_gpu_each() -> bool:
    """Whether every host of the job has a GPU for each of its ranks; a warning names those that lack some (collective).

    Sites differ in what a rank sees: all GPUs of its host, or its own.
    """
    from mgg.backend.mpi import gathered

    told = gathered((platform.node(), gpus(), held_gpus(), shares_gpus()))
    hosts, shared = [each[0] for each in told], all(each[3] for each in told)
    seen = {name: {gpu for host, found, *_ in told if host == name for gpu in found} for name in hosts}
    if not any(seen.values()):
        _refuse_to_waste(sum({host: held for host, _, held, _ in told}.values()))
    short = [
        f"{name} has {len(found)} for {hosts.count(name)}"
        for name, found in seen.items()
        if not enough(len(found), hosts.count(name), shared)
    ]
    if short and any(seen.values()) and job_rank() == 0:
        _log.warning("backend auto: PEs compute on CPU cores, as ranks lack GPUs: %s", "; ".join(short))
    return not short


def enough(found: int, pes: int, shared: bool) -> bool:
    """Whether so many GPUs are enough for so many PEs of a host; ``shared``: for any number of them."""
    return found >= (1 if shared else pes)


def _refuse_to_waste(held: int) -> None:
    """Raise MachineError where a job without a GPU that it can use holds some; every rank of the job calls it alike."""
    if held:
        raise MachineError(
            f"backend auto: Slurm has given this job {held} GPUs, and it can use none of them: {lacking()}"
        ).on_every_pe()


def gpus(module: str = "mgg.backend.nvshmem") -> list[str]:
    """PCI bus ids of the GPUs that this process may use with the packages it has, for a PE each.

    Args:
        module: that says what is missing.
    """
    return [] if lacking(module) else importlib.import_module("mgg.backend.gpu").bus_ids()


def lacking(module: str = "mgg.backend.nvshmem") -> str | None:
    """Why this process can use no GPU, with what to do, in one line; None where it can.

    Args:
        module: that says what is missing.
    """
    lack: str | None = not_installed(module) or importlib.import_module(module).missing()
    return lack


def not_installed(module: str) -> str | None:
    """What ``module`` of this package cannot be imported for, with what to do, in one line; None where it can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'mgg[gpu]', or take --backend mpi"
    try:
        importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        return f"{' '.join(str(error).split())}: pip install 'mgg[gpu]', or take --backend mpi"
    return None


def _has_mpi() -> bool:
    try:
        importlib.import_module("mgg.backend.mpi")
    except (ImportError, RuntimeError):
        return False
    return True
