"""MPICH's shared memory is removed with its ranks, however they end."""

import secrets
from pathlib import Path

import pytest
from support.ranks import mpiexec
from support.ranks.ready import ready

from mgg.backend.segments import unlink_mapped

SHARED_MEMORY = Path("/dev/shm")
# Each rank prints the segment that it has mapped, then ends: in order, or by SIGKILL.
PROGRAM = """
import os, re, sys
from mpi4py import MPI
from mgg.backend.mpi import MpiWorld
world = MpiWorld(MPI.COMM_WORLD)
world.barrier()
with open("/proc/self/maps") as maps:
    names = set(re.findall("/dev/shm/(mpich_shm_[0-9a-f]+_0)", maps.read()))
print(*names, flush=True)
world.barrier()
if sys.argv[1:] == ["killed"] and world.rank == 1:
    os.kill(os.getpid(), 9)
world.barrier()
world.close()
"""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("end", ["in order", "killed"])
def test_job_leaves_no_shared_memory_file(end):
    run = mpiexec(2, ["-c", PROGRAM, end], under=ready(gpus=False))
    assert (run.returncode == 0) == (end == "in order"), run.stderr
    names = {line for line in run.stdout.splitlines() if line.startswith("mpich_shm_")}
    assert len(names) == 1, "MPICH names its shared memory in another way: see mgg/backend/segments.py"
    assert not (SHARED_MEMORY / names.pop()).exists()


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="no /dev/shm here")
@pytest.mark.parametrize(("name", "same_inode", "removed"), [
    ("mpich_shm_{}_0", True, True),
    ("mpich_vci_{}_12", True, True),
    ("mpich_shm_{}_0", False, False),  # of a newer job, with the same name
    ("mpich_other_{}_0", True, False),
])  # fmt: skip
def test_only_own_mpich_segments_are_unlinked(name, same_inode, removed, tmp_path):
    path = SHARED_MEMORY / name.format(secrets.token_hex(4))
    path.touch()
    try:
        inode = path.stat().st_ino + (not same_inode)
        maps = tmp_path / "maps"
        maps.write_text(f"7f00-7f01 rw-s 00000000 00:1b {inode}                      {path}\n")
        unlink_mapped(maps)
        assert path.exists() != removed
    finally:
        path.unlink(missing_ok=True)


def test_missing_maps_file_is_ignored(tmp_path):
    unlink_mapped(tmp_path / "missing")
    assert not list(tmp_path.iterdir())
