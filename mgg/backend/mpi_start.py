"""MPI, which starts when this module is imported: a native call waits for every rank of the job.

From then on a rank ends with its launcher. MPI notices little of that: ranks of a host go on without it, in the start
of MPI as in a training, and would keep the next ones out.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mgg.backend.api import DEFAULT_TIMEOUT
from mgg.backend.deadman import Deadman
from mgg.backend.job import job_rank, job_size, launcher
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


with _limited():
    from mpi4py import MPI
