"""Stopping on request: Slurm sends SIGUSR1 (if asked to) or SIGTERM before it ends a job, launchers pass them on, and
people press Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

#: Set once this process was told to stop. ``train`` looks at it before the first epoch and after each.
asked = threading.Event()
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def listen() -> None:
    """From here on SIGTERM, SIGUSR1 and the first Ctrl-C set ``asked`` instead of ending the process.

    Senders repeat themselves: after the first signal both are ignored for good, also while the interpreter ends, which
    would give handlers back. Who presses Ctrl-C again does not want to wait. Only the main thread may call this, and it
    imports next to nothing: a signal may come while the libraries are loaded, which takes seconds.
    """
    for number in _SIGNALS:
        signal.signal(number, _ask)
    # Programs that were started in the background ignore it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _ask(number: int, frame: Any) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    asked.set()


def _interrupt(number: int, frame: Any) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _ask(number, frame)
