"""Run with the stand-ins: ``python run.py PROGRAM ARGUMENTS...``, ``-m MODULE ARGUMENTS...`` or ``-c CODE``."""

import os
import runpy
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

#: Of each thread what its clock said last, where the environment has FAKE_CLOCK: it goes on by 1 when it is read.
clocks = threading.local()


def read() -> float:
    """The clock of this thread."""
    clocks.now = getattr(clocks, "now", 0) + 1.0
    return clocks.now


if __name__ == "__main__":
    if "FAKE_CLOCK" in os.environ:
        time.perf_counter = read

    import platform
    from types import SimpleNamespace

    from blas import Library
    from launches import LaunchingOperators
    from mpi4py import MPI
    from nvshmem.core.types import host

    from mgg.backend import nvshmem, threads
    from mgg.kernel import compile as kernels
    from mgg.kernel.cuda import cublas

    nvshmem._operators = lambda core: LaunchingOperators()
    threads._operators = LaunchingOperators
    library = Library()
    cublas._library = lambda: library
    os.environ["NVSHMEM_HOME"] = os.environ.get("FAKE_NVSHMEM_HOME", str(Path(__file__).parent / "nvshmem"))
    if os.environ.get("FAKE_NVCC") == "0":
        kernels.shutil = SimpleNamespace(which=lambda *_, **__: None)
    elif "FAKE_NVCC" not in os.environ:
        nvshmem._check_compiler = lambda _: None  # g++ compiles what runs here
    platform.node = lambda: f"host-{host(MPI.COMM_WORLD.rank)}"
    if sys.argv[1] == "-c":
        exec(compile(sys.argv[2], "code", "exec"), {"__name__": "__main__"})  # noqa: S102
    elif sys.argv[1] == "-m":
        sys.argv = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
