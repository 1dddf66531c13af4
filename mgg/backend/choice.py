"""Resolves ``--backend auto``: GPUs if every PE has one, its own or shared, else CPUs."""

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
    """Resolve ``auto`` to a backend (collective in a job of several ranks, which all get the same answer).

    The ranks of a launcher and a single PE take nvshmem if each has a GPU, else mpi; several PEs without a launcher
    are simulated. A single PE without a GPU takes mpi if an MPI library exists, so that its times are comparable with
    times of more ranks.

    Raises:
        InputError: the backend is unknown.
        MachineError: Slurm has given GPUs to the job, and the job can use none of them.
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
    """Return whether every host has a GPU for each of its ranks; warns of hosts that lack some (collective).

    On some sites a rank sees all GPUs of its host, on others only its own, so this counts distinct GPUs per host.
    """
    from mgg.backend.mpi import gathered

    by_rank = gathered((platform.node(), gpus(), held_gpus(), shares_gpus()))
    hosts, shared = [each[0] for each in by_rank], all(each[3] for each in by_rank)
    seen = {name: {gpu for host, found, *_ in by_rank if host == name for gpu in found} for name in hosts}
    if not any(seen.values()):
        _refuse_to_waste(sum({host: held for host, _, held, _ in by_rank}.values()))
    short = [
        f"{name} has {len(found)} for {hosts.count(name)}"
        for name, found in seen.items()
        if not enough(len(found), hosts.count(name), shared)
    ]
    if short and any(seen.values()) and job_rank() == 0:
        _log.warning("backend auto: PEs compute on CPU cores, as ranks lack GPUs: %s", "; ".join(short))
    return not short


def enough(found: int, pes: int, shared: bool) -> bool:
    """Return whether ``found`` GPUs are enough for ``pes`` PEs of a host; if ``shared``, one GPU is enough."""
    return found >= (1 if shared else pes)


def _refuse_to_waste(held: int) -> None:
    """Raise MachineError if a job that can use no GPU has been allocated ``held`` GPUs; every rank calls it."""
    if held:
        raise MachineError(
            f"backend auto: Slurm has given this job {held} GPUs, and it can use none of them: {lacking()}"
        ).on_every_pe()


def gpus(module: str = "mgg.backend.nvshmem") -> list[str]:
    """Return the PCI bus ids of the GPUs that this process can use with its installed packages.

    Args:
        module: the module whose ``missing`` reports missing packages.
    """
    return [] if lacking(module) else importlib.import_module("mgg.backend.gpu").bus_ids()


def lacking(module: str = "mgg.backend.nvshmem") -> str | None:
    """Return one line on why this process can use no GPU and what to do; None if it can use GPUs.

    Args:
        module: the module whose ``missing`` reports missing packages.
    """
    lack: str | None = not_installed(module) or importlib.import_module(module).missing()
    return lack


def not_installed(module: str) -> str | None:
    """Return one line on why ``module`` of this package cannot be imported and what to do; None if it can."""
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
