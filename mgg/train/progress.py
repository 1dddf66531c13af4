"""What a person sees of a running training: a live line on a terminal, elsewhere and where TERM is dumb lines (after
the first epoch, every tenth of the epochs, and every half a minute).

A training that goes on from a checkpoint says after which epoch, in a line before; one that ends early says so after.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mgg.record import METRIC_NAMES, EpochRecord

#: Seconds between two frames on a terminal: an epoch may take less than showing it.
FRAMES = 0.1
#: Elsewhere seconds without a line, if an epoch ends before.
SILENCE = 30.0
#: Columns of the bar: fewer say nothing, more are no use.
BAR = 10, 40


class _Shown(Protocol):
    """How epochs are shown."""

    def show(self, record: EpochRecord, left: float) -> None:
        """An epoch, and the seconds that those after it will take."""

    def close(self) -> None:
        """No other epoch comes."""


@contextmanager
def reporting(
    title: str,
    epochs: int,
    done: int,
    *,
    shown: bool,
    metric: str = "accuracy",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[EpochRecord], None]]:
    """Yield what to call with each finished epoch; it writes to standard error, or nothing unless ``shown``.

    Args:
        title: of the training.
        epochs: in all; fewer are an early end, unless something is raised.
        done: those before a resume.
        shown: write.
        metric: key of ``METRIC_NAMES``.
        clock: seconds.
    """
    if not shown:
        yield lambda record: None
        return
    if done:
        _print(f"{title}: goes on after epoch {done}/{epochs}")
    # On a terminal that cannot write over a line Rich's Live shows nothing.
    live = sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal
    view: _Shown = _Frames(title, epochs, done, metric, clock) if live else _Lines(title, epochs, metric, clock)
    started, last = clock(), done

    def report(record: EpochRecord) -> None:
        nonlocal last
        last = record.epoch
        view.show(record, (clock() - started) / (last - done) * (epochs - last))

    try:
        yield report
    finally:
        view.close()
    if done < last < epochs:
        _print(f"{title}: stopped early, after epoch {last}/{epochs}, by the setting patience")


class _Lines:
    """A line now and then, for logs and pipes."""

    def __init__(self, title: str, epochs: int, metric: str, clock: Callable[[], float]) -> None:
        self._title, self._epochs, self._metric, self._clock = title, epochs, metric, clock
        self._printed: float | None = None
        self._waiting = ""

    def show(self, record: EpochRecord, left: float) -> None:
        """A line if one is due, or would be before the next epoch ends."""
        now, epoch = self._clock(), record.epoch
        counted, loss, scores, seconds = _parts(record, self._epochs, self._metric)
        self._waiting = f"{self._title}: epoch {counted}  {loss}  {scores}  {seconds}  ETA {_duration(left)}"
        tenth = epoch * 10 // self._epochs != (epoch - 1) * 10 // self._epochs
        if tenth or self._printed is None or now + record.seconds > self._printed + SILENCE:
            self.close()
            self._printed = now

    def close(self) -> None:
        """The last epoch, if it has no line yet."""
        if self._waiting:
            _print(self._waiting)
            self._waiting = ""


class _Frames:
    """One line of a terminal, written over and over."""

    def __init__(self, title: str, epochs: int, done: int, metric: str, clock: Callable[[], float]) -> None:
        self._title, self._epochs, self._metric, self._clock = title, epochs, metric, clock
        self._console = Console(stderr=True)
        self._shown_at = clock()
        self._last: tuple[EpochRecord, float] | None = None
        before = _line(self._console.width, title, done, epochs, [f"{done}/{epochs}"])
        self._live = Live(before, console=self._console, auto_refresh=False)
        self._live.start(refresh=True)

    def show(self, record: EpochRecord, left: float) -> None:
        """A frame, unless one was shown just now."""
        self._last = record, left
        if self._clock() - self._shown_at >= FRAMES:
            self._frame()

    def close(self) -> None:
        """The last epoch stays."""
        self._frame()
        self._live.stop()

    def _frame(self) -> None:
        if self._last is None:
            return
        record, left = self._last
        texts = _texts(record, self._epochs, self._metric, left)
        self._live.update(_line(self._console.width, self._title, record.epoch, self._epochs, texts), refresh=True)
        self._shown_at = self._clock()


def _line(width: int, title: str, done: int, epochs: int, texts: list[str]) -> Table:
    """The first of ``texts`` that fits ``width`` columns, and as much of title and bar as there is room for.

    The title goes first, then the bar.
    """
    text = next((each for each in texts if len(each) <= width), texts[-1])
    room = width - len(text) - 1
    grid = Table.grid(padding=(0, 1))
    cells: list[Text | ProgressBar] = []
    least, most = BAR
    if len(title) + 1 + least <= room:
        cells.append(Text(title, no_wrap=True))
        room -= len(title) + 1
    if least <= room:
        cells.append(ProgressBar(total=epochs, completed=done, width=min(most, room)))
    for _ in range(len(cells) + 1):
        grid.add_column(no_wrap=True)
    grid.add_row(*cells, Text(text, no_wrap=True, overflow="ellipsis"))
    return grid


def _texts(record: EpochRecord, epochs: int, metric: str, left: float) -> list[str]:
    """All that is known of an epoch, with the name of the metric and without."""
    counted, loss, scores, seconds = _parts(record, epochs, metric)
    named = scores.replace("validation", "val").replace(",", "")
    names = named, named.removeprefix(f"{METRIC_NAMES[metric]} ")
    return [f"{counted} {loss} {each} {seconds} ETA {_duration(left)}" for each in names]


def _parts(record: EpochRecord, epochs: int, metric: str) -> tuple[str, str, str, str]:
    """Epoch, loss, scores and time."""
    scored = f"test {record.test_accuracy:.1%}"
    if record.validation_accuracy is not None:
        scored = f"validation {record.validation_accuracy:.1%}, {scored}"
    loss = f"{record.loss:.4f}" if record.loss < 1e4 else f"{record.loss:.3g}"
    counted, scores = f"{record.epoch}/{epochs}", f"{METRIC_NAMES[metric]} {scored}"
    return counted, f"loss {loss}", scores, f"{record.seconds:.3g} s/epoch"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
