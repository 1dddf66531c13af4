"""Page-locked, mapped host memory that every GPU of a host reads in place, for one process or several."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from mgg.backend.api import World, together
from mgg.backend.machine import host_memory
from mgg.errors import MachineError, MggError, memory_error

SHARED_MEMORY = Path("/dev/shm")
# cudaHostRegisterPortable: for all GPUs of the process; cudaHostRegisterMapped: kernels can address it.
_PORTABLE_MAPPED = 1 | 2


class Region:
    """A piece of host memory that the GPUs of this process address.

    Args:
        mapping: the memory; page-locked until ``close``.

    Attributes:
        bytes: the whole memory, uint8.

    Raises:
        MachineError: CUDA cannot lock the pages.
    """

    def __init__(self, mapping: mmap.mmap):
        runtime, size = cupy.cuda.runtime, len(mapping)
        self._mapping = mapping
        self.bytes: Any = np.frombuffer(mapping, np.uint8)
        self._host = int(self.bytes.ctypes.data)
        try:
            runtime.hostRegister(self._host, size, _PORTABLE_MAPPED)
        except runtime.CUDARuntimeError as error:
            self._unmap()
            raise MachineError(
                f"{size} bytes of host memory cannot be page-locked for the GPU"
                f" ({' '.join(str(error).split())}): use fewer columns or a smaller graph"
            ) from None

    def address(self) -> int:
        """Return the region's address on the current GPU."""
        return int(cupy.cuda.runtime.pointerGetAttributes(self._host).devicePointer)

    def on_device(self, owner: Any) -> Any:
        """Return the region as an array of the current GPU."""
        memory = cupy.cuda.UnownedMemory(self.address(), self.bytes.nbytes, owner, cupy.cuda.runtime.getDevice())
        return cupy.ndarray(self.bytes.shape, np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    def close(self) -> None:
        """Free the memory; no GPU may be using it."""
        cupy.cuda.runtime.hostUnregister(self._host)
        self._unmap()

    def _unmap(self) -> None:
        self.bytes = None
        self._mapping.close()


def anonymous(size: int) -> Region:
    """Return a region of ``size`` zero bytes for this process alone; raises MachineError if RAM is short."""
    free = host_memory.available()
    if size > free:
        raise memory_error(f"{size} bytes of host memory are needed and {free} are free: use fewer columns")
    return Region(mmap.mmap(-1, size))


def shared(control: World, size: int) -> Region:
    """Return a region of ``size`` zero bytes that all PEs of one host map (collective); raises MachineError.

    Its file in /dev/shm is removed before the memory is used, so PEs that die leave nothing behind.
    """
    made = together(control, lambda: _make(size) if control.rank == 0 else None)
    path = control.gather(made)[0]
    locked: list[Region] = []
    try:
        together(control, lambda: locked.append(Region(_map(path, size))))
    except MggError:
        # Another PE failed: without this, memory locked here would stay locked.
        for region in locked:
            region.close()
        raise
    finally:
        if made is not None:
            made.unlink(missing_ok=True)
    return locked[0]


def _make(size: int) -> Path:
    """Create a file in shared memory with ``size`` allocated bytes: without them, a write would kill the process."""
    try:
        status = os.statvfs(SHARED_MEMORY)
        handle, name = tempfile.mkstemp(prefix="mgg-", dir=SHARED_MEMORY)
    except OSError as error:
        raise MachineError(f"{SHARED_MEMORY}: PEs cannot share memory there: {error.strerror}") from None
    free = status.f_bavail * status.f_frsize
    refused = ""
    try:
        if size <= free:
            os.posix_fallocate(handle, 0, size)
            return Path(name)
    except OSError as error:  # another process has taken the space since, or there is a quota
        refused = f", which it refuses: {error.strerror or error}"
    finally:
        os.close(handle)
    Path(name).unlink()
    raise MachineError(
        f"{SHARED_MEMORY} has {free} bytes left and the embeddings of all PEs need {size}{refused}: enlarge it"
        " (docker run --shm-size, or mount -o remount,size=...), or use fewer columns"
    )


def _map(path: Path, size: int) -> mmap.mmap:
    try:
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise MachineError(f"{path}: cannot be mapped: {error.strerror}: all PEs must share one host") from None
