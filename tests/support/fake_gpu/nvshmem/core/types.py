"""What the modules of this stand-in share."""

import ctypes
import os
from types import SimpleNamespace

from mpi4py import MPI

job = SimpleNamespace(comm=None)


def host(pe):
    """The host that a PE is on: PEs in a row share one."""
    return pe // int(os.environ.get("FAKE_PES_A_HOST", "1000"))


class NvshmemError(Exception):
    pass


def heap():
    """Bytes of the largest symmetric array."""
    return int(os.environ.get("FAKE_HEAP", str(2**30)))


streams = set()  # that have had a collective call


def meet():
    """Wait for all PEs while no other thread of Python runs: nvshmem4py keeps its lock in such calls.

    NVSHMEM does it on a stream of its own; a collective call that another stream still has before it would count.
    """
    waiting = [stream for stream in streams if stream.collectives > stream.collectives_over]
    assert not waiting, "NVSHMEM's own barrier beside one of a stream"
    kind = ctypes.c_int if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p
    ctypes.PyDLL(MPI.__file__).MPI_Barrier(kind(MPI._handleof(job.comm)))
