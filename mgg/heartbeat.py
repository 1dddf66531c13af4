"""A process shows that it lives: it touches a file, and other hosts see by the file's age when it last did."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

#: Seconds between two touches. Whoever holds a file that has not been touched for ``SILENT`` seconds is dead.
PERIOD = 30.0
SILENT = 180.0


def beat(file: IO[Any]) -> None:
    """Touch the open ``file`` every ``PERIOD`` seconds from here on, until this process ends, however it ends."""

    def touch() -> None:
        while True:
            time.sleep(PERIOD)
            # A file server that is away comes back, or the run fails where it writes.
            with suppress(OSError):
                os.utime(file.fileno())

    threading.Thread(target=touch, name="heartbeat", daemon=True).start()


def silence(file: IO[Any], folder: str | Path) -> float:
    """Seconds since the open ``file`` was touched, by the clock of the file system that holds it and ``folder``.

    The clocks of hosts may differ by more than a run is silent.

    Raises:
        OSError: nothing can be made in ``folder``.
    """
    with tempfile.TemporaryFile(dir=folder) as now:
        return os.fstat(now.fileno()).st_mtime - os.fstat(file.fileno()).st_mtime
