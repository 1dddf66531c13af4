"""Unlinks the shared memory segment of MPICH's ranks once all ranks of the host have mapped it.

MPICH 5 makes one segment per job and host, ``/dev/shm/mpich_shm_JOB_NODE``, and removes it when the job ends normally
(src/mpid/ch4/shm/posix/posix_init.c). A killed job leaves its segment behind, so the host loses that memory. If the
name recurs (under Slurm, JOB is a hash of job and step), the ranks of another job take the segment for theirs and fail
with ``MPIDI_POSIX_comm_bootstrap: Out of memory``. An unlinked segment lives exactly as long as its ranks.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_MAPS = Path("/proc/self/maps")
#: Address, permissions, offset, device, inode, path; see proc(5).
_SEGMENT = re.compile(r"\S+ \S+ \S+ \S+ (?P<inode>\d+) +(?P<path>/dev/shm/mpich_(shm|vci)_[0-9a-f]+_\d+)")


def unlink_mapped(maps: Path = _MAPS) -> None:
    """Unlink MPICH's segments that this process has mapped; call it once all ranks of the host have mapped them.

    Other MPI libraries' segments, segments already unlinked, and newer segments of the same name stay.
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
