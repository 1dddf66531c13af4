"""The same program on both backends: what World promises."""

import _thread
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.ranks import mpiexec
from support.world_program import program

from mgg.backend import simulated, together
from mgg.errors import InputError, PeError

SCRIPT = Path(__file__).parents[1] / "support" / "world_program.py"


@pytest.mark.parametrize("pes", [1, 2, 5])
def test_simulated(pes):
    assert simulated.run(pes, program) == ["ok"] * pes


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("shared", ["1", "0"], ids=["shared memory", "one-sided"])
@pytest.mark.parametrize("pes", [1, pytest.param(4, marks=pytest.mark.sentinel)])
def test_mpi(pes, shared):
    done = mpiexec(pes, [str(SCRIPT)], MGG_MPI_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes


def test_all_reduce_is_the_same_bits_on_every_pe_and_run():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 1000)).astype(np.float32)
    runs = [simulated.run(5, lambda world: world.all_reduce(values[world.rank])) for _ in range(3)]
    first = runs[0][0]
    assert all(np.array_equal(first, result) for run in runs for result in run)
    assert np.allclose(first, values.sum(axis=0), atol=1e-5)


def test_a_failing_pe_ends_the_others():
    def fails(world):
        if world.rank == 1:
            raise InputError("broken")
        world.barrier()

    with pytest.raises(InputError, match="broken"):
        simulated.run(3, fails)


def test_a_failing_pe_ends_one_that_waits_for_its_signal():
    def fails(world):
        if world.rank == 1:
            raise InputError("broken")
        world.wait_signal(1)

    with pytest.raises(InputError, match="broken"):
        simulated.run(2, fails)


def test_a_pe_that_stays_away_is_named_and_does_not_hang_the_others():
    never = threading.Event()

    def stalls(world):
        if world.rank == 1:
            never.wait()
        world.barrier()

    started = time.monotonic()
    with pytest.raises(PeError, match=r"^PE 1 did not reach a barrier within 0\.2 s"):
        simulated.run(3, stalls, timeout=0.2)
    assert time.monotonic() - started < 10
    never.set()


def test_a_pe_that_stays_away_from_its_team_is_named():
    def stalls(world):
        team = world.team([world.rank, 3 - world.rank][:: 1 if world.rank < 2 else -1])
        if world.rank:
            time.sleep(1)  # the other pair, too, which would wait for all in the end
        team.broadcast(np.zeros(2, np.float32), team.pes[0])

    with pytest.raises(PeError, match=r"^PE 3 did not reach a barrier within 0\.2 s"):
        simulated.run(4, stalls, timeout=0.2)


def test_a_failing_pe_ends_those_that_wait_in_teams():
    def fails(world):
        team = world.team([0, 1] if world.rank < 2 else [2])
        if world.rank == 2:
            raise InputError("broken")
        if world.rank == 0:
            team.broadcast(np.zeros(2, np.float32), 0)
        world.barrier()

    started = time.monotonic()
    with pytest.raises(InputError, match="broken"):
        simulated.run(3, fails)
    assert time.monotonic() - started < 10


def test_an_interrupted_caller_leaves_no_pe_behind():
    """Who catches it goes on, in a notebook, say."""
    threads = []

    def program(world):
        threads.append(threading.current_thread())
        world.watch(1.0)
        world.barrier()
        if world.rank == 0:
            _thread.interrupt_main()
        while True:
            world.barrier()
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        simulated.run(2, program)
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("teams", [[[0], [0, 1], [2]], [[0, 1], [1, 0], [2]], [[1], [1], [2]]])
def test_teams_that_do_not_agree_are_refused_everywhere(teams):
    def act(world):
        with pytest.raises(ValueError, match=r"PE [01] gave the team"):
            world.team(teams[world.rank])
        return "refused"

    assert simulated.run(3, act) == ["refused"] * 3


def test_a_missing_signal_is_a_time_out():
    with pytest.raises(PeError, match="PE 1"):
        simulated.run(2, lambda world: world.wait_signal(1) if world.rank == 0 else time.sleep(1), timeout=0.3)


@pytest.mark.slow
@pytest.mark.mpi
def test_the_start_of_mpi_is_bounded():
    """A rank that never comes leaves the others in MPI_Init, a native call."""
    code = (
        "import time\nfrom mgg.backend import api, job_rank, launch\napi.DEFAULT_TIMEOUT = 1.0\n"
        "if job_rank() == 1:\n    time.sleep(100)\n"
        "launch('auto', lambda: 2, print)\n"
    )
    done = mpiexec(2, ["-c", code], timeout=60)
    assert re.search(r"^mgg: PE 0 \(\S+\): MPI did not start within 1 s: another rank ", done.stderr, re.MULTILINE)
    assert done.returncode == 6 and not done.stdout


@pytest.mark.slow
@pytest.mark.mpi
def test_mpi_waits_are_bounded():
    code = (
        "from mpi4py import MPI\nfrom mgg.backend.mpi import MpiWorld\nfrom mgg.errors import PeError\n"
        "import sys, time\n"
        "world = MpiWorld(MPI.COMM_WORLD, timeout=0.5)\n"
        "if world.rank == 1:\n    time.sleep(2)\n    MPI.COMM_WORLD.Abort(6)\n"
        "try:\n    world.wait_signal(1)\nexcept PeError as error:\n    print(error, flush=True)\n    time.sleep(5)\n"
    )
    done = mpiexec(2, ["-c", code])
    assert "PE 0: waited 0.5 s for a signal from PE 1" in done.stdout
    assert done.returncode == 6


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("world.shift(values, values.copy(), 1)", "PE 0: waited 0.5 s for a shift from PE 1"),
        ("team.broadcast(values, 1)", "PE 0: waited 0.5 s for the broadcast of PE 1 to PEs 0, 1"),
        ("team.all_gather(values, np.zeros((2, 4), 'f'))", "PE 0: waited 0.5 s for the all-gather of PEs 0, 1"),
        ("team.reduce_scatter(values.reshape(2, 2), values[:2])", "waited 0.5 s for the reduce-scatter of PEs 0, 1"),
        ("world.exchange([0, 0])", "PE 1 did not reach a barrier within 0.5 s"),
    ],
)
def test_mpi_waits_of_collectives_are_bounded(call, said):
    code = (
        "from mpi4py import MPI\nimport numpy as np\nfrom mgg.backend.mpi import MpiWorld\n"
        "from mgg.errors import PeError\nimport sys, time\n"
        "world = MpiWorld(MPI.COMM_WORLD, timeout=0.5)\nvalues = np.zeros(4, 'f')\nteam = world.team([0, 1])\n"
        "if world.rank == 1:\n    time.sleep(2)\n    MPI.COMM_WORLD.Abort(6)\n"
        f"try:\n    {call}\nexcept PeError as error:\n    print(error, flush=True)\n    time.sleep(5)\n"
    )
    done = mpiexec(2, ["-c", code])
    assert said in done.stdout, done.stdout + done.stderr
    assert done.returncode == 6


@pytest.mark.slow
@pytest.mark.mpi
def test_an_error_of_every_pe_is_all_that_is_said():
    """UCX would warn of windows that are left."""
    code = (
        "import os, sys\nos.environ['MGG_MPI_SHARED_MEMORY'] = '0'\n"
        "import numpy as np\nfrom mgg.backend import launch\nfrom mgg.errors import InputError\n"
        "def program(world):\n    array = world.symmetric(64)\n"
        "    world.get_rows(array, 1 - world.rank, np.arange(2), np.empty((2, 8), 'f'))\n"
        "    raise InputError('odd').on_every_pe()\n"
        "try:\n    launch('mpi', lambda: 2, program)\nexcept InputError as error:\n    sys.exit(str(error))\n"
    )
    done = mpiexec(2, ["-c", code])
    assert done.returncode == 1 and done.stderr.split() == ["odd", "odd"]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("shared", "late"),
    [(True, "PE 2"), (False, "a PE of another host")],
)
def test_mpi_names_the_pe_that_stays_away(shared, late):
    code = (
        "from mpi4py import MPI\nfrom mgg.backend.mpi import MpiWorld\nfrom mgg.errors import PeError\n"
        "import sys, time\n"
        f"world = MpiWorld(MPI.COMM_WORLD, timeout=0.5, shared_memory={shared})\n"
        "world.barrier()\n"
        "if world.rank == 2:\n    time.sleep(3)\n    MPI.COMM_WORLD.Abort(6)\n"
        "try:\n    world.barrier()\n"
        "except PeError as error:\n    print(f'{error};', end='', flush=True)\n    time.sleep(5)\n"
    )
    done = mpiexec(3, ["-c", code])
    assert done.stdout.count(f"{late} did not reach a barrier within 0.5 s;") == 2, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.mpi
def test_too_little_shared_memory_is_said_before_it_kills():
    code = (
        "import os, types\nfrom mgg.backend import launch\nfrom mgg.errors import MachineError\n"
        "full = types.SimpleNamespace(f_bavail=10, f_frsize=4096)\n"
        "def program(world):\n"
        "    os.statvfs = lambda path: full\n"
        "    try:\n        world.symmetric(100_000)\n"
        "    except MachineError as error:\n        print(f'{error.everywhere} {error};', end='', flush=True)\n"
        "launch('mpi', lambda: 2, program)\n"
    )
    done = mpiexec(2, ["-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True /dev/shm has 40960 bytes left and the ranks of a host need 800000:") == 2


#: One rank may map two windows of 400 MB, its own and another's, and the other one may not.
LIMITED = (
    "import mmap, resource\nfrom mgg.backend import launch, mpi\nfrom mgg.errors import MachineError\n"
    "def program(world):\n"
    "    if world.rank == 1:\n"
    "        held = int(open('/proc/self/statm').read().split()[0]) * mmap.PAGESIZE\n"
    "        resource.setrlimit(resource.RLIMIT_AS, (held + 500_000_000,) * 2)\n"
    "    try:\n        world.symmetric(100_000_000)\n"
    "    except MachineError as error:\n"
    "        print(f'{world.rank} {error.everywhere} {error.exit_code} {error};', flush=True)\n"
    "        if not error.everywhere:\n            mpi.abort(error.exit_code)\n"
)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_window_that_cannot_be_mapped_is_said_on_every_pe():
    done = mpiexec(2, ["-c", f"{LIMITED}launch('mpi', lambda: 2, program)\n"], timeout=60)
    assert done.returncode == 0, done.stderr
    said = (
        "True 3 not enough memory: PE 1: 400000000 bytes for each of the 2 ranks of its host cannot be mapped: raise"
        " the limit (ulimit -v, or the job's), use more PEs or fewer columns;"
    )
    # Lines of two ranks may come without an end between them.
    assert sorted(re.findall(r"\d True [^;]*;", done.stdout)) == [f"{rank} {said}" for rank in range(2)]


@pytest.mark.slow
@pytest.mark.mpi
def test_a_window_that_mpi_refuses_ends_the_job():
    """What MPI needs beyond the window is not known before."""
    code = f"{LIMITED}mpi.mappable = lambda size: True\nlaunch('mpi', lambda: 2, program)\n"
    done = mpiexec(2, ["-c", code], timeout=60)
    assert done.returncode == 3, done.stderr
    assert "1 False 3 not enough memory: 400000000 bytes for each of the 2 ranks of its host cannot be" in done.stdout
    assert "fewer columns (MPI: " in done.stdout


@pytest.mark.slow
@pytest.mark.mpi
def test_an_error_of_one_pe_is_raised_on_all():
    code = (
        "from mgg.backend import launch, together\nfrom mgg.errors import InputError\n"
        "def act(world):\n    def fail():\n        if world.rank == 2: raise InputError('only there')\n"
        "    try:\n        together(world, fail)\n"
        "    except InputError as error:\n        print(f'{error} {error.everywhere};', end='', flush=True)\n"
        "launch('mpi', lambda: 3, act)\n"
    )
    done = mpiexec(3, ["-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("only there True;") == 3


def test_together_raises_the_error_of_the_lowest_pe():
    def act(world):
        def fail():
            if world.rank > 0:
                raise InputError(f"PE {world.rank}")

        with pytest.raises(InputError, match="PE 1"):
            together(world, fail)
        return together(world, lambda: world.rank)

    assert simulated.run(3, act) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("name", ["mpi", "auto"])
def test_another_number_of_ranks_than_pes_is_refused(name):
    code = (
        "from mgg.backend import launch\nfrom mgg.errors import InputError\n"
        f"try:\n    launch({name!r}, lambda: 4, print)\nexcept InputError as error:\n    print(error)\n"
    )
    done = mpiexec(2, ["-c", code])
    assert done.stdout.count("for 4 PEs but the job has 2") == 2


@pytest.mark.slow
@pytest.mark.mpi
def test_simulated_under_mpiexec_is_refused():
    code = (
        "from mgg.backend import launch\nfrom mgg.errors import InputError\n"
        "try:\n    launch('simulated', lambda: 2, print)\nexcept InputError as error:\n    print(error)\n"
    )
    assert mpiexec(2, ["-c", code]).stdout.count("without mpiexec") == 2


def test_importing_the_backends_starts_no_mpi():
    code = "import sys, mgg.backend, mgg.backend.simulated; sys.exit('mpi4py.MPI' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
