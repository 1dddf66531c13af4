"""A second training of the same run is refused, whatever became of the first."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
import threading

import pytest
from support.ranks import changed_environment
from support.stopped import BASE
from support.train_program import run

from mgg.errors import InputError
from mgg.train.run import lock

HOLDS = """
import sys
from pathlib import Path
from mgg.train.run.lock import RunLock
RunLock(Path(sys.argv[1])).take(45)
print("held", flush=True)
sys.stdin.read()
"""

#: Whoever holds the lock makes a file that must not be there yet.
CONTENDS = """
import os, sys
from pathlib import Path
from mgg.train.run import lock
from mgg.train.run.lock import RunLock
lock.PATIENCE, lock._NAP = 100, 1e-4
out = Path(sys.argv[1])
for _ in range(40):
    taken = RunLock(out)
    taken.take(1e6)
    os.close(os.open(out.with_name("mine"), os.O_CREAT | os.O_EXCL))
    out.with_name("mine").unlink()
    taken.free()
"""


def python(program, out, **more):
    return subprocess.Popen([sys.executable, "-c", program, str(out)], env=changed_environment({}), text=True, **more)


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_training_is_refused_until_the_first_has_ended(resume, layouts, tmp_path, monkeypatch):
    out, folder = tmp_path / "run", layouts("planted", 2)
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    with python(HOLDS, out, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(InputError) as refused:
            run("simulated", folder, 2, model="gcn", out=out, resume=resume, **BASE)
        said = f"another training writes to {out} ({socket.gethostname()}, process {first.pid}): wait for it"
        assert str(refused.value).startswith(said)
        assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]
        first.kill()
    run("simulated", folder, 2, model="gcn", out=out, resume=resume, **BASE)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_training_that_is_about_to_end_is_waited_for(tmp_path):
    out = tmp_path / "run"
    with python(HOLDS, out, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        threading.Timer(0.5, first.stdin.close).start()
        second = lock.RunLock(out)
        second.take(45)
    second.free()
    assert not [*tmp_path.iterdir()]


def test_one_at_a_time_holds_it(tmp_path):
    """Its file goes with each of them, and those that have opened it by then must not take it for the lock."""
    jobs = [python(CONTENDS, tmp_path / "run", stderr=subprocess.PIPE) for _ in range(3)]
    for job in jobs:
        errors = job.communicate(timeout=120)[1]
        assert job.returncode == 0, errors
    assert not [*tmp_path.iterdir()]


def test_a_run_that_ended_with_an_error_leaves_nothing(layouts, tmp_path):
    with pytest.raises(InputError, match="no_such"):
        run("simulated", layouts("planted", 2), 2, model="gcn", out=tmp_path / "run", **BASE | {"technique": "no_such"})
    assert not [*tmp_path.iterdir()]


def test_a_file_system_without_locks(layouts, tmp_path, monkeypatch, caplog):
    def none(handle, operation):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", none)
    run("simulated", layouts("planted", 2), 2, model="gcn", out=tmp_path / "run", **BASE)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert [text for text in caplog.messages if "lock" in text] == [
        f"{tmp_path}/.run.lock: cannot be locked (Operation not supported), so nothing keeps a second training of this"
        " run out"
    ]


def test_a_finished_run_takes_no_lock(layouts, tmp_path):
    out, folder = tmp_path / "run", layouts("planted", 2)
    run("simulated", folder, 2, model="gcn", out=out, **BASE)
    with python(HOLDS, out, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        run("simulated", folder, 2, model="gcn", out=out, resume=True, **BASE)
        first.kill()
