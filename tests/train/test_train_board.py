"""TensorBoard event files: one scalar a field and epoch; without tensorboardX one line says how to get it."""

import importlib.util
import sys
import threading
import time
from pathlib import Path

import pytest
from support.train_program import run

from mgg.errors import InputError, MachineError
from mgg.train.progress.board import Board

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 3}
needs_tensorboardx = pytest.mark.skipif(
    importlib.util.find_spec("tensorboardX") is None, reason="tensorboardX is not installed"
)


def events_in(folder):
    """The events of the one file in ``folder``."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.iterdir()
    data, events = path.read_bytes(), []
    while data:  # length (8 bytes), its checksum (4), event, its checksum (4)
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events


@pytest.fixture
def full_disk(monkeypatch):
    """Every event file is on a disk without space."""
    disk = Path("/dev/full")
    monkeypatch.setattr("tensorboardX.record_writer.open_file", lambda path: disk.open("wb"))


def test_without_tensorboardx_the_message_says_how_to_get_it(layouts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MachineError, match=r"--tensorboard: .*pip install 'mgg\[tensorboard\]'"):
        run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", **OPTIONS)
    assert not (tmp_path / "board").exists()


@pytest.mark.parametrize("done", [0, 5])
@needs_tensorboardx
def test_what_earlier_files_have_beyond_is_forgotten(done, tmp_path):
    """That of an earlier run in the folder, too: a run that starts anew forgets all of it."""
    with Board(tmp_path, "accuracy", done):
        pass
    first, begin = events_in(tmp_path)
    assert (first.file_version, begin.session_log.status, begin.step) == ("brain.Event:2", 1, done + 1)


@needs_tensorboardx
def test_every_epoch_is_in_the_event_file(layouts, tmp_path):
    found = run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", phases=True, **OPTIONS)[0]
    scalars, begins = {}, []
    for event in events_in(tmp_path / "board"):
        begins += [event.step] if event.HasField("session_log") else []
        for value in event.summary.value:
            scalars[value.tag, event.step] = value.simple_value
    for epoch in found.epochs:
        assert scalars["loss/train", epoch.epoch] == pytest.approx(epoch.loss)
        assert scalars["accuracy/test", epoch.epoch] == pytest.approx(epoch.test_accuracy)
        assert scalars["seconds/aggregate", epoch.epoch] == pytest.approx(epoch.aggregate)
        assert scalars["loss/validation", epoch.epoch] == pytest.approx(epoch.validation_loss)
    assert len(scalars) == 3 * 10
    assert begins == [1]  # TensorBoard forgets what earlier files have from there on


@needs_tensorboardx
def test_the_first_epoch_shows_at_once(layouts, tmp_path):
    record = run("simulated", layouts("planted", 1), 1, **OPTIONS)[0].epochs[0]
    with Board(tmp_path / "board", "accuracy", 0) as board:
        board.write(record)
        end = time.monotonic() + 20
        while len(found := events_in(tmp_path / "board")) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert [event.step for event in found] == [0, 1, 1]


@pytest.mark.usefixtures("full_disk")
@needs_tensorboardx
def test_a_full_disk_does_not_stop_a_training(layouts, tmp_path, caplog, capfd):
    """It costs the events alone; more epochs than a queue would hold."""
    options = {**OPTIONS, "epochs": 15, "stall_after": 10.0, "out": tmp_path / "run"}
    result = run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", **options)[0]
    assert len(result.epochs) == 15
    assert (tmp_path / "run/run.json").is_file()
    said = f"{tmp_path}/board: cannot be written (No space left on device): the training goes on without TensorBoard's"
    assert [message for message in caplog.messages if "board" in message] == [f"{said} events"]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("full_disk")
@needs_tensorboardx
def test_a_disk_that_is_full_at_the_end_is_a_warning(tmp_path, caplog):
    threads = threading.active_count()
    with Board(tmp_path, "accuracy", 0):
        pass
    assert [record.message.split(":")[0] for record in caplog.records] == [str(tmp_path)]
    assert threading.active_count() == threads


@needs_tensorboardx
@pytest.mark.slow
def test_a_slow_disk_is_no_stall(layouts, tmp_path, monkeypatch):
    """Nobody waits for it before all epochs are done."""
    import tensorboardX

    flush = tensorboardX.RecordWriter.flush
    monkeypatch.setattr(tensorboardX.RecordWriter, "flush", lambda writer: (time.sleep(2), flush(writer)))
    options = {**OPTIONS, "stall_after": 0.5, "tensorboard": tmp_path / "board"}
    result = run("simulated", layouts("planted", 2), 2, **options)[0]
    assert len(events_in(tmp_path / "board")) == 2 + len(result.epochs)


@needs_tensorboardx
def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"^{tmp_path}/file/board: cannot be written: Not a directory$"):
        Board(tmp_path / "file/board", "accuracy", 0)
