"""MPI, which starts when this module is imported: a native call waits for every rank of the job.

From then on a rank ends with its launcher. MPI notices little of that: ranks of a host go on without it, in the start
of MPI as in a training, and would keep the next ones out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.job import host_ranks, job_rank, job_size, launcher
from mgg.backend.watchdog.deadman import Deadman
from mgg.errors import MachineError, PeError

__all__ = ["MPI", "SHARED_MEMORY"]

SHARED_MEMORY = "/dev/shm"
#: Bytes there for each rank of a host with which MPICH 5.0.2 starts, without asking whether there are so many.
_TO_START = 1_061_440

#: Seconds for all ranks to come: on clusters some of them may load their files long after the others.
LIMIT = DEFAULT_TIMEOUT


@contextmanager
def _limited() -> Iterator[None]:
    """Ends this process where what is inside takes longer than LIMIT, in a job of several ranks.

    Where one never comes, or the launcher loses one of its messages, the others would wait until the job's time is
    over. Nobody can tell which rank it is, so each says where it waits itself.
    """
    if not job_size():
        yield
        return
    here = f"mgg: PE {job_rank()} ({socket.gethostname()}): "
    line = (
        f"{here}MPI did not start within {LIMIT:g} s: another rank of the job"
        " has not started, or its launcher does not fit the MPI library (srun --mpi; docs/slurm.md); run it again"
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
    """Raise MachineError where MPI could not start: what writes past the end of that memory dies of a bus error.

    The first rank of a host looks at what is free, the others at all there is, of which MPI may have taken its part.
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
    from mpi4py import MPI
