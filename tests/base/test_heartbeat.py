"""The sign of life of a run's lock."""

import subprocess
import sys
import time

import pytest

BEATS = """
import sys, time
from mgg import heartbeat
heartbeat.PERIOD = 0.02
over = heartbeat.beat(open(sys.argv[1], "r+"), "process 1 on here")
if sys.argv[2] == "stops":
    over.set()
print("beats", flush=True)
time.sleep(0.2 if sys.argv[2] == "stops" else 60)
"""
TAKEN = "error: this run gave no sign for 180 s, and process 2 on there has taken its folder over\n"


@pytest.mark.parametrize(("goes", "code", "message"), [("on", 3, TAKEN), ("stops", 0, "")])
def test_process_that_lost_its_lock_ends(tmp_path, goes, code, message):
    """As long as it beats."""
    lock = tmp_path / "lock"
    lock.write_text("process 1 on here\n")
    command = [sys.executable, "-c", BEATS, str(lock), goes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "beats\n"
        time.sleep(0.1)
        assert run.poll() is None
        lock.write_text("process 2 on there\nSlurm run 7\n")
        assert (run.communicate(timeout=30)[1], run.returncode) == (message, code)
