"""Lock a run for one training at a time, on ``.RUN.lock`` next to it; the lock ends with its process."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from mgg.errors import InputError
from mgg.files import lock

#: Most seconds to wait for another training's lock, also as a share of the stall time: when a job restarts, a process
#: of the killed one may take a moment to end.
PATIENCE, PATIENCE_SHARE = 5.0, 0.25
_NAP = 0.1
_log = logging.getLogger(__name__)


class RunLock:
    """The lock of the run whose folder is ``out``; only rank 0 uses it."""

    def __init__(self, out: Path) -> None:
        real = out.resolve()  # a link and its target share one lock
        self._out, self._path = out, real.with_name(f".{real.name}.lock")
        self._handle: int | None = None

    def take(self, stall_after: float) -> None:
        """Take the lock, unless this object has it already; warn and continue if the file system has no locks.

        Args:
            stall_after: seconds that this PE may stand still.

        Raises:
            InputError: another training holds it.
        """
        deadline = time.monotonic() + min(PATIENCE, PATIENCE_SHARE * stall_after)
        try:
            while self._handle is None and not self._taken():
                if time.monotonic() > deadline:
                    raise InputError(
                        f"another training writes to {self._out}{self._holder()}: wait for it, or choose another"
                        " output folder"
                    )
                time.sleep(_NAP)
        except OSError as error:
            with suppress(OSError):
                if not self._path.stat().st_size:  # a holder would have written its name
                    self._path.unlink()
            _log.warning(
                "%s: cannot be locked (%s), so nothing keeps a second training of this run out",
                self._path, error.strerror,
            )  # fmt: skip

    def free(self) -> None:
        """Release the lock and remove its file."""
        if self._handle is not None:
            # Unlink before the release, so that a process that opened the file sees that it is no longer the lock file.
            with suppress(OSError):
                self._path.unlink()
            os.close(self._handle)
            self._handle = None

    def _taken(self) -> bool:
        """Try to take the lock without waiting; raise OSError if the file system has no locks."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not lock(handle):
                return False
            # The previous holder may have removed this file, and a lock on a removed file excludes nobody.
            if os.path.samestat(os.fstat(handle), self._path.stat()):
                self._handle = handle
                with suppress(OSError):  # a full disk
                    os.ftruncate(handle, 0)
                    os.write(handle, f"{socket.gethostname()}, process {os.getpid()}".encode())
        except FileNotFoundError:
            return False
        finally:
            if self._handle is None:
                os.close(handle)
        return self._handle is not None

    def _holder(self) -> str:
        """Describe the holder's host and process, as far as they can be read."""
        with suppress(OSError, UnicodeDecodeError):
            if said := self._path.read_text():
                elsewhere = not said.startswith(f"{socket.gethostname()},")
                return f" ({said}{'; where that host is down, the file server frees it' if elsewhere else ''})"
        return ""
