"""The sign of life of a run's lock."""

import subprocess
import sys
import time
from pathlib import Path

BEATS = """
import sys, time
from mgg import heartbeat
heartbeat.PERIOD = 0.05
file = open(sys.argv[1], "r+")
over = heartbeat.beat(file, "process 1 on here")
if sys.argv[2:]:
    over.set()
print("beats", flush=True)
time.sleep(float(sys.argv[2]) if sys.argv[2:] else 60)
"""


def _beats(lock: Path, *seconds: str) -> subprocess.Popen[str]:
    lock.write_text("process 1 on here\n")
    command = [sys.executable, "-c", BEATS, str(lock), *seconds]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None and run.stdout.readline() == "beats\n"
    return run


def test_who_finds_another_ones_name_in_its_lock_ends(tmp_path: Path):
    run = _beats(tmp_path / "lock")
    time.sleep(0.5)
    assert run.poll() is None
    (tmp_path / "lock").write_text("process 2 on there\nSlurm run 7\n")
    _, told = run.communicate(timeout=30)
    assert run.returncode == 3
    assert told == "error: this run gave no sign for 180 s, and process 2 on there has taken its folder over\n"


def test_who_has_stopped_beating_looks_no_more(tmp_path: Path):
    run = _beats(tmp_path / "lock", "0.5")
    (tmp_path / "lock").write_text("")
    _, told = run.communicate(timeout=30)
    assert (run.returncode, told) == (0, "")
