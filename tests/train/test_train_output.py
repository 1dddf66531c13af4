"""What is in the way of a run or of its checkpoints is found before anything is computed, and stays as it is."""

import re
from pathlib import Path

import pytest
from support.train_program import run

from mgg.errors import InputError
from mgg.train import Trainer

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 3, "settings": {"hidden": 8}}


@pytest.fixture
def no_training(monkeypatch):
    """Whoever makes a trainer fails."""
    monkeypatch.setattr(Trainer, "__init__", lambda *given, **options: pytest.fail("it began to train"))


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run.checkpoint", "run.checkpoint: exists and is not a folder; the checkpoints of this run go there"),
        ("run.checkpoint/mine.pt", "run.checkpoint/mine.pt: is no checkpoint, but the checkpoints of this run"),
        ("run.checkpoint/sub/epoch-000001.safetensors", "run.checkpoint/sub: is no checkpoint, but"),
        (
            "run.checkpoint/epoch-000001.safetensors/mine",
            "run.checkpoint/epoch-000001.safetensors: is no checkpoint, but",
        ),
        ("run/mine", "run: exists and is not an output of this command"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_what_is_in_the_way_is_named_and_stays(name, message, resume, layouts, tmp_path):
    mine = tmp_path / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("precious")
    with pytest.raises(InputError, match=f"^{tmp_path}/{message}"):
        run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=resume, **OPTIONS)
    assert mine.read_text() == "precious"


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("board", "lies"),
    [
        ("deep/run", "is {}/deep/run"),
        ("deep/run/tb", "lies in {}/deep/run"),
        ("deep/run.checkpoint", "is {}/deep/run.checkpoint"),
        ("deep/run.checkpoint/tb", "lies in {}/deep/run.checkpoint"),
        ("deep/link/tb", "lies in {}/deep/run"),
        ("deep/other/../run/tb", "lies in {}/deep/run"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_event_files_never_come_into_a_run(board, lies, resume, layouts, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/link").symlink_to("run")
    given = f"{tmp_path}/{board}"
    message = (
        f"--tensorboard {Path(given)}: {lies.format(tmp_path)}, which holds nothing but this run: choose a folder apart"
        f" from it, such as {tmp_path}/deep/run.tensorboard"
    )
    options = {**OPTIONS, "out": tmp_path / "deep/run", "tensorboard": Path(given), "resume": resume}
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        run("simulated", layouts("planted", 2), 2, **options)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["link"]


@pytest.mark.parametrize("board", ["run.tensorboard", "tb/deep", "runs", "run.checkpoints", "."])
def test_event_files_beside_a_run(board, layouts, tmp_path):
    pytest.importorskip("tensorboardX")
    options = {**OPTIONS, "out": tmp_path / "run", "tensorboard": tmp_path / board}
    run("simulated", layouts("planted", 1), 1, **options)
    assert (tmp_path / "run/run.json").is_file()
    assert len(list((tmp_path / board).glob("events.out.*"))) == 1


@pytest.mark.parametrize("checkpoint_every", [1e-9, 60.0])
@pytest.mark.usefixtures("no_training")
def test_a_folder_that_cannot_be_written(checkpoint_every, layouts, tmp_path):
    """Nobody, root included, makes files in /proc/self; below a file nobody makes any either."""
    (tmp_path / "file").touch()
    refused = {
        "/proc/self/run": "^/proc/.*/run: cannot be written: ",
        tmp_path / "file/run": f"^{tmp_path}/file: is not a folder, so {tmp_path}/file/run cannot be written$",
    }
    for out, message in refused.items():
        options = {**OPTIONS, "out": type(tmp_path)(out), "checkpoint_every": checkpoint_every}
        with pytest.raises(InputError, match=message):
            run("simulated", layouts("planted", 1), 1, **options)


def test_what_came_to_the_checkpoints_during_a_run_stays(layouts, tmp_path, monkeypatch):
    epoch, folder = Trainer.epoch, tmp_path / "run.checkpoint"

    def put_there(trainer, number):
        if number == 3:
            (folder / "mine.pt").write_text("precious")
        return epoch(trainer, number)

    monkeypatch.setattr(Trainer, "epoch", put_there)
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", checkpoint_every=1e-9, **OPTIONS)
    assert [path.name for path in folder.iterdir()] == ["mine.pt"]
    assert (tmp_path / "run/run.json").is_file()


def test_half_a_checkpoint_goes_with_the_others(layouts, tmp_path):
    """A process that is killed leaves one."""
    (tmp_path / "run.checkpoint").mkdir()
    (tmp_path / "run.checkpoint/epoch-000007.part").write_bytes(b"half of it")
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=True, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
