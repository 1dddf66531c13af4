"""One program on the simulated and the mpi backend checks every method of World."""

import _thread
import re
import subprocess
import sys
import threading
import time
from textwrap import indent

import numpy as np
import pytest
from support.programs import world_program
from support.ranks import mpiexec
from support.ranks.ready import ready

from mgg.backend import simulated, together
from mgg.errors import InputError, PeError


@pytest.mark.parametrize("pes", [1, 5])
def test_world_methods_on_simulated_backend(pes):
    assert simulated.run(pes, world_program.program) == ["ok"] * pes


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("pes", "shared"), [(1, "1"), *(pytest.param(4, each, marks=pytest.mark.sentinel) for each in "10")]
)
def test_world_methods_on_mpi_backend(pes, shared):
    """With shared memory, and with one-sided operations of MPI."""
    done = mpiexec(pes, [world_program.__file__], under=ready(gpus=False), MGG_MPI_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes


def test_all_reduce_has_the_same_bits_on_every_pe_and_run():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 1000)).astype(np.float32)
    runs = [simulated.run(5, lambda world: world.all_reduce(values[world.rank])) for _ in range(3)]
    first = runs[0][0]
    assert all(np.array_equal(first, result) for run in runs for result in run)
    assert np.allclose(first, values.sum(axis=0), atol=1e-5)


@pytest.fixture
def end_of_test(monkeypatch):
    """An event that an absent PE waits for."""
    monkeypatch.setattr(simulated, "_GRACE", 0.1)
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize(
    "waits",
    [
        lambda world, team: world.barrier(),
        lambda world, team: world.wait_signal(2),
        lambda world, team: world.rank or team.broadcast(np.zeros(2, np.float32), 0),
    ],
    ids=["barrier", "signal", "team"],
)
def test_failing_pe_ends_waiting_pes(waits):
    def fails(world):
        team = world.team([0, 1] if world.rank < 2 else [2])
        if world.rank == 2:
            raise InputError("broken")
        waits(world, team)
        world.barrier()

    started = time.monotonic()
    with pytest.raises(InputError, match="broken"):
        simulated.run(3, fails)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("waits", "message"),
    [
        (lambda world: world.barrier(), r"^PE 1 did not reach a barrier within 0\.2 s"),
        (lambda world: world.wait_signal(1), r"^PE [02]: no signal from PE 1 within 0\.2 s"),
    ],
)
def test_absent_pe_is_named_and_does_not_hang_the_others(waits, message, end_of_test):
    started = time.monotonic()
    with pytest.raises(PeError, match=message):
        simulated.run(3, lambda world: end_of_test.wait() if world.rank == 1 else waits(world), timeout=0.2)
    assert time.monotonic() - started < 10


def test_pe_absent_from_its_team_is_named(end_of_test):
    def stalls(world):
        team = world.team([world.rank, 3 - world.rank][:: 1 if world.rank < 2 else -1])
        if world.rank:
            end_of_test.wait()  # the other pair, too: otherwise it would wait for all PEs at the end
        team.broadcast(np.zeros(2, np.float32), team.pes[0])

    with pytest.raises(PeError, match=r"^PE 3 did not reach a barrier within 0\.2 s"):
        simulated.run(4, stalls, timeout=0.2)


def test_interrupt_leaves_no_thread_of_a_pe():
    """A caller that catches it, such as a notebook, goes on without threads left behind."""
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
def test_inconsistent_teams_are_refused_on_every_pe(teams):
    def act(world):
        with pytest.raises(ValueError, match=r"PE [01] gave the team"):
            world.team(teams[world.rank])
        return "refused"

    assert simulated.run(3, act) == ["refused"] * 3


def test_together_raises_the_error_of_the_lowest_pe():
    def act(world):
        def fail():
            if world.rank > 0:
                raise InputError(f"PE {world.rank}")

        with pytest.raises(InputError, match="PE 1"):
            together(world, fail)
        return together(world, lambda: world.rank)

    assert simulated.run(3, act) == [0, 1, 2]


def on_ranks(ranks: int, code: str, forks: bool = True, **environment: str):
    return mpiexec(ranks, ["-c", code], timeout=60, under=ready(gpus=False) if forks else (), **environment)


@pytest.mark.slow
@pytest.mark.mpi
def test_mpi_init_has_a_time_limit():
    """If a rank never gets there, the others stay in MPI_Init, a native call."""
    code = (
        "import time\nfrom mgg.backend import api, job_rank, launch\napi.DEFAULT_TIMEOUT = 1.0\n"
        "if job_rank() == 1:\n    time.sleep(100)\n"
        "launch('auto', lambda: 2, print)\n"
    )
    done = on_ranks(2, code, forks=False)
    assert re.search(r"^mgg: PE 0 \(\S+\): MPI did not start within 1 s: another rank ", done.stderr, re.MULTILINE)
    assert done.returncode == 6 and not done.stdout


#: The call in which PE 0 waits for PE 1 -> the error.
WAITS = {
    "world.wait_signal(1)": "waited 0.2 s for a signal from PE 1",
    "world.shift(values, values.copy(), 1)": "waited 0.2 s for a shift from PE 1",
    "team.broadcast(values, 1)": "waited 0.2 s for the broadcast of PE 1 to PEs 0, 1",
    "team.all_gather(values, np.zeros((2, 4), 'f'))": "waited 0.2 s for the all-gather of PEs 0, 1",
    "team.reduce_scatter(values.reshape(2, 2), values[:2])": "waited 0.2 s for the reduce-scatter of PEs 0, 1",
    "world.exchange([0, 0])": "PE 1 did not reach a barrier within 0.2 s",
}


@pytest.mark.slow
@pytest.mark.mpi
def test_mpi_waits_have_a_time_limit():
    code = f"""
import time
import numpy as np
from mpi4py import MPI
from mgg.backend.mpi import MpiWorld
from mgg.errors import PeError
world = MpiWorld(MPI.COMM_WORLD)
values, team = np.zeros(4, "f"), world.team([0, 1])
world.limit_waits(0.2)
if world.rank == 1:
    time.sleep(50)
for wait in {list(WAITS)}:
    try:
        exec(wait)
    except PeError as error:
        print(wait, error, flush=True)
time.sleep(0.5)
MPI.COMM_WORLD.Abort(6)
"""
    done = on_ranks(2, code)
    assert done.returncode == 6, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(WAITS), done.stdout + done.stderr
    for line, (wait, message) in zip(lines, WAITS.items(), strict=True):
        assert line.startswith(f"{wait} ") and message in line


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("shared", "absent"), [(True, "PE 2"), (False, "a PE of another host")])
def test_mpi_backend_names_the_absent_pe(shared, absent):
    code = (
        "from mpi4py import MPI\nfrom mgg.backend.mpi import MpiWorld\nfrom mgg.errors import PeError\n"
        "import sys, time\n"
        f"world = MpiWorld(MPI.COMM_WORLD, timeout=0.5, shared_memory={shared})\n"
        "world.barrier()\n"
        "if world.rank == 2:\n    time.sleep(2.5)\n    MPI.COMM_WORLD.Abort(6)\n"
        "try:\n    world.barrier()\n"
        "except PeError as error:\n    print(f'{error};', end='', flush=True)\n    time.sleep(5)\n"
    )
    done = on_ranks(3, code)
    assert done.stdout.count(f"{absent} did not reach a barrier within 0.5 s;") == 2, done.stdout + done.stderr


def run_code(ranks: int, code: str, before: str = "", backend: str = "mpi", pes: int | None = None, **environment: str):
    """Run ``code``, a program that uses ``world``; each rank prints the MggError that it raises."""
    program = f"""
import sys
import numpy as np
from mgg.backend import launch, mpi, together
from mgg.errors import InputError, MggError
{before}
def program(world):
{indent(code, "    ")}
try:
    launch({backend!r}, lambda: {pes or ranks}, program)
except MggError as error:
    sys.stdout.write(f"{{error.everywhere}} {{error.exit_code}} {{error}};\\n")
    sys.stdout.flush()
    if not error.everywhere:
        mpi.abort(error.exit_code)
"""
    return on_ranks(ranks, program, **environment)


#: Name -> ranks, code, options of ``run_code``, part of the error that every rank raises.
ERRORS = {
    "of one PE": (
        3, "def fail():\n    if world.rank == 2: raise InputError('only there')\ntogether(world, fail)", {},
        "True 2 only there;",
    ),
    "size of mpi": (2, "pass", {"pes": 4}, "True 2 this layout is for 4 PEs but the job has 2: start it with mpiexec"),
    "size of auto": (2, "pass", {"pes": 4, "backend": "auto"}, "for 4 PEs but the job has 2"),
    "simulated": (2, "pass", {"backend": "simulated"}, "start it without mpiexec"),
    "shared memory": (
        2,
        "import os, types\n"
        "os.statvfs = lambda path: types.SimpleNamespace(f_bavail=10, f_frsize=4096)\nworld.symmetric(100_000)",
        {},
        "True 3 /dev/shm has 40960 bytes left and the ranks of a host need 800000:",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("case", ERRORS)
def test_common_error_is_one_line_on_every_pe(case):
    ranks, code, options, message = ERRORS[case]
    done = run_code(ranks, code, **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(message) == ranks, done.stdout


@pytest.mark.slow
@pytest.mark.mpi
def test_common_error_is_the_only_output():
    """UCX would warn of windows that are not freed."""
    code = (
        "array = world.symmetric(64)\n"
        "world.get_rows(array, 1 - world.rank, np.arange(2), np.empty((2, 8), 'f'))\n"
        "raise InputError('odd').on_every_pe()"
    )
    done = run_code(2, code, MGG_MPI_SHARED_MEMORY="0")
    assert (done.returncode, done.stdout.count("True 2 odd;"), done.stderr) == (0, 2, "")


#: Rank 0 can map two windows of 400 MB, its own and rank 1's; the limit of rank 1 is too low for that.
LIMITED = """
import mmap, resource
if world.rank == 1:
    mapped = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 500_000_000,) * 2)
world.symmetric(100_000_000)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_unmappable_window_is_reported_on_every_pe():
    done = run_code(2, LIMITED)
    assert done.returncode == 0, done.stderr
    message = (
        "True 3 not enough memory: PE 1: 400000000 bytes for each of the 2 ranks of its host cannot be mapped: raise"
        " the limit (ulimit -v, or the job's), use more PEs or fewer columns;"
    )
    assert done.stdout.count(message) == 2, done.stdout


@pytest.mark.slow
@pytest.mark.mpi
def test_window_refused_by_mpi_ends_the_job():
    """How much MPI needs beyond the window is not known in advance."""
    done = run_code(2, LIMITED, before="mpi.mappable = lambda size: True")
    assert done.returncode == 3, done.stderr
    assert "False 3 not enough memory: 400000000 bytes for each of the 2 ranks of its host cannot be" in done.stdout
    assert "fewer columns (MPI: " in done.stdout


def test_import_of_backends_does_not_start_mpi():
    code = "import sys, mgg.backend, mgg.backend.simulated; sys.exit('mpi4py.MPI' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
