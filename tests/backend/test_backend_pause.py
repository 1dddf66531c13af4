"""Paused jobs: time limits of waits count only the time in which the waiting process is awake."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from support.ranks import changed_environment, mpi_command, mpiexec
from support.ranks.ready import ready

from mgg.backend import watchdog
from mgg.cli import group

#: Seconds: PE 0 waits at a barrier and PE 2 for a signal while PE 1 stays away, the job paused for longer than LIMIT.
LIMIT, PAUSE = 4.0, 5.0
PROGRAM = """
import os, sys, time
from pathlib import Path
from mgg.backend import launch
here = Path(sys.argv[2])
def program(world):
    world.limit_waits(float(sys.argv[3]))
    world.barrier()
    if world.rank == 1:
        while not (here / "go").exists():
            time.sleep(0.02)
        world.signal(2)
    else:
        (here / f"pid{world.rank}").write_text(str(os.getpid()))
    if world.rank == 2:
        world.wait_signal(1)
    world.barrier()
launch(sys.argv[1], lambda: 3, program)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_paused_jobs_continue(tmp_path):
    """PEs as threads and as MPI ranks, both jobs paused at the same time."""
    jobs, files = {}, []
    for backend in ("simulated", "mpi"):
        here = tmp_path / backend
        here.mkdir()
        arguments = ["-c", PROGRAM, backend, str(here), str(LIMIT)]
        command = [sys.executable, *arguments] if backend == "simulated" else mpi_command(3, arguments)
        jobs[here] = subprocess.Popen(command, env=changed_environment({}), stderr=subprocess.PIPE, text=True)
        files += [here / "pid0", here / "pid2"]
    try:
        deadline = time.monotonic() + 120
        while not all(file.exists() and file.read_text() for file in files):
            assert all(job.poll() is None for job in jobs.values()) and time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)  # until they wait
        waiting = {int(file.read_text()) for file in files}
        for process in waiting:
            os.kill(process, signal.SIGSTOP)
        time.sleep(PAUSE)
        for process in waiting:
            os.kill(process, signal.SIGCONT)
        time.sleep(0.5)  # until they check their limits
        for here in jobs:
            (here / "go").touch()
        errors = [job.communicate(timeout=120)[1] for job in jobs.values()]
    finally:
        for job in jobs.values():
            job.kill()
    assert [job.returncode for job in jobs.values()] == [0, 0], errors


def test_wait_limit_counts_time_awake_only(monkeypatch):
    """Polls a hundredth of a second apart, with a pause of an hour before the third."""
    times = iter([0.0, 0.0, 0.01, 0.02, 3600.0, 3600.01, 3600.02])
    monkeypatch.setattr(watchdog, "awake", watchdog.AwakeClock(lambda: next(times)))
    conditions, waited = iter([False] * 5 + [True]), []
    watchdog.poll(lambda: next(conditions), waited.append)
    assert waited == pytest.approx([0.01, 0.02, 0.52, 0.53, 0.54])


def test_threads_share_one_awake_clock():
    """A thread that reads it rarely sees the time that others counted meanwhile."""
    times = iter([0.0] + [0.25 * step for step in range(9)])
    clock = watchdog.AwakeClock(lambda: next(times))
    readings = [clock() for _ in range(9)]
    assert readings[-1] - readings[0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("PE 1: waited 45 s for a signal", "mgg: PE 1: waited 45 s for a signal"),
        ("PE 1 (epoch 3, loss): its GPU did not finish", "mgg: PE 1 (epoch 3, loss): its GPU did not finish"),
        ("PE 12: waited 45 s", "mgg: PE 1: PE 12: waited 45 s"),
        ("PE 0 did not reach a barrier", "mgg: PE 1: PE 0 did not reach a barrier"),
    ],
)
def test_error_names_its_pe_once(message, line, monkeypatch, capsys):
    monkeypatch.setattr("mgg.backend.mpi_runs", lambda: True)
    monkeypatch.setattr("mgg.backend.job_rank", lambda: 1)
    monkeypatch.setattr("mgg.backend.abort_job", lambda code: None)
    group._fail(message, 6, everywhere=False)
    assert capsys.readouterr().err == f"{line}\n"


def test_wait_yields_first_and_then_sleeps_longer(monkeypatch: pytest.MonkeyPatch):
    """Endless yields, or the shortest sleeps that the kernel has, would starve other processes."""
    clock, yields, naps = [0.0], [], []

    def advance(seconds: float, record: list[float]) -> None:
        record.append(clock[0])
        clock[0] += seconds

    monkeypatch.setattr(watchdog, "awake", watchdog.AwakeClock(lambda: clock[0]))
    monkeypatch.setattr(watchdog.os, "sched_yield", lambda: advance(1e-4, yields))
    monkeypatch.setattr(watchdog.time, "sleep", lambda seconds: advance(seconds, naps))
    watchdog.poll(lambda: clock[0] > 20, lambda waited: None)
    assert 0 < len(yields) <= 21 and max(yields) < watchdog.PATIENCE
    lengths = [after - before for before, after in pairwise([*naps, clock[0]])]
    assert lengths[0] == pytest.approx(watchdog.SHORTEST_NAP) and max(lengths) == pytest.approx(watchdog.LONGEST_NAP)
    assert all(length < 110e-6 for nap, length in zip(naps, lengths, strict=True) if nap < 1)


@pytest.mark.mpi
def test_mpich_sleeps_in_its_waits():
    """Otherwise MPICH's collectives and one-sided operations call sched_yield in a loop."""
    code = (
        "import os, resource, time\nfrom mgg.backend.mpi_start import MPI\n"
        "assert MPI.Query_thread() == MPI.THREAD_SERIALIZED and os.environ['MPIR_CVAR_ENABLE_HEAVY_YIELD'] == '1'\n"
        "world = MPI.COMM_WORLD\nworld.Barrier()\n"
        "if world.rank:\n    time.sleep(0.5)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw\nworld.Barrier()\n"
        "slept = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before\n"
        "assert world.rank or slept > 20, slept\n"
    )
    done = mpiexec(2, ["-c", code], under=ready(gpus=False))
    assert done.returncode == 0, done.stderr
