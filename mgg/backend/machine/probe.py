"""Probes for ``mgg doctor``: what this machine can run, and what is missing for the rest."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import shutil
from typing import Any

from mgg.backend import job_size
from mgg.backend.machine import cores, topology
from mgg.backend.machine.facts import these_versions, this_machine
from mgg.errors import MachineError
from mgg.kernel import compile as kernels


def report() -> dict[str, Any]:
    """Return facts about the machine and, for each backend, whether it works or what is missing."""
    machine = this_machine()
    return {
        "cpu": f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.1f} GiB",
        "cores": cores.described(platform.node()),
        "system": machine.system,
        "ranks in this job": job_size() or "none: not started by mpiexec or srun",
        "MGG_DATA_DIR": os.environ.get("MGG_DATA_DIR", "not set: data sets come from the cache or the network"),
        "backend simulated": "works",
        "backend mpi": _mpi(),
        "backend nvshmem": _nvshmem(),
        "NCCL": _nccl(),
        **_gpus(),
        **_kernels(),
        "launcher": shutil.which("mpiexec") or shutil.which("srun") or "neither mpiexec nor srun is on PATH",
        "versions": ", ".join(f"{name} {version}" for name, version in these_versions().items()),
    }


def _mpi() -> str:
    try:
        mpi = importlib.import_module("mgg.backend.mpi")
    except MachineError as error:
        return f"missing: {error}"
    except (ImportError, RuntimeError) as error:
        return f"missing: {error}; pip install mpi4py mpich, or load your MPI module"
    return f"works: {' '.join(mpi.library().split())}"


def _nvshmem() -> str:
    try:
        nvshmem = importlib.import_module("mgg.backend.nvshmem")
    except (ImportError, RuntimeError) as error:
        return f"missing: {error}; pip install 'mgg[gpu]'"
    lack = nvshmem.missing()
    if lack:
        return f"missing: {lack}"
    settings = nvshmem.SETTINGS | nvshmem.ONE_HOST_SETTINGS
    set_to = " ".join(f"{name}={os.environ.get(name, value)}" for name, value in settings.items())
    return f"works: NVSHMEM {nvshmem.library_version()}, {set_to}"


def _nccl() -> str:
    try:
        nccl = importlib.import_module("mgg.backend.gpu.nccl")
        lack = nccl.missing()
    except (ImportError, RuntimeError) as error:
        return f"missing: {error}; pip install 'mgg[gpu]'"
    users = "ring, the broadcasts and all-to-all lookups"
    return f"{lack}; {users} need it on several GPUs" if lack else f"works: NCCL {nccl.version()}"


def _gpus() -> dict[str, str]:
    """Return the driver and one line per GPU: its model, the GPUs that it addresses, and their links."""
    try:
        gpu = importlib.import_module("mgg.backend.gpu")
        lines = gpu.describe()
    except ImportError as error:
        here = _of_the_driver()
        lack = f": the driver has {here}, and CuPy is missing ({' '.join(str(error).split())}); pip install 'mgg[gpu]'"
        return {"GPUs": f"none to use{lack if here else ''}"}
    except RuntimeError:
        return {"GPUs": "none to use"}
    links = parse_links(topology.matrix())
    found = {f"GPU {number}": line + links.get(number, "") for number, line in enumerate(lines)}
    return {"GPUs": f"{len(lines)}, driver: {gpu.driver()}"} | found


def _of_the_driver() -> int:
    """Return the number of GPUs that the NVIDIA driver offers this process, without CuPy."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    return 0 if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) else count.value


def parse_links(matrix: str) -> dict[int, str]:
    """Return a phrase of ``doctor`` per GPU from the matrix that ``nvidia-smi topo -m`` prints."""
    rows = topology.connections(matrix)
    return {number: f", links {' '.join(words)}" for number, words in rows.items()} if len(rows) > 1 else {}


def _kernels() -> dict[str, str]:
    """Return the compiler of kernels and the folder of their cache."""
    try:
        nvcc = kernels.find_nvcc()
        compiler = f"{nvcc}, {kernels.nvcc_version(nvcc)}"
    except MachineError as error:
        compiler = f"missing: {error}"
    cache = kernels.cache_folder()
    return {
        "nvcc": compiler,
        "NVSHMEM for kernels": _device_library(),
        "kernel cache": f"{cache}, {len(list(cache.glob('*.cubin')))} cubins",
    }


def _device_library() -> str:
    """Return the library that kernels that call NVSHMEM are linked with."""
    folder = kernels.nvshmem_folder()
    if folder is None:
        return (
            "missing: pip install 'mgg[kernels]', or set NVSHMEM_HOME; option primitive of mgg and technique direct"
            " call it"
        )
    try:
        return f"{kernels.device_library(_host_library())}, {kernels.nvshmem_version(folder)}"
    except MachineError as error:
        return f"unusable: {error}"


def _host_library() -> str | None:
    """Return the version of the NVSHMEM that PEs start; None if it is not installed."""
    try:
        version: str = importlib.import_module("mgg.backend.nvshmem").library_version()
    except (ImportError, RuntimeError, OSError):
        return None
    return version
