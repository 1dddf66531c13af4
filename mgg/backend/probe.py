"""What this machine can run, and why not: ``mgg doctor``."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any

from mgg.backend import job_size
from mgg.record import these_versions, this_machine


def report() -> dict[str, Any]:
    """Facts about the machine and, for each backend, whether it works and what is missing."""
    machine = this_machine()
    return {
        "cpu": f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.1f} GiB",
        "system": machine.system,
        "ranks in this job": job_size() or "none: not started by mpiexec or srun",
        "MGG_DATA_DIR": os.environ.get("MGG_DATA_DIR", "not set: data sets come from the cache or the network"),
        "backend simulated": "works",
        "backend mpi": _mpi(),
        "GPUs": "not used: this version has no GPU backend",
        "launcher": shutil.which("mpiexec") or shutil.which("srun") or "neither mpiexec nor srun is on PATH",
        "versions": ", ".join(f"{name} {version}" for name, version in these_versions().items()),
    }


def _mpi() -> str:
    try:
        mpi = importlib.import_module("mgg.backend.mpi")
    except (ImportError, RuntimeError) as error:
        return f"missing: {error}; pip install mpi4py mpich, or load your MPI module"
    return f"works: {' '.join(mpi.library().split())}"
