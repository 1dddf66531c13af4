"""What a running training shows: a line of a terminal, however narrow, and elsewhere lines now and then."""

import io
import itertools
import re
import sys

import pytest
from support.train_program import run

from mgg.record import EpochRecord
from mgg.train.progress import SILENCE, reporting


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


@pytest.mark.parametrize("metric", ["accuracy", "micro_f1"])
@pytest.mark.parametrize("epochs", [20, 1000, 200_000])
@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_a_terminal_of_any_width_has_all_of_an_epoch_on_one_line(columns, epochs, metric, frames):
    found = frames(columns, epochs, 20, 0.125, metric=metric, title="gcn on ogbn-products")
    assert max(len(line) for line in found if "early" not in line) <= columns
    minutes, seconds = divmod(round((epochs - 20) * 0.125), 60)
    left = f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    (line,) = {line for line in found if f"20/{epochs} " in line}
    assert re.search(rf"20/{epochs} +loss 1\.0663 .*78\.8%,? test 80\.9% +0\.125 s/epoch +ETA {left}$", line)


@pytest.mark.parametrize(
    ("columns", "parts"), [(200, "tbm"), (120, "tbm"), (100, "tbm"), (95, "bm"), (80, "m"), (70, "")]
)
def test_what_has_no_room_goes_in_turn(columns, parts, frames):
    """Title, bar, and the name of the metric."""
    line = frames(columns, 1000, 100, 0.125)[-2]
    assert [part in line for part in ("gcn on cora", "━", "accuracy")] == [part in parts for part in "tbm"], line


def test_a_frame_is_shown_ten_times_a_second_and_at_the_end(frames):
    found = [int(line.split("/")[0].split()[-1]) for line in frames(80, 1000, 256, 2**-6) if "loss" in line]
    assert found[0] == 7 and found[-1] == 256  # 7 / 64 seconds are the first that are 0.1 or more
    assert len(set(found)) == 256 // 7 + 1


def test_a_terminal_that_cannot_write_over_a_line_has_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock = Clock()
    with reporting("gcn on cora", 10, 0, shown=True, clock=clock) as report:
        report(clock.epoch(1, 1.0))
        assert sys.stderr.getvalue().startswith("gcn on cora: epoch 1/10  loss 1.0663  ")
        report(clock.epoch(2, 1.0))
    assert len(sys.stderr.getvalue().splitlines()) == 3 and "\x1b" not in sys.stderr.getvalue()


@pytest.mark.parametrize("columns", [80, 200])
def test_a_training_that_ends_early_says_so(columns, frames):
    assert (
        frames(columns, 1000, 47, 1.0)[-1] == "gcn on cora: stopped early, after epoch 47/1000, by the setting patience"
    )
    assert "early" not in "".join(frames(columns, 47, 47, 1.0))


def test_a_training_that_fails_has_not_ended_early(capsys):
    clock = Clock()
    with pytest.raises(ValueError, match="wrong"), reporting("gcn on cora", 9, 0, shown=True, clock=clock) as report:
        report(clock.epoch(1, 1.0))
        raise ValueError("wrong")
    assert "early" not in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [0.01, 1.0, 20.0, 29.0, 400.0])
def test_off_a_terminal_nobody_waits_longer_than_an_epoch_or_half_a_minute(seconds, capsys):
    shown(1000, 1000, seconds)
    numbers = [
        int(re.match(r"gcn on cora: epoch (\d+)/1000  loss 1.0663  accuracy validation", line)[1])
        for line in capsys.readouterr().err.splitlines()
    ]
    assert numbers[0] == 1 and {100 * tenth for tenth in range(1, 11)} <= set(numbers)
    gaps = [(after - before) * seconds for before, after in itertools.pairwise(numbers)]
    assert max(gaps) <= max(SILENCE, seconds)
    assert len(numbers) <= 11 + 1000 * seconds / (SILENCE - seconds if seconds < SILENCE / 2 else seconds)


def test_off_a_terminal_a_training_that_ends_early_has_its_last_epoch(capsys):
    shown(1000, 47, 0.01)
    first, last, early = capsys.readouterr().err.splitlines()
    assert first.startswith("gcn on cora: epoch 1/1000 ") and last.startswith("gcn on cora: epoch 47/1000 ")
    assert early == "gcn on cora: stopped early, after epoch 47/1000, by the setting patience"


def test_a_training_says_that_its_patience_ended_it(layouts, capsys):
    options = {"model": "gcn", "technique": "halo", "epochs": 500, "settings": {"patience": 3}}
    done = run("simulated", layouts("planted", 2), 2, progress=True, **options)[0].record.epochs
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"gcn on test: stopped early, after epoch {done}/500,")
