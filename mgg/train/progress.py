"""What a person sees of a running training: a progress bar on a terminal, else a line every tenth of the epochs.

A training that goes on from a checkpoint says after which epoch, in a line before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mgg.record import METRIC_NAMES, EpochRecord

#: Seconds between two looks of a progress bar at the epochs.
SECONDS = 0.1


@contextmanager
def reporting(
    title: str, epochs: int, done: int, *, shown: bool, metric: str = "accuracy"
) -> Iterator[Callable[[EpochRecord], None]]:
    """Yield what to call with each finished epoch; it writes to standard error, or nothing unless ``shown``."""
    if shown and done:
        print(f"{title}: goes on after epoch {done}/{epochs}", file=sys.stderr, flush=True)
    if not shown:
        yield lambda record: None
    elif sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[line]}"),
        )
        with Progress(*columns, TextColumn("ETA"), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=epochs, completed=done, line="")
            shown_at = 0.0

            def update(record: EpochRecord) -> None:
                nonlocal shown_at
                # An epoch may take less than showing it.
                if time.monotonic() - shown_at >= SECONDS or record.epoch == epochs:
                    bar.update(task, completed=record.epoch, line=_line(record, metric))
                    shown_at = time.monotonic()

            yield update
    else:
        started = time.monotonic()

        def print_tenths(record: EpochRecord) -> None:
            if record.epoch * 10 // epochs != (record.epoch - 1) * 10 // epochs:
                left = (time.monotonic() - started) / (record.epoch - done) * (epochs - record.epoch)
                line = f"{title}: epoch {record.epoch}/{epochs}  {_line(record, metric)}  ETA {_clock(left)}"
                print(line, file=sys.stderr, flush=True)

        yield print_tenths


def _line(record: EpochRecord, metric: str) -> str:
    scored = f"test {record.test_accuracy:.1%}"
    if record.validation_accuracy is not None:
        scored = f"validation {record.validation_accuracy:.1%}, {scored}"
    return f"loss {record.loss:.4f}  {METRIC_NAMES[metric]} {scored}  {record.seconds:.3g} s/epoch"


def _clock(seconds: float) -> str:
    """``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
