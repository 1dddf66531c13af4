"""What a person sees of a running training: a progress bar on a terminal, else a line every tenth of the epochs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mgg.record import EpochRecord


@contextmanager
def reporting(title: str, epochs: int, done: int, *, shown: bool) -> Iterator[Callable[[EpochRecord], None]]:
    """Yield what to call with each finished epoch; it writes to standard error, or nothing unless ``shown``."""
    if not shown:
        yield lambda record: None
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[line]}"), console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=epochs, completed=done, line="")
            yield lambda record: bar.update(task, completed=record.epoch, line=_line(record))
    else:
        yield lambda record: _print_tenths(title, epochs, record)


def _line(record: EpochRecord) -> str:
    return (
        f"loss {record.loss:.4f}  accuracy validation {record.validation_accuracy:.1%}, test {record.test_accuracy:.1%}"
        f"  {record.seconds:.3g} s/epoch"
    )


def _print_tenths(title: str, epochs: int, record: EpochRecord) -> None:
    if record.epoch * 10 // epochs != (record.epoch - 1) * 10 // epochs:
        print(f"{title}: epoch {record.epoch}/{epochs}  {_line(record)}", file=sys.stderr, flush=True)
