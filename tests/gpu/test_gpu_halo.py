"""Technique halo gives the same bits on every run, whichever PE is late and in whatever order rows arrive."""

import numpy as np
import pytest
from support.devices.gpus import PES
from support.graphs import make_layout
from support.ranks import succeeded

from mgg.graph.csr import from_arcs

pytestmark = pytest.mark.gpu(PES)

REPEATED_PRODUCTS = """
import sys
import numpy as np
from mgg import layout
from mgg.aggregate import oracle, prepare
from mgg.backend import job_size, launch

from mgg.kernel import cuda

if sys.argv[5] == "in turn":  # as before sm_90
    cuda.DEPENDENTS = 1000

def program(world):
    part, (runs, dtype) = layout.load(sys.argv[1], world.rank), (int(sys.argv[2]), sys.argv[3])
    plan = prepare("halo", world, part, "forward", 130, {"workgroup": int(sys.argv[4])}, dtype)
    different, wrong = 0, 0.0
    for dim in (130, 64, 16, 3):
        plan.write(dim, world.upload(oracle.embeddings(part.node_ids, dim)))
        first = world.download(plan(dim))
        wrong = max(wrong, oracle.reference(part, "forward", dim).error(first) / oracle.TOLERANCE[dtype])
        for _ in range(runs - 1):
            different += not np.array_equal(first, world.download(plan(dim)))
    plan.close()
    return sum(world.gather(different)), max(world.gather(wrong))

found, wrong = launch("nvshmem", job_size, program)[0]
print("runs that differ:", found, "within the tolerance:", wrong <= 1)
"""

#: Products after so many others that the launch numbers, or the counters of arrived rows, wrap around.
WRAPPED_NUMBERS = """
import gc
import sys
import cupy as cp
import numpy as np
from mgg import layout
from mgg.aggregate import oracle, prepare
from mgg.backend import job_size, launch
from mgg.kernel.cuda.halo import HaloKernel

def int32(address, count):
    memory = cp.cuda.UnownedMemory(int(address), 4 * count, None)
    return cp.ndarray(count, np.int32, cp.cuda.MemoryPointer(memory, 0))

def wrapped(number):
    return np.uint32(number % 2**32).astype(np.int32)

def program(world):
    part = layout.load(sys.argv[1], world.rank)
    plan = prepare("halo", world, part, "forward", 16, {"workgroup": world.size})
    [kernel] = [each for each in gc.get_objects() if isinstance(each, HaloKernel)]
    flags, warps = kernel._peers.flags[world.rank], kernel.warps
    different, one = 0, world.gather(warps)[0]  # PEs with larger halos may have more
    for past in (2**31 // one - 1, 2**31 - 2, 2**32 // one - 1, 2**32 - 2):
        kernel._numbers[:] = past
        kernel._pulled[:-1] = wrapped(past * warps)
        kernel._pulled[-1] = wrapped(past * kernel.blocks)
        int32(flags, 2 * world.size)[:] = wrapped(past)
        cp.cuda.get_current_stream().synchronize()
        world.barrier()
        for turn in range(4):
            # Other rows each time, so that leftovers of the previous product would show.
            rows = oracle.embeddings(part.node_ids, 16) * np.float32(turn + 1)
            plan.write(16, world.upload(rows))
            expected = oracle.reference(part, "forward", 16)
            different += not expected.error(world.download(plan(16)) / np.float32(turn + 1)) <= oracle.TOLERANCE["fp32"]
    plan.close()
    return sum(world.gather(different))

print("products that are wrong:", launch("nvshmem", job_size, program)[0])
"""


def test_launch_numbers_may_wrap_around(tmp_path):
    nodes, rng = 4_000, np.random.default_rng(3)
    graph = from_arcs(rng.integers(0, nodes, 80_000), rng.integers(0, nodes, 80_000), n=nodes)
    done = succeeded(PES, ["-c", WRAPPED_NUMBERS, str(make_layout(tmp_path, graph, PES))])
    assert "products that are wrong: 0" in done.stdout


@pytest.mark.parametrize("sums", ["beside", "in turn"])
@pytest.mark.parametrize("members", sorted({1, 2, PES}))
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_twenty_runs_give_the_same_bits(tmp_path, dtype, members, sums):
    """In one workgroup, and in several with puts between them; sums run beside the pull, or after it."""
    if PES % members:
        pytest.skip(f"{PES} PEs make no workgroups of {members}")
    # Two rows of 20,000 arcs, so that rows are cut.
    nodes, rng = 20_000, np.random.default_rng(3)
    hubs, everyone = np.repeat([5, nodes - 1], nodes), np.tile(np.arange(nodes), 2)
    rows, columns = (np.append(each, rng.integers(0, nodes, 200_000)) for each in (hubs, everyone))
    weights = rng.standard_normal(len(rows)).astype(np.float32)
    folder = make_layout(tmp_path, from_arcs(rows, columns, n=nodes, weights=weights), PES)
    done = succeeded(PES, ["-c", REPEATED_PRODUCTS, str(folder), "20", dtype, str(members), sums])
    assert "runs that differ: 0 within the tolerance: True" in done.stdout
