"""compute-sanitizer finds no error in any kernel: no access out of bounds, no race in shared memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.ranks import mpiexec

from mgg.graph.csr import from_arcs

PROGRAM = str(Path(__file__).parents[1] / "support" / "programs" / "sanitized_program.py")
PATHS = [os.environ.get("PATH", ""), f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin", "/usr/local/cuda/bin"]
SANITIZER = shutil.which("compute-sanitizer", path=os.pathsep.join(PATHS))
ERROR_CODE = 9
TOOLS = ["memcheck", "racecheck"]

pytestmark = [
    pytest.mark.gpu(share="never"),  # compute-sanitizer watches nothing under CUDA MPS
    pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer, a part of the CUDA toolkit, is not on PATH"),
]

#: An access past the end of the array, and a race between the threads of a block.
PLANTED = """
import cupy as cp
code = '''extern "C" __global__ void planted(float *p, int n) {
    __shared__ volatile float all[64];
    all[threadIdx.x] = threadIdx.x;
    p[n - 1 + threadIdx.x] = all[63 - threadIdx.x];
}'''
cp.cuda.set_allocator(None)
values = cp.zeros(1000, cp.float32)
cp.RawKernel(code, "planted")((1,), (64,), (values, 1000))
cp.cuda.Device().synchronize()
"""


def checker(tool: str, *options: str) -> list[str]:
    """The command that runs the program after it, and exits with ERROR_CODE if it finds an error."""
    general = ["--error-exitcode", str(ERROR_CODE), "--launch-timeout", "120", "--target-processes", "application-only"]
    # CuPy reports failing API calls; the tool is here for kernels.
    api = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [str(SANITIZER), "--tool", tool, *general, *api, *options]


def layouts(folder: Path, pes: int = 2) -> list[str]:
    """Layouts of small graphs: weights, empty rows, no arcs, rows long enough to be cut, many arcs per row."""
    hub, all_nodes, none = np.full(3_000, 7), np.arange(3_000), np.array([], np.int64)
    graphs = [
        random_csr(200, 1_500, weighted=True),
        from_arcs(np.array([7, 7, 90]), np.array([90, 3, 90]), n=100),
        from_arcs(none, none, n=9),
        from_arcs(np.concatenate((hub, all_nodes)), np.concatenate((all_nodes, hub)), n=3_000),
        random_csr(100, 3_000),  # enough arcs for rows to be copied to aligned memory
    ]
    return [str(make_layout(folder / str(number), csr, pes)) for number, csr in enumerate(graphs)]


def assert_clean(done: subprocess.CompletedProcess, times: int = 1) -> None:
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-6_000:]
    assert done.stdout.count("ok\n") == times, output[-6_000:]
    clean = [line for line in output.splitlines() if "SUMMARY: 0 errors" in line or "SUMMARY: 0 hazards" in line]
    assert len(clean) == times, output[-6_000:]


@pytest.mark.parametrize("tool", TOOLS)
def test_kernels_are_clean(tmp_path, tool):
    done = mpiexec(1, [PROGRAM, "threads", *layouts(tmp_path)], under=checker(tool), timeout=540)  # racecheck: minutes
    assert_clean(done)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("pes", [1, 2])
def test_kernels_that_call_nvshmem_are_clean(tmp_path, tool, pes):
    """Only MGG's kernels are watched; those of NVSHMEM itself are left out."""
    under = checker(tool, "--kernel-name", "kernel_substring=mgg_")
    done = mpiexec(pes, [PROGRAM, "nvshmem", *layouts(tmp_path, pes)], under=under, timeout=540)  # racecheck: minutes
    assert_clean(done, times=pes)


@pytest.mark.gpu(2)
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("technique", ["halo", "cola", "mgg"])
def test_kernels_that_read_peer_memory_are_clean(tmp_path, technique, tool):
    """Only MGG's kernels, on two graphs: one with weights, one with rows that are cut."""
    # The substring matches both kernels of halo, which pull and which sum.
    under = checker(tool, "--kernel-name", f"kernel_substring={technique}")
    done = mpiexec(2, [PROGRAM, f"nvshmem:{technique}", *layouts(tmp_path)[::3]], under=under, timeout=540)
    assert_clean(done, times=2)


@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer_finds_a_planted_fault(tool):
    done = subprocess.run(
        [*checker(tool), sys.executable, "-c", PLANTED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == ERROR_CODE, done.stdout + done.stderr
