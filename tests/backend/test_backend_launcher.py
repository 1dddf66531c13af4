"""A rank whose launcher is gone ends, also within MPI's start, and not with a script around it."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.ranks import _command, changed_environment

#: Rank 0 waits in MPI's start for rank 1, which never comes, and says so once it is watched.
WAITS_FOR_EVER = """
import os, signal, sys
here = sys.argv[1] + os.environ["PMI_RANK"]
open(here + ".pid", "w").write(str(os.getpid()))
os.dup2(os.open(here + ".told", os.O_WRONLY | os.O_CREAT), 2)
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


def wait_for(done, seconds: float = 120) -> None:
    last = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < last
        time.sleep(0.05)


def read(file: Path) -> int:
    return int(file.read_text()) if file.exists() and file.read_text() else 0


@pytest.mark.mpi
def test_rank_in_mpi_init_ends_with_its_launcher(tmp_path: Path):
    script = ["sh", "-c", f'"$@"; echo $? > {tmp_path}/$PMI_RANK.code', "sh"]
    job = subprocess.Popen(
        _command(2, ["-c", WAITS_FOR_EVER, f"{tmp_path}/"], script), env=changed_environment({}),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ranks: list[int] = []
    segment = Path()
    try:
        wait_for(lambda: read(tmp_path / "0.watched") and read(tmp_path / "1.pid"))
        ranks = [read(tmp_path / f"{rank}.pid") for rank in (0, 1)]
        maps = Path(f"/proc/{ranks[0]}/maps")
        wait_for(lambda: "/dev/shm/mpich_shm_" in maps.read_text())
        segment = Path(re.search(r"/dev/shm/mpich_shm_\S+", maps.read_text())[0])
        proxy = read(tmp_path / "0.watched")
        assert Path(f"/proc/{proxy}/comm").read_text() == "hydra_pmi_proxy\n"
        os.kill(proxy, signal.SIGKILL)
        wait_for(lambda: (tmp_path / "0.code").exists() and (tmp_path / "0.code").read_text())
        assert (tmp_path / "0.code").read_text() == "6\n"
        assert "what has started this rank (mpiexec, its proxy or srun) has ended" in (tmp_path / "0.told").read_text()
    finally:
        for pid in [*ranks, job.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait()
        if segment != Path():
            segment.unlink(missing_ok=True)  # which MPICH leaves where it is killed


def test_deadman_ends_with_the_watched_process():
    """Reaped or not, and also while nothing is counted."""
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
