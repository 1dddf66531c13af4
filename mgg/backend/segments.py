"""Names of the shared memory that MPICH's ranks of a host start with, taken away once all of them have it.

MPICH 5 makes one segment a job and host, ``/dev/shm/mpich_shm_JOB_NODE``, and removes it when the job ends in order
(src/mpid/ch4/shm/posix/posix_init.c). Of a job that is killed it stays: memory of the host that nobody frees, and where
the name comes back (under Slurm JOB is a hash of job and step), the ranks of another job take it for theirs, which ends
in ``MPIDI_POSIX_comm_bootstrap: Out of memory``. Without a name it lives exactly as long as the ranks do.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_MAPS = Path("/proc/self/maps")
#: Address, rights, offset, device, inode, path; see proc(5).
_SEGMENT = re.compile(r"\S+ \S+ \S+ \S+ (?P<inode>\d+) +(?P<path>/dev/shm/mpich_(shm|vci)_[0-9a-f]+_\d+)")


def unlink_mapped(maps: Path = _MAPS) -> None:
    """Remove the names of MPICH's segments that this process has mapped; call it when all ranks of the host have.

    What another MPI library maps, what has lost its name already, and a newer segment of the same name stay.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        found = _SEGMENT.fullmatch(line)
        if found is None:
            continue
        path = Path(found["path"])
        with suppress(OSError):  # another rank was faster
            if path.stat().st_ino == int(found["inode"]):
                path.unlink()
