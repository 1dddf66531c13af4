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

from mgg.record import METRIC_NAMES, EpochRecord

#: Seconds without a line, where there is no terminal, if an epoch ends before.
SILENCE = 30.0


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
    view = _on_a_terminal(title, epochs, done, metric, clock) or _Lines(title, epochs, metric, clock)
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


def _on_a_terminal(title: str, epochs: int, done: int, metric: str, clock: Callable[[], float]) -> _Shown | None:
    """Frames, where standard error is a terminal that can write over a line."""
    if not sys.stderr.isatty():
        return None
    from mgg.train.progress import frames

    return frames.Frames(title, epochs, done, metric, clock) if frames.writes_over() else None


class _Lines:
    """A line now and then, for logs and pipes."""

    def __init__(self, title: str, epochs: int, metric: str, clock: Callable[[], float]) -> None:
        self._title, self._epochs, self._metric, self._clock = title, epochs, metric, clock
        self._printed: float | None = None
        self._waiting = ""

    def show(self, record: EpochRecord, left: float) -> None:
        """A line if one is due, or would be before the next epoch ends."""
        now, epoch = self._clock(), record.epoch
        counted, loss, scores, seconds = parts(record, self._epochs, self._metric)
        self._waiting = f"{self._title}: epoch {counted}  {loss}  {scores}  {seconds}  ETA {duration(left)}"
        tenth = epoch * 10 // self._epochs != (epoch - 1) * 10 // self._epochs
        if tenth or self._printed is None or now + record.seconds > self._printed + SILENCE:
            self.close()
            self._printed = now

    def close(self) -> None:
        """The last epoch, if it has no line yet."""
        if self._waiting:
            _print(self._waiting)
            self._waiting = ""


def parts(record: EpochRecord, epochs: int, metric: str) -> tuple[str, str, str, str]:
    """Epoch, loss, scores and time."""
    scored = f"test {record.test_accuracy:.1%}"
    if record.validation_accuracy is not None:
        scored = f"validation {record.validation_accuracy:.1%}, {scored}"
    loss = f"{record.loss:.4f}" if record.loss < 1e4 else f"{record.loss:.3g}"
    counted, scores = f"{record.epoch}/{epochs}", f"{METRIC_NAMES[metric]} {scored}"
    return counted, f"loss {loss}", scores, f"{record.seconds:.3g} s/epoch"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
