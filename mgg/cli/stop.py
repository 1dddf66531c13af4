"""Stopping on request. Slurm sends SIGUSR1 (if asked to) or SIGTERM before it ends a job, and launchers pass them on.
People press Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

#: Set once this process has been told to stop. ``train`` checks it before the first epoch and after each one.
asked = threading.Event()
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
#: Set once Ctrl-C ends this process. Libraries turn a KeyboardInterrupt into their own errors, above all while they are
#: being loaded, and none of these errors is to be printed.
interrupted = threading.Event()
#: Exit code after Ctrl-C.
INTERRUPTED = 130


def listen() -> None:
    """From here on SIGTERM, SIGUSR1 and the first Ctrl-C set ``asked`` instead of ending the process.

    Senders repeat their signals. So after the first one, SIGTERM and SIGUSR1 are ignored for good, even while the
    interpreter ends, when it would restore handlers. A second Ctrl-C ends the process at once. Only the main thread may
    call this. This module imports next to nothing, because a signal may come while the libraries are loaded, which
    takes seconds.
    """
    for number in _SIGNALS:
        signal.signal(number, _ask)
    # Programs started in the background ignore SIGINT; leave it so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def end_on_ctrl_c() -> None:
    """From here on Ctrl-C sets ``interrupted`` and ends the process by a KeyboardInterrupt.

    Only the main thread may call this.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def tell() -> int:
    """Print on rank 0's standard error that Ctrl-C has ended the command; return the exit code.

    This imports nothing, because a module that was being imported is broken. Until ``mgg.backend.job`` is imported, no
    rank knows its number, so each one prints.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # otherwise Ctrl-C while the interpreter ends shows a traceback
    if speaks():
        again = "run the same command again"
        if asked.is_set():
            again += " with --resume, which goes on from the newest checkpoint if there is one"
        print(f"mgg: interrupted; outputs appear only when they are whole: {again}", file=sys.stderr, flush=True)
    return INTERRUPTED


def speaks() -> bool:
    """Whether this is rank 0, as far as that is known without an import."""
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
