"""Files that CPU PEs map in place of memory: where RAM is short, the system writes pages to disk and takes them."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np
import psutil

from mgg.errors import MachineError

#: File systems that are memory.
_IN_MEMORY = ("tmpfs", "ramfs")


class MappedFile:
    """See ``mgg.backend.api.Outside``: a file without a name in the folder for temporary files (``$TMPDIR``).

    Raises:
        MachineError: the folder has too little room.
    """

    def __init__(self, size: int) -> None:
        try:
            with tempfile.TemporaryFile(prefix="mgg-") as file:
                # It has all of its blocks from the start: a page without one would end the process when it is written.
                os.posix_fallocate(file.fileno(), 0, size)
                self.bytes: np.ndarray = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        except OSError as error:
            raise MachineError(
                f"{tempfile.gettempdir()}: no file of {size} bytes can be mapped there: {error.strerror}: set TMPDIR"
                " to a folder with more room"
            ) from None

    def close(self) -> None:
        """The file goes with the last view of it."""
        del self.bytes


def room() -> tuple[str, int]:
    """The folder for temporary files, and the bytes that files may have there: none where they would be memory."""
    folder = os.path.realpath(tempfile.gettempdir())
    mounts = [part for part in psutil.disk_partitions(all=True) if _within(folder, part.mountpoint)]
    kind = max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""
    return folder, 0 if kind in _IN_MEMORY else psutil.disk_usage(folder).free


def _within(folder: str, mount: str) -> bool:
    return os.path.commonpath([folder, mount]) == mount
