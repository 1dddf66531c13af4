"""MPI, which starts when this module is imported: a native call waits for every rank of the job."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.deadman import Deadman
from mgg.backend.job import job_rank, job_size
from mgg.errors import PeError

__all__ = ["MPI"]

#: Seconds for all ranks to come: on clusters some of them may load their files long after the others.
LIMIT = DEFAULT_TIMEOUT


@contextmanager
def _limited() -> Iterator[None]:
    """Ends this process where what is inside takes longer than LIMIT, in a job of several ranks.

    Where one never comes, or the launcher loses one of its messages, the others would wait until the job's time is
    over. Nobody can tell which rank it is, so each says where it waits itself.
    """
    if job_size() <= 1:
        yield
        return
    line = (
        f"mgg: PE {job_rank()} ({socket.gethostname()}): MPI did not start within {LIMIT:g} s: another rank of the job"
        " has not started, or its launcher does not fit the MPI library (srun --mpi; docs/slurm.md); run it again"
    )
    deadman = Deadman(LIMIT, PeError.exit_code, line)
    try:
        yield
    finally:
        deadman.close()


with _limited():
    from mpi4py import MPI
