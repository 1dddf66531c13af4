"""The peak of GPU memory in records: symmetric arrays, CuPy's pools, and the pools of CUDA graphs."""

import pytest
from support.ranks import mpiexec
from support.ranks.ready import FAKE, ready

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

PROGRAM = """
import cupy
import numpy as np
from mgg.backend import nvshmem
from mgg.backend.machine.facts import job_fields

pooled = [1000]

class Pool:
    total_bytes = staticmethod(lambda: pooled[0])
    free_bytes = staticmethod(lambda: 0)

    def free_all_blocks(self):
        pooled[0] = 0

cupy.get_default_memory_pool = Pool

def program(world):
    world.measure_memory()
    base, peaks = world.peak_memory(), []
    first = world.symmetric(1000 * (1 + world.size))
    world.free(first)
    peaks.append(world.peak_memory() - base)
    pooled[0] = 50_000
    world.give_back()
    pooled[0] = 7
    peaks.append(world.peak_memory() - base)
    world.measure_memory()
    pooled[0] = 64
    peaks.append(world.peak_memory() - base)
    work = world.repeated(lambda given: (given * 2.0 + 1.0, None), 100_000)
    for _ in range(3):
        work.submit(np.zeros(100_000))
        work.result()
    work.release()
    peaks.append(world.peak_memory() - base > 800_000)
    pooled[0] = 10**9 * (1 + world.rank)
    print(peaks, job_fields(world)["gpu_memory"] - base, flush=True)

nvshmem.run(lambda: 2, program)
"""


def test_peak_gpu_memory_counts_heaps_pools_and_graphs():
    """Memory is already freed when each peak is read. Records have the peak of the PE with the highest."""
    done = mpiexec(2, [FAKE, "-c", PROGRAM], under=ready())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[12000, 50000, 64, True] 2000000000\n") == 2, done.stdout + done.stderr
