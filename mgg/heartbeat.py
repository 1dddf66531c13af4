"""A process shows that it lives: it touches a file, and other hosts see by the file's age when it last did."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from mgg.errors import MachineError

#: Seconds between two touches. Whoever holds a file that has not been touched for ``SILENT`` seconds is dead.
PERIOD = 30.0
SILENT = 180.0


def first_line(file: IO[Any]) -> str:
    """The first line of the open ``file`` as it stands there now, whoever wrote it."""
    return os.pread(file.fileno(), 4096, 0).decode(errors="replace").partition("\n")[0]


def beat(file: IO[Any], owner: str) -> threading.Event:
    """Touch the open ``file`` every ``PERIOD`` seconds from here on, until this process ends, however it ends.

    Returns:
        What ends it before, for who is about to change the file.

    A process that was away for longer than ``SILENT`` (stopped, or its file server out of reach) may find another one's
    first line there instead of ``owner``. It counts as dead then: it ends at once, with code 3, and touches nothing
    more.
    """
    over = threading.Event()

    def touch() -> None:
        while not over.wait(PERIOD):
            # A file server that is away comes back, or the run fails where it writes.
            with suppress(OSError):
                holder = first_line(file)
                if holder != owner and not over.is_set():
                    told = f"{holder or 'another one'} has taken its folder over"
                    print(f"error: this run gave no sign for {SILENT:.0f} s, and {told}", file=sys.stderr, flush=True)
                    os._exit(MachineError.exit_code)
                os.utime(file.fileno())

    threading.Thread(target=touch, name="heartbeat", daemon=True).start()
    return over


def silence(file: IO[Any], folder: str | Path) -> float:
    """Seconds since the open ``file`` was touched, by the clock of the file system that holds it and ``folder``.

    The clocks of hosts may differ by more than a run is silent.

    Raises:
        OSError: nothing can be made in ``folder``.
    """
    with tempfile.TemporaryFile(dir=folder) as now:
        return os.fstat(now.fileno()).st_mtime - os.fstat(file.fileno()).st_mtime
