"""What is in the way of a run or of its checkpoints is found before anything is computed, and stays as it is."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.programs.train_program import run
from support.ranks import changed_environment

from mgg.errors import InputError
from mgg.train import Trainer
from mgg.train.run import lock

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 3, "settings": {"hidden": 8}}


@pytest.fixture
def no_training(monkeypatch):
    """Whoever makes a trainer fails."""
    monkeypatch.setattr(Trainer, "__init__", lambda *given, **options: pytest.fail("it began to train"))


@pytest.mark.parametrize(
    ("resume", "name", "message"),
    [
        (False, "run.checkpoint", "run.checkpoint: exists and is not a folder; the checkpoints of this run go there"),
        (True, "run.checkpoint/mine.pt", "run.checkpoint/mine.pt: is no checkpoint, but the checkpoints of this run"),
        (
            True, "run.checkpoint/epoch-000001.safetensors/mine",
            "run.checkpoint/epoch-000001.safetensors: is no checkpoint, but",
        ),
        (True, "run/mine", "run: exists and is not an output of this command"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_training")
def test_existing_path_is_named_and_kept(name, message, resume, layouts, tmp_path):
    mine = tmp_path / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("precious")
    with pytest.raises(InputError, match=f"^{tmp_path}/{message}"):
        run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=resume, **OPTIONS)
    assert mine.read_text() == "precious"


@pytest.mark.parametrize(
    ("board", "lies"),
    [
        ("deep/run", "is {}/deep/run"),
        ("deep/run.checkpoint/tb", "lies in {}/deep/run.checkpoint"),
        ("deep/link/tb", "lies in {}/deep/run"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_event_files_inside_a_run_are_refused(board, lies, layouts, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/link").symlink_to("run")
    given = f"{tmp_path}/{board}"
    message = (
        f"--tensorboard {Path(given)}: {lies.format(tmp_path)}, which holds nothing but this run: choose a folder apart"
        f" from it, such as {tmp_path}/deep/run.tensorboard"
    )
    options = {**OPTIONS, "out": tmp_path / "deep/run", "tensorboard": Path(given), "resume": True}
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        run("simulated", layouts("planted", 2), 2, **options)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["link"]


@pytest.mark.parametrize("board", ["run.checkpoints", "."])
def test_event_files_beside_a_run_are_written(board, layouts, tmp_path):
    pytest.importorskip("tensorboardX")
    options = {**OPTIONS, "out": tmp_path / "run", "tensorboard": tmp_path / board}
    run("simulated", layouts("planted", 1), 1, **options)
    assert (tmp_path / "run/run.json").is_file()
    assert len(list((tmp_path / board).glob("events.out.*"))) == 1


@pytest.mark.usefixtures("no_training")
def test_unwritable_output_folder_is_refused(layouts, tmp_path):
    """Nobody, root included, makes files in /proc/self; below a file nobody makes any either."""
    (tmp_path / "file").touch()
    refused = {
        "/proc/self/run": "^/proc/.*/run: cannot be written: ",
        tmp_path / "file/run": f"^{tmp_path}/file: is not a folder, so {tmp_path}/file/run cannot be written$",
    }
    for out, message in refused.items():
        with pytest.raises(InputError, match=message):
            run("simulated", layouts("planted", 1), 1, out=Path(out), **OPTIONS)


def test_foreign_files_among_the_checkpoints_are_kept(layouts, tmp_path, monkeypatch):
    epoch, folder = Trainer.epoch, tmp_path / "run.checkpoint"

    def put_there(trainer, number):
        if number == 3:
            (folder / "mine.pt").write_text("precious")
        return epoch(trainer, number)

    monkeypatch.setattr(Trainer, "epoch", put_there)
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", checkpoint_every=1e-9, **OPTIONS)
    assert [path.name for path in folder.iterdir()] == ["mine.pt"]
    assert (tmp_path / "run/run.json").is_file()


def test_partial_checkpoint_is_removed_with_the_others(layouts, tmp_path):
    """A process that is killed leaves one."""
    (tmp_path / "run.checkpoint").mkdir()
    (tmp_path / "run.checkpoint/epoch-000007.part").write_bytes(b"half of it")
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=True, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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
for _ in range(20):
    taken = RunLock(out)
    taken.take(1e6)
    os.close(os.open(out.with_name("mine"), os.O_CREAT | os.O_EXCL))
    out.with_name("mine").unlink()
    taken.free()
"""


def python(program, out, **more):
    return subprocess.Popen([sys.executable, "-c", program, str(out)], env=changed_environment({}), text=True, **more)


def test_second_training_of_a_run_is_refused(layouts, tmp_path, monkeypatch):
    out, folder = tmp_path / "run", layouts("planted", 2)
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    with python(HOLDS, out, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(InputError) as refused:
            run("simulated", folder, 2, out=out, resume=True, **OPTIONS)
        said = f"another training writes to {out} ({socket.gethostname()}, process {first.pid}): wait for it"
        assert str(refused.value).startswith(said)
        assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]
        first.kill()
    with pytest.raises(InputError, match="no_such"):  # an error leaves nothing
        run("simulated", folder, 2, out=out, **OPTIONS | {"technique": "no_such"})
    assert not [*tmp_path.iterdir()]
    run("simulated", folder, 2, out=out, resume=True, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with python(HOLDS, out, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        run("simulated", folder, 2, out=out, resume=True, **OPTIONS)  # a finished run takes no lock
        first.kill()


def test_training_waits_for_one_that_is_about_to_end(tmp_path):
    out = tmp_path / "run"
    with python(HOLDS, out, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        threading.Timer(0.5, first.stdin.close).start()
        second = lock.RunLock(out)
        second.take(45)
    second.free()
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_run_lock_has_one_holder(tmp_path):
    """Its file goes with each of them, and those that have opened it by then must not take it for the lock."""
    jobs = [python(CONTENDS, tmp_path / "run", stderr=subprocess.PIPE) for _ in range(3)]
    for job in jobs:
        errors = job.communicate(timeout=120)[1]
        assert job.returncode == 0, errors
    assert not [*tmp_path.iterdir()]


def test_file_system_without_locks_is_reported(layouts, tmp_path, monkeypatch, caplog):
    def none(handle, operation):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", none)
    run("simulated", layouts("planted", 2), 2, out=tmp_path / "run", **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert [text for text in caplog.messages if "lock" in text] == [
        f"{tmp_path}/.run.lock: cannot be locked (Operation not supported), so nothing keeps a second training of this"
        " run out"
    ]
