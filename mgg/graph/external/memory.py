"""A memory budget that limits the resident set size of this process."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from mgg.errors import InputError
from mgg.graph.budget import DEFAULT, MIB, resident
from mgg.graph.external import kernels

#: Extra MiB in the advised limit, as the next run may use a little more memory than this one.
_SPREAD = 8
#: glibc's mallopt parameter: the size from which an allocation gets its own mapping.
_M_MMAP_THRESHOLD = -3


@dataclass(frozen=True)
class Memory:
    """A budget of ``limit`` bytes for the whole process and ``workers`` threads that share it."""

    limit: int = DEFAULT
    workers: int = 1

    @classmethod
    def beside(cls) -> Memory:
        """Return the default budget plus this process's current memory: programs that call MGG have their own data."""
        return cls(DEFAULT + resident())

    def free(self, least: int) -> int:
        """Return the bytes now free for arrays, without the interpreter and its libraries.

        Raises:
            InputError: fewer than ``least`` bytes are free.
        """
        # Load the loops now: later, their memory would count as free here, and the next step would lack it.
        kernels.load()
        _return_freed()
        used = resident()
        if self.limit - used < least:
            least = -(-(used + least) // MIB) + _SPREAD
            raise InputError(f"memory of {self.limit // MIB} MiB is too small: at least {least} MiB are needed")
        return self.limit - used


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))


@cache
def _c_library() -> ctypes.CDLL:
    """Return the C library, configured to return large arrays to the system as soon as they are freed.

    By default glibc raises its threshold with every large array that is freed, and keeps later ones in its heap, where
    the holes between them count as used.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, MIB)
    return library


def _return_freed() -> None:
    """Return memory that Arrow and the C library have cached to the system."""
    pa.default_memory_pool().release_unused()
    if hasattr(_c_library(), "malloc_trim"):
        _c_library().malloc_trim(0)
