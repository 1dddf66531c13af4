"""The GPUs of this host, as tests see them."""

from __future__ import annotations

import importlib.util
import os

# Open MPI asks for this where a container's only user is root.
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
# It ties up to two ranks to a core each, the same in every job: threads of a rank and jobs beside it would starve.
os.environ.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")
os.environ.setdefault("PRTE_MCA_hwloc_default_binding_policy", "none")


def count() -> int:
    """GPUs that CuPy can use; 0 without CuPy or a driver."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def memory() -> int:
    """Bytes of memory of the first GPU."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"])


def architecture() -> str:
    """Of the first GPU, for example sm_90."""
    import cupy

    return f"sm_{cupy.cuda.Device(0).compute_capability}"


GPUS = count()


def taken(pes: int) -> int:
    """GPUs that so many PEs take: one each, or as many as they can share evenly."""
    return max((number for number in range(1, GPUS + 1) if pes % number == 0), default=0) if pes > GPUS else pes


#: PEs of tests that take all GPUs; where there is one, several PEs share it.
PES = GPUS if GPUS > 1 else 4
