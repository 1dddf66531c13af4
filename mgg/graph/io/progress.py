"""Shows progress on standard error: a bar on a terminal, else occasional lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

#: Seconds between lines if standard error is no terminal, or a terminal that cannot overwrite a line.
REPORT_EVERY = 10.0


@contextmanager
def progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that shows the bytes of ``name`` received so far and their total (None: unknown)."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(name)
        return
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=None)
        yield lambda have, total: bar.update(task, completed=have, total=total)


class _Lines:
    """Progress as plain lines; a download that takes less than REPORT_EVERY prints none."""

    def __init__(self, name: str):
        self.name = name
        self.last = time.monotonic()

    def __call__(self, have: int, total: int | None) -> None:
        """Print a line if it is time."""
        if time.monotonic() - self.last >= REPORT_EVERY:
            self.last = time.monotonic()
            share = f" of {total / 1e6:.1f} MB ({have / total:.0%})" if total else " MB"
            print(f"{self.name}: {have / 1e6:.1f}{share}", file=sys.stderr, flush=True)
