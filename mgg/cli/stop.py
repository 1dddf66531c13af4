"""Stopping on request: Slurm sends SIGUSR1 (if asked to) or SIGTERM before it ends a job, launchers pass them on."""

from __future__ import annotations

import signal
import threading
from typing import Any

#: Set once this process was told to stop. ``train`` looks at it before the first epoch and after each.
asked = threading.Event()
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def listen() -> None:
    """From here on SIGTERM and SIGUSR1 set ``asked`` instead of ending the process.

    Senders repeat themselves: after the first signal both are ignored for good, also while the interpreter ends, which
    would give handlers back. Only the main thread may call this, and it imports next to nothing: a signal may come
    while the libraries are loaded, which takes seconds.
    """
    for number in _SIGNALS:
        signal.signal(number, _ask)


def _ask(number: int, frame: Any) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    asked.set()
