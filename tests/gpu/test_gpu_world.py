"""What World promises, on GPUs; and faults: one line, the right exit code, and no PE that hangs."""

import time
from pathlib import Path

import pytest
from support.gpus import GPUS
from support.ranks import mpiexec

SCRIPT = Path(__file__).parents[1] / "support" / "world_program.py"

pytestmark = pytest.mark.gpu


def fails(code: str, ranks: int):
    """Ranks that run ``code``, a program of ``world`` with waits of 3 s, and print the error that it ends with."""
    program = (
        "import time\nimport numpy as np\nfrom mgg.backend import nvshmem\nfrom mgg.errors import MggError\n"
        f"def program(world):\n    {code}\n"
        f"try:\n    nvshmem.run(lambda: {ranks}, program, timeout=3)\n"
        "except MggError as error:\n"
        "    print(f'{type(error).__name__} {error};', flush=True)\n"
        "    error.everywhere or nvshmem.abort(error.exit_code)\n"
    )
    started = time.monotonic()
    done = mpiexec(ranks, ["-c", program])
    assert time.monotonic() - started < 60
    return done


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_the_world_keeps_its_promises(pes):
    done = mpiexec(pes, [str(SCRIPT), "nvshmem"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes


def test_more_ranks_than_gpus_are_refused():
    done = fails("pass", GPUS + 1)
    assert done.stdout.count(f"MachineError {GPUS + 1} PEs and {GPUS} GPUs") == GPUS + 1


def test_too_large_an_array_is_refused_before_it_is_allocated():
    done = fails("world.symmetric(2**40)", 1)
    assert "MachineError PE 0: a symmetric array needs" in done.stdout


@pytest.mark.gpu(2)
def test_a_pe_that_stays_away_is_named():
    code = "time.sleep(20 * (world.rank == 1)); world.barrier(); world.download(world.upload(np.ones(1)))"
    done = fails(code, 2)
    assert "PeError PE 1 did not reach a barrier within 3 s" in done.stdout
    assert done.returncode == 6


@pytest.mark.gpu(2)
def test_a_blocked_host_does_not_keep_the_job():
    done = fails("world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)", 2)
    assert "PE 0: waited 3 s for a signal from PE 1" in done.stderr
    assert done.returncode == 6
