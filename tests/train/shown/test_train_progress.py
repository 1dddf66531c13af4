"""What a running training shows: a line of a terminal, however narrow, and elsewhere lines now and then."""

import importlib.util
import io
import itertools
import re
import sys
import threading
import time
from pathlib import Path

import pytest
from support.programs.train_program import run

from mgg.errors import InputError, MachineError
from mgg.records import EpochRecord
from mgg.train.progress import SILENCE, reporting
from mgg.train.progress.board import Board

EARLY = "gcn on cora: stopped early, after epoch 47/1000, by the setting patience"


class Terminal(io.StringIO):
    """Standard error as a terminal has it."""

    def isatty(self):
        return True


class Clock:
    """The time of epochs that take what a test says."""

    now = 0.0

    def __call__(self):
        return self.now

    def epoch(self, number, seconds):
        self.now += seconds
        scores = {"train_accuracy": 1, "validation_accuracy": 0.788, "test_accuracy": 0.809}
        return EpochRecord(epoch=number, loss=1.0663, seconds=seconds, **scores)


def shown(epochs, last, seconds, metric="accuracy", title="gcn on cora"):
    """Train epochs up to ``last``, each of so many seconds."""
    clock = Clock()
    with reporting(title, epochs, 0, shown=True, metric=metric, clock=clock) as report:
        for number in range(1, last + 1):
            report(clock.epoch(number, seconds))


@pytest.fixture
def frames(monkeypatch):
    """What a terminal of so many columns shows, line by line."""

    def of(columns, *args, **kwargs):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stderr", Terminal())
        shown(*args, **kwargs)
        plain = re.sub(r"\x1b\[[\d;]*m", "", sys.stderr.getvalue())
        return [line.rstrip() for line in re.split(r"[\r\n]|\x1b\[[\d;?]*[a-zA-Z]", plain) if line.strip()]

    return of


@pytest.mark.parametrize(
    ("columns", "epochs", "metric"), [(80, 200_000, "micro_f1"), (80, 20, "accuracy"), (100, 1000, "micro_f1")]
)
def test_progress_line_fits_any_terminal_width(columns, epochs, metric, frames):
    found = frames(columns, epochs, 20, 0.125, metric=metric, title="gcn on ogbn-products")
    assert max(len(line) for line in found if "early" not in line) <= columns
    minutes, seconds = divmod(round((epochs - 20) * 0.125), 60)
    left = f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    (line,) = {line for line in found if f"20/{epochs} " in line}
    assert re.search(rf"20/{epochs} +loss 1\.0663 .*78\.8%,? test 80\.9% +0\.125 s/epoch +ETA {left}$", line)


@pytest.mark.parametrize(
    ("columns", "parts"), [(200, "tbm"), (120, "tbm"), (100, "tbm"), (95, "bm"), (80, "m"), (70, "")]
)
def test_narrow_terminal_drops_title_bar_then_metric(columns, parts, frames):
    """Title, bar, and the name of the metric."""
    line = frames(columns, 1000, 100, 0.125)[-2]
    assert [part in line for part in ("gcn on cora", "━", "accuracy")] == [part in parts for part in "tbm"], line


def test_progress_refreshes_ten_times_per_second_and_at_the_end(frames):
    found = [int(line.split("/")[0].split()[-1]) for line in frames(80, 1000, 256, 2**-6) if "loss" in line]
    assert found[0] == 7 and found[-1] == 256  # 7 / 64 seconds are the first that are 0.1 or more
    assert len(set(found)) == 256 // 7 + 1


def test_dumb_terminal_gets_one_line_per_report(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock = Clock()
    with reporting("gcn on cora", 10, 0, shown=True, clock=clock) as report:
        report(clock.epoch(1, 1.0))
        assert sys.stderr.getvalue().startswith("gcn on cora: epoch 1/10  loss 1.0663  ")
        report(clock.epoch(2, 1.0))
    assert len(sys.stderr.getvalue().splitlines()) == 3 and "\x1b" not in sys.stderr.getvalue()


def test_early_end_is_reported(frames):
    assert frames(80, 1000, 47, 1.0)[-1] == EARLY
    assert "early" not in "".join(frames(80, 47, 47, 1.0))


def test_failure_is_not_reported_as_an_early_end(capsys):
    clock = Clock()
    with pytest.raises(ValueError, match="wrong"), reporting("gcn on cora", 9, 0, shown=True, clock=clock) as report:
        report(clock.epoch(1, 1.0))
        raise ValueError("wrong")
    assert "early" not in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [0.01, 20.0, 400.0])
def test_log_reports_every_epoch_or_half_minute(seconds, capsys):
    shown(1000, 1000, seconds)
    numbers = [
        int(re.match(r"gcn on cora: epoch (\d+)/1000  loss 1.0663  accuracy validation", line)[1])
        for line in capsys.readouterr().err.splitlines()
    ]
    assert numbers[0] == 1 and {100 * tenth for tenth in range(1, 11)} <= set(numbers)
    gaps = [(after - before) * seconds for before, after in itertools.pairwise(numbers)]
    assert max(gaps) <= max(SILENCE, seconds)
    assert len(numbers) <= 11 + 1000 * seconds / (SILENCE - seconds if seconds < SILENCE / 2 else seconds)


def test_log_shows_the_last_epoch_of_an_early_end(capsys):
    shown(1000, 47, 0.01)
    first, last, early = capsys.readouterr().err.splitlines()
    assert first.startswith("gcn on cora: epoch 1/1000 ") and last.startswith("gcn on cora: epoch 47/1000 ")
    assert early == EARLY


def test_end_by_patience_is_reported(layouts, capsys):
    options = {"model": "gcn", "technique": "halo", "epochs": 500, "settings": {"patience": 3}}
    done = run("simulated", layouts("planted", 2), 2, progress=True, **options)[0].record.epochs
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"gcn on test: stopped early, after epoch {done}/500,")


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


@needs_tensorboardx
def test_event_file_has_every_epoch(layouts, tmp_path):
    found = run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", phases=True, **OPTIONS)[0]
    scalars, begins = {}, []
    first, *_ = events = events_in(tmp_path / "board")
    assert first.file_version == "brain.Event:2"
    for event in events:
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
def test_first_epoch_is_shown_at_once(layouts, tmp_path):
    record = run("simulated", layouts("planted", 1), 1, **OPTIONS)[0].epochs[0]
    with Board(tmp_path / "board", "accuracy", 5) as board:
        board.write(record)
        end = time.monotonic() + 20
        while len(found := events_in(tmp_path / "board")) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert [event.step for event in found] == [0, 6, 1]


@pytest.mark.usefixtures("full_disk")
@needs_tensorboardx
def test_full_disk_loses_events_but_not_the_training(layouts, tmp_path, caplog, capfd):
    """It costs the events alone; more epochs than a queue would hold."""
    options = {**OPTIONS, "epochs": 15, "stall_after": 10.0, "out": tmp_path / "run"}
    result = run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", **options)[0]
    assert len(result.epochs) == 15
    assert (tmp_path / "run/run.json").is_file()
    said = f"{tmp_path}/board: cannot be written (No space left on device): the training goes on without TensorBoard's"
    assert [message for message in caplog.messages if "board" in message] == [f"{said} events"]
    assert "Traceback" not in capfd.readouterr().err
    caplog.clear()
    threads = threading.active_count()
    with Board(tmp_path / "board", "accuracy", 0):
        pass  # full at the end
    assert [record.message.split(":")[0] for record in caplog.records] == [f"{tmp_path}/board"]
    assert threading.active_count() == threads


@needs_tensorboardx
def test_uncreatable_event_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"^{tmp_path}/file/board: cannot be written: Not a directory$"):
        Board(tmp_path / "file/board", "accuracy", 0)
