"""A rank ends when its launcher has ended, also during MPI_Init, but not when a script around it has."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.ranks import changed_environment, mpi_command

#: Rank 0 waits in MPI_Init for rank 1, which never gets there, and writes a file once the watchdog has begun.
WAITS_IN_MPI_INIT = """
import os, signal, sys
here = sys.argv[1] + os.environ["PMI_RANK"]
open(here + ".pid", "w").write(str(os.getpid()))
os.dup2(os.open(here + ".err", os.O_WRONLY | os.O_CREAT), 2)
if os.environ["PMI_RANK"] == "1":
    signal.pause()
from mgg.backend.watchdog import Deadman
watch = Deadman.__init__
def init(self, *values, **options):
    watch(self, *values, **options)
    open(here + ".watched", "w").write(str(options["other"]))
Deadman.__init__ = init
from mgg.backend import mpi_start
"""


def wait_for(condition, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_number(file: Path) -> int:
    return int(file.read_text()) if file.exists() and file.read_text() else 0


@pytest.mark.mpi
def test_rank_in_mpi_init_ends_with_its_launcher(tmp_path: Path):
    script = ["sh", "-c", f'"$@"; echo $? > {tmp_path}/$PMI_RANK.code', "sh"]
    job = subprocess.Popen(
        mpi_command(2, ["-c", WAITS_IN_MPI_INIT, f"{tmp_path}/"], script), env=changed_environment({}),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ranks: list[int] = []
    segment = Path()
    try:
        wait_for(lambda: read_number(tmp_path / "0.watched") and read_number(tmp_path / "1.pid"))
        ranks = [read_number(tmp_path / f"{rank}.pid") for rank in (0, 1)]
        maps = Path(f"/proc/{ranks[0]}/maps")
        wait_for(lambda: "/dev/shm/mpich_shm_" in maps.read_text())
        segment = Path(re.search(r"/dev/shm/mpich_shm_\S+", maps.read_text())[0])
        proxy = read_number(tmp_path / "0.watched")
        assert Path(f"/proc/{proxy}/comm").read_text() == "hydra_pmi_proxy\n"
        os.kill(proxy, signal.SIGKILL)
        wait_for(lambda: (tmp_path / "0.code").exists() and (tmp_path / "0.code").read_text())
        assert (tmp_path / "0.code").read_text() == "6\n"
        assert "what has started this rank (mpiexec, its proxy or srun) has ended" in (tmp_path / "0.err").read_text()
    finally:
        for pid in [*ranks, job.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait()
        if segment != Path():
            segment.unlink(missing_ok=True)  # MPICH leaves it behind when it is killed


def test_deadman_ends_with_the_watched_process():
    """Whether the watched process is reaped or not, and also while no wait is timed."""
    program = (
        "import subprocess, sys, time; from mgg.backend.watchdog import Deadman\n"
        "other = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "Deadman(600, 6, 'late', 0.05, other=other.pid, gone='the other one has ended').rest()\n"
        "other.stdin.close()\n"
        "if sys.argv[1] == 'reaped': other.wait()\n"
        "time.sleep(600)"
    )
    for how in ("reaped", "left"):
        done = subprocess.run(
            [sys.executable, "-c", program, how], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (6, "the other one has ended\n")
