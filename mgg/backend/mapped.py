"""Files that CPU PEs map instead of allocating RAM: if RAM is short, the system writes their pages to disk."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
import psutil

from mgg.errors import MachineError

#: File systems in RAM.
_IN_MEMORY = ("tmpfs", "ramfs")


class MappedFile:
    """A ``mgg.backend.api.Outside``: an unnamed file in the folder for temporary files (``$TMPDIR``).

    Raises:
        MachineError: the folder has too little room.
    """

    def __init__(self, size: int) -> None:
        try:
            with tempfile.TemporaryFile(prefix="mgg-") as file:
                # Allocate all blocks now: writing to a page without a block on a full disk would kill the process.
                os.posix_fallocate(file.fileno(), 0, size)
                self.bytes: np.ndarray = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        except OSError as error:
            raise MachineError(
                f"{tempfile.gettempdir()}: no file of {size} bytes can be mapped there: {error.strerror}: set TMPDIR"
                " to a folder with more room"
            ) from None

    def on_device(self, owner: Any) -> np.ndarray:
        """Return a view of the file."""
        return np.asarray(_View(self.bytes, owner))

    def close(self) -> None:
        """Drop the file, which is deleted with the last view of it."""
        del self.bytes


class _View:
    """Memory as NumPy takes it over; arrays of it refer to this object, which refers to ``owner``."""

    def __init__(self, memory: np.ndarray, owner: Any) -> None:
        self._memory, self._owner = memory, owner
        self.__array_interface__ = memory.__array_interface__


def room() -> tuple[str, int]:
    """Return the folder for temporary files and its free bytes; 0 if the folder is in RAM."""
    folder = os.path.realpath(tempfile.gettempdir())
    mounts = [part for part in psutil.disk_partitions(all=True) if _within(folder, part.mountpoint)]
    kind = max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""
    return folder, 0 if kind in _IN_MEMORY else psutil.disk_usage(folder).free


def _within(folder: str, mount: str) -> bool:
    return os.path.commonpath([folder, mount]) == mount
