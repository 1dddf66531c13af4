"""``mgg`` on the stand-ins, which prints for each kernel that it requests whether it was compiled ahead.

``python fake_gpu/run.py ahead_program.py ARGUMENTS``: ARGUMENTS of ``mgg``. The code for GPUs requests the kernels, but
nothing runs, so products must not be checked. The ``nvcc`` of the environment compiles.
"""

import sys
from dataclasses import replace
from types import SimpleNamespace

import cupy as cp
import numpy as np

from mgg.backend import nvshmem, threads
from mgg.cli import main
from mgg.cost import machines, rates
from mgg.kernel import compile as kernels
from mgg.kernel import narrow_row_schedule
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda import schedule as cuda_schedule
from mgg.kernel.cuda.schedule import DeviceSchedules


class NoKernel:
    """A kernel whose launch does nothing."""

    max_threads_per_block, kernel = 256, SimpleNamespace(ptr=0)

    def __call__(self, *_, **__):
        pass


class LoggingOperators(CudaOperators):
    """Prints each kernel that is requested, and whether the cache has it."""

    def __init__(self):
        self.arch, self.dependents, self.processors = "sm_90", False, 4
        self.shared_memory = self._all_shared_memory = 228 << 10
        self._schedules = DeviceSchedules(None, self.processors)
        self.urgent = cp.cuda.Stream()

    def kernel(self, build, name):
        cached = kernels.cubin_path(build, self.arch).exists()
        print(f"asked {cached} {build.source} {name}", file=sys.stderr, flush=True)
        return NoKernel()


def bundled(_, indptr, *rest, **named):
    """The schedule, made on the host: the stand-in lacks some of CuPy."""
    schedule = narrow_row_schedule.bundled(np, cp.asnumpy(indptr), *rest, **named)
    arrays = {name: cp.asarray(value) for name, value in vars(schedule).items() if isinstance(value, np.ndarray)}
    return replace(schedule, **arrays)


if __name__ == "__main__":
    cuda_schedule.bundled = bundled
    machines.FITTED.clear()  # as on an unknown GPU, where operators are measured
    rates.GPU_ROWS = 2**10
    nvshmem._operators = lambda core: LoggingOperators()
    threads._operators = LoggingOperators
    main()
