"""Heartbeats across hosts: a live process keeps touching a file, and other hosts read the file's age."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from mgg.errors import MachineError

#: Seconds between two touches. A process counts as dead once its file has not been touched for ``SILENT`` seconds.
PERIOD = 30.0
SILENT = 180.0


def first_line(file: IO[Any]) -> str:
    """Return the current first line of the open ``file``, whichever process wrote it."""
    return os.pread(file.fileno(), 4096, 0).decode(errors="replace").partition("\n")[0]


def beat(file: IO[Any], owner: str) -> threading.Event:
    """Touch the open ``file`` every ``PERIOD`` seconds until this process ends.

    Returns:
        An event that stops the touching; set it before changing the file.

    A process that was silent for longer than ``SILENT`` (stopped, or cut off from its file server) may find another
    process's first line there instead of ``owner``. It then exits at once with code 3 and touches nothing more.
    """
    over = threading.Event()

    def touch() -> None:
        while not over.wait(PERIOD):
            # A lost file server comes back, or the run fails at its next write.
            with suppress(OSError):
                holder = first_line(file)
                if holder != owner and not over.is_set():
                    text = f"{holder or 'another one'} has taken its folder over"
                    print(f"error: this run gave no sign for {SILENT:.0f} s, and {text}", file=sys.stderr, flush=True)
                    os._exit(MachineError.exit_code)
                os.utime(file.fileno())

    threading.Thread(target=touch, name="heartbeat", daemon=True).start()
    return over


def silence(file: IO[Any], folder: str | Path) -> float:
    """Return the seconds since the open ``file`` was touched, by the clock of its file system.

    Host clocks are not used, because they may differ by more than ``SILENT``.

    Args:
        file: the open file.
        folder: a folder on the same file system.

    Raises:
        OSError: no file can be created in ``folder``.
    """
    with tempfile.TemporaryFile(dir=folder) as now:
        return os.fstat(now.fileno()).st_mtime - os.fstat(file.fileno()).st_mtime
