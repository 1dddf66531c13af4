"""A memory budget that is kept as resident set size of this process."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from mgg.errors import InputError
from mgg.graph.budget import DEFAULT, MIB, resident
from mgg.graph.external import kernels

#: MiB by which a process may hold more than the one before: who takes the number that is named is not told another.
_SPREAD = 8
#: glibc's mallopt parameter for the size from which an allocation is a mapping of its own.
_M_MMAP_THRESHOLD = -3


@dataclass(frozen=True)
class Memory:
    """A budget of ``limit`` bytes for the whole process and ``workers`` threads that share it."""

    limit: int = DEFAULT
    workers: int = 1

    @classmethod
    def beside(cls) -> Memory:
        """The default budget, beside what this process holds already: programs that call MGG have data of their own."""
        return cls(DEFAULT + resident())

    def free(self, least: int) -> int:
        """Bytes that are left for arrays now, beside the interpreter and its libraries.

        Raises:
            InputError: fewer than ``least``.
        """
        # Loaded later they would count as free now: too much would be given away, and the next step refused.
        kernels.load()
        _return_freed()
        used = resident()
        if self.limit - used < least:
            least = -(-(used + least) // MIB) + _SPREAD
            raise InputError(f"memory of {self.limit // MIB} MiB is too small: at least {least} MiB are needed")
        return self.limit - used


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


@cache
def _c_library() -> ctypes.CDLL:
    """The C library, told to give large arrays back to the system as soon as they are freed.

    glibc raises its threshold with every large array that is freed and then keeps later ones in its heap, where holes
    between them count as used.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, MIB)
    return library


def _return_freed() -> None:
    """Give memory that Arrow and the C library keep for later back to the system."""
    pa.default_memory_pool().release_unused()
    if hasattr(_c_library(), "malloc_trim"):
        _c_library().malloc_trim(0)
