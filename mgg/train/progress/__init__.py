"""Show the progress of a training: a live line on a terminal, else single lines.

Single lines, also if TERM is dumb, appear after the first epoch, every tenth of the epochs, and every half minute.
A resumed training first prints the epoch that it continues after; one that stops early says so at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mgg.records import METRIC_NAMES, EpochRecord

#: Most seconds between lines without a terminal, if an epoch ends in time.
SILENCE = 30.0


@contextmanager
def reporting(
    title: str, epochs: int, done: int, *, shown: bool, metric: str = "accuracy",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[EpochRecord], None]]:  # fmt: skip
    """Yield a function to call with each finished epoch; it writes to standard error if ``shown``.

    Fewer than ``epochs``, of which ``done`` were before a resume, are an early stop, unless an error is raised.
    """
    if not shown:
        yield lambda record: None
        return
    if done:
        _print(f"{title}: goes on after epoch {done}/{epochs}")
    view: Any = _Lines(title, epochs, metric, clock)
    if sys.stderr.isatty():
        from mgg.train.progress import frames

        if frames.writes_over():
            view = frames.Frames(title, epochs, done, metric, clock)
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
    """Occasional lines for logs and pipes."""

    def __init__(self, title: str, epochs: int, metric: str, clock: Callable[[], float]) -> None:
        self._title, self._epochs, self._metric, self._clock = title, epochs, metric, clock
        self._printed: float | None = None
        self._waiting = ""

    def show(self, record: EpochRecord, left: float) -> None:
        """Print a line if one is due, or will be before the next epoch ends."""
        now, epoch = self._clock(), record.epoch
        counted, loss, scores, seconds = parts(record, self._epochs, self._metric)
        self._waiting = f"{self._title}: epoch {counted}  {loss}  {scores}  {seconds}  ETA {duration(left)}"
        tenth = epoch * 10 // self._epochs != (epoch - 1) * 10 // self._epochs
        if tenth or self._printed is None or now + record.seconds > self._printed + SILENCE:
            self.close()
            self._printed = now

    def close(self) -> None:
        """Print the last epoch, if it has no line yet."""
        if self._waiting:
            _print(self._waiting)
            self._waiting = ""


def parts(record: EpochRecord, epochs: int, metric: str) -> tuple[str, str, str, str]:
    """Return the texts of epoch, loss, scores and time."""
    scored = f"test {record.test_accuracy:.1%}"
    if record.validation_accuracy is not None:
        scored = f"validation {record.validation_accuracy:.1%}, {scored}"
    loss = f"{record.loss:.4f}" if record.loss < 1e4 else f"{record.loss:.3g}"
    counted, scores = f"{record.epoch}/{epochs}", f"{METRIC_NAMES[metric]} {scored}"
    return counted, f"loss {loss}", scores, f"{record.seconds:.3g} s/epoch"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Format seconds as ``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
