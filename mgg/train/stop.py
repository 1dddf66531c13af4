"""Stopping on request: Slurm sends SIGUSR1 (if asked to) or SIGTERM before it ends a job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """In the block, SIGTERM and SIGUSR1 set the event it yields instead of ending the process.

    ``train`` looks at the event after each epoch. Only the main thread may call this: PEs of the simulated backend are
    other threads, so the command line calls it around ``launch``.
    """
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        asked.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
