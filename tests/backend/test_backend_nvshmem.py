"""The backend of GPUs on a host without any: stand-ins for CuPy and nvshmem4py, real ranks, real programs."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.ranks import mpiexec
from support.spmm_program import DIMS, products

from mgg.backend import simulated

SUPPORT = Path(__file__).parents[1] / "support"
FAKE = str(SUPPORT / "fake_gpu" / "run.py")

pytestmark = pytest.mark.mpi


def fails(code: str, ranks: int = 1, pes: int | None = None, **environment: str):
    """Standard output of ranks that print the error which ``code``, a program of ``world``, ends with."""
    program = (
        "import time\nfrom mgg.backend import nvshmem\nfrom mgg.errors import MggError\n"
        f"def program(world):\n    {code}\n"
        f"try:\n    nvshmem.run(lambda: {pes or ranks}, program, timeout=0.5)\n"
        "except MggError as error:\n    print(f'{type(error).__name__} {error.everywhere} {error};', flush=True)\n"
    )
    return mpiexec(ranks, [FAKE, "-c", program], **environment)


@pytest.mark.parametrize("pes", [1, 3])
def test_the_world_keeps_its_promises(pes):
    done = mpiexec(pes, [FAKE, str(SUPPORT / "world_program.py"), "nvshmem"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes
    assert "MPI4Py" not in done.stderr


def test_auto_takes_the_gpus():
    code = "from mgg.backend import launch\nprint(launch('auto', lambda: 2, lambda world: world.name)[0], flush=True)"
    assert mpiexec(2, [FAKE, "-c", code]).stdout.count("nvshmem") == 2
    assert mpiexec(2, [FAKE, "-c", code], FAKE_GPUS="1").stdout.count("mpi") == 2
    assert mpiexec(2, [FAKE, "-c", code], FAKE_GPUS="0").stdout.count("mpi") == 2


@pytest.mark.parametrize("pes", [1, 3])
def test_products_and_bytes_are_those_of_the_simulated_backend(tmp_path, pes):
    graphs = [awkward_graphs()[name] for name in ("weighted", "empty rows", "no arcs", "more PEs than nodes")]
    folders = [make_layout(tmp_path / str(number), csr, pes) for number, csr in enumerate(graphs)]
    done = mpiexec(pes, [FAKE, str(SUPPORT / "spmm_program.py"), "nvshmem", str(tmp_path), *map(str, folders)])
    assert done.returncode == 0, done.stderr
    for number, folder in enumerate(folders):
        moved = [{} for _ in range(pes)]
        expected = simulated.run(pes, lambda world: products(world, folder, DIMS, moved=moved[world.rank]))  # noqa: B023
        for pe in range(pes):
            found = dict(np.load(tmp_path / f"{number}-{pe}.npz"))
            assert found.keys() == expected[pe].keys()
            assert all(np.array_equal(found[key], expected[pe][key]) for key in found)
            assert json.loads((tmp_path / f"{number}-{pe}.json").read_text()) == moved[pe]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FAKE_GPUS": "0"}, "no GPU to use (cudaErrorNoDevice"),
        ({"FAKE_DRIVER": "0"}, "no GPU here: no NVIDIA driver"),
        ({"FAKE_DRIVER": "12040"}, "the NVIDIA driver supports CUDA 12.4 and CuPy needs 13.0"),
        ({"FAKE_GPUS": "1"}, "2 PEs and 1 GPUs: a PE needs a GPU of its own"),
        ({"FAKE_P2P": "0"}, "cannot address GPU"),
        ({"FAKE_FREE": "3000000"}, "needs 4000000 more bytes of GPU memory on each PE and 3000000 are left"),
        ({"FAKE_HEAP": "3000000"}, "set NVSHMEM_SYMMETRIC_SIZE to 4000016 or more"),
    ],
)
def test_what_is_missing_is_one_line_on_every_pe(environment, said):
    done = fails("world.symmetric(1_000_000)", 2, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("MachineError True ") == 2 and done.stdout.count(said) == 2, done.stdout


def test_other_ranks_than_pes_and_other_sizes_are_refused():
    assert fails("pass", 2, pes=3).stdout.count("InputError True this layout is for 3 PEs but the job has 2") == 2
    said = "the PEs ask for symmetric arrays of 40 to 80 bytes"
    assert fails("world.symmetric(10 + 10 * world.rank)", 2).stdout.count(said) == 2


def test_a_pe_that_stays_away_is_named():
    code = (
        "time.sleep(3 * (world.rank == 1)); world.barrier(); world.download(world.upload(__import__('numpy').ones(1)))"
    )
    done = fails(code, 3, FAKE_PATIENCE="0.3")
    assert done.stdout.count("PeError False PE 1 did not reach a barrier within 0.5 s") == 2, done.stdout + done.stderr


def test_a_signal_that_does_not_come_is_named():
    code = "world.rank or world.wait_signal(1); world.rank or world.download(world.upload(__import__('numpy').ones(1)))"
    done = fails(code, 2, FAKE_PATIENCE="0.3")
    assert "PeError False PE 0: waited 0.5 s for a signal from PE 1" in done.stdout


def test_a_blocked_host_does_not_keep_the_job():
    """The host waits where it cannot look at the clock, as in a call of CUDA that blocks."""
    waits = "world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)"
    code = f"from mgg.backend import nvshmem as n; n._GRACE = 0.1; {waits}"
    done = fails(code, 2, FAKE_PATIENCE="0.3")
    assert done.returncode == 6
    assert "mgg: PE 0: PE 0: waited 0.5 s for a signal from PE 1" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_the_error_says_what_to_install():
    code = (
        "from mgg.backend import launch\nfrom mgg.errors import MachineError\n"
        "try:\n    launch('nvshmem', lambda: 1, print)\nexcept MachineError as error:\n    print(error)\n"
    )
    assert "pip install mgg[gpu]" in mpiexec(1, ["-c", code]).stdout
