"""Starts MPI at import, in a native call that waits for every rank of the job.

From then on a watchdog ends this rank when its launcher ends. MPI itself does not: while MPI starts and later, the
ranks of a host go on without their launcher and would block the next job's ranks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.job import host_ranks, job_rank, job_size, launcher
from mgg.backend.watchdog import Deadman
from mgg.errors import MachineError, PeError

__all__ = ["MPI", "SHARED_MEMORY"]

SHARED_MEMORY = "/dev/shm"
#: Bytes of that memory that MPICH 5.0.2 uses per rank of a host to start, without a check that they are free.
_TO_START = 1_061_440

#: Seconds for all ranks to start: on clusters some ranks may load their files long after the others.
LIMIT = DEFAULT_TIMEOUT


@contextmanager
def _limited() -> Iterator[None]:
    """End this process, in a job of several ranks, if the block takes longer than LIMIT.

    If one rank never starts, or the launcher loses one of its messages, the others would wait until the job's time
    limit. No rank knows which one is missing, so each reports its own number and host.
    """
    if not job_size():
        yield
        return
    here = f"mgg: PE {job_rank()} ({socket.gethostname()}): "
    line = (
        f"{here}MPI did not start within {LIMIT:g} s: another rank of the job has not"
        " started, or its launcher does not fit the MPI library (srun --mpi; docs/guides/slurm.md); run it again"
    )
    gone = f"{here}what has started this rank (mpiexec, its proxy or srun) has ended; run the same command again"
    deadman = Deadman(LIMIT, PeError.exit_code, line, other=launcher(), gone=gone)
    if job_size() == 1:
        deadman.rest()
    try:
        yield
    finally:
        deadman.rest()


def check_shared_memory() -> None:
    """Raise MachineError if shared memory is too small to start MPI, which would die of a bus error past its end.

    The first rank of a host checks the free memory. The others check the total, as MPI may already use its part.
    """
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return
    rank, ranks = host_ranks()
    size = status.f_frsize * (status.f_blocks if rank else status.f_bavail)
    if size < _TO_START * ranks:
        error = MachineError(
            f"{SHARED_MEMORY} of {socket.gethostname()} has {size} bytes left, and MPI needs {_TO_START * ranks} to"
            f" start {ranks} rank{'s' * (ranks > 1)} there: enlarge it (docker run --shm-size, or"
            " mount -o remount,size=...)"
        )
        raise error if rank else error.by_itself()


check_shared_memory()
with _limited():
    import mpi4py

    # Waits inside MPICH sleep instead of calling sched_yield, see watchdog.poll. Those of one-sided operations only
    # do so below the thread level "multiple"; one thread at a time calls MPI here.
    os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    mpi4py.rc.thread_level = "serialized"
    from mpi4py import MPI
