"""``mgg aggregate`` on the stand-ins, where every kernel that is asked for must be in the cache by then.

``python fake_gpu/run.py ahead_program.py ARGUMENTS``: those of ``mgg``. Kernels come from the code that launches them
on GPUs; they are launched in name alone, so products are not to be checked. An ``nvcc`` of the environment compiles.
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


class Asked:
    """A kernel."""

    max_threads_per_block, kernel = 256, SimpleNamespace(ptr=0)

    def __call__(self, *_, **__):
        pass


class Asking(CudaOperators):
    """What is asked for, and whether it is there."""

    def __init__(self):
        self.arch, self.dependents, self.processors = "sm_90", False, 4
        self.shared_memory = self._all_shared_memory = 228 << 10
        self._schedules = DeviceSchedules(None, self.processors)
        self.urgent = cp.cuda.Stream()

    def kernel(self, build, name):
        there = kernels.cubin_path(build, self.arch).exists()
        print(f"asked {there} {build.source} {name}", file=sys.stderr, flush=True)
        return Asked()


def bundled(_, indptr, *rest, **named):
    """The order of work, made on the host: the stand-in has not all of CuPy."""
    made = narrow_row_schedule.bundled(np, cp.asnumpy(indptr), *rest, **named)
    arrays = {name: cp.asarray(value) for name, value in vars(made).items() if isinstance(value, np.ndarray)}
    return replace(made, **arrays)


if __name__ == "__main__":
    cuda_schedule.bundled = bundled
    machines.FITTED.clear()  # GPUs of another kind, whose operators are measured
    rates.GPU_ROWS = 2**10
    nvshmem._operators = lambda core: Asking()
    threads._operators = Asking
    main()
