"""Stopping on request: Slurm sends SIGUSR1 (if asked to) or SIGTERM before it ends a job, launchers pass them on, and
people press Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

#: Set once this process was told to stop. ``train`` looks at it before the first epoch and after each.
asked = threading.Event()
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
#: Set once Ctrl-C ends this process: libraries turn a KeyboardInterrupt into errors of their own, while they are loaded
#: above all, and none of them is to be told.
interrupted = threading.Event()
#: Exit code of what Ctrl-C ends.
INTERRUPTED = 130


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


def end_on_ctrl_c() -> None:
    """From here on Ctrl-C ends the process by a KeyboardInterrupt, of which ``interrupted`` tells.

    Only the main thread may call this.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def tell() -> int:
    """Say on one rank's standard error that Ctrl-C has ended the command; returns the exit code.

    Imports nothing: what was being imported is broken. Until it is there, no rank knows which one it is.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter's end would show a traceback of it
    if speaks():
        again = "run the same command again"
        if asked.is_set():
            again += " with --resume, which goes on from the newest checkpoint if there is one"
        print(f"mgg: interrupted; outputs appear only when they are whole: {again}", file=sys.stderr, flush=True)
    return INTERRUPTED


def speaks() -> bool:
    """Whether this is rank 0, as far as is known without an import."""
    rank = getattr(sys.modules.get("mgg.backend.job"), "job_rank", lambda: 0)
    return bool(rank() == 0)


def _end(number: int, frame: Any) -> None:
    interrupted.set()
    raise KeyboardInterrupt


def _ask(number: int, frame: Any) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    asked.set()


def _interrupt(number: int, frame: Any) -> None:
    signal.signal(signal.SIGINT, _end)
    _ask(number, frame)
