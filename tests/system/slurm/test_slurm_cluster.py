"""The cluster of these tests leaves nothing behind, however its test ends; runs before the others start theirs."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm_cluster as daemons


def started() -> tuple[subprocess.Popen, Path]:
    """A process that starts a cluster and then waits, as a test does; and the cluster's folder."""
    program = (
        "import subprocess, sys; c = subprocess.Popen([sys.executable, sys.argv[1]], stdin=-1, stdout=-1, text=True);"
        "print(c.pid, c.stdout.readline(), flush=True); sys.stdin.read()"
    )
    test = subprocess.Popen(
        [sys.executable, "-c", program, daemons.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    line = test.stdout.readline()
    assert daemons.READY in line, line
    return test, Path(line.split()[-1])


def of_cluster(folder: Path) -> list[str]:
    """Command lines of live processes that name the cluster's folder in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def test_dying_test_leaves_no_cluster():
    test, folder = started()
    assert daemons.SYSTEM_CONF.resolve() == folder / "slurm.conf"
    job = subprocess.Popen(["srun", "-n2", "-N2", "sleep", "600"], stderr=subprocess.DEVNULL)
    while "RUNNING" not in subprocess.run(["squeue", "-h", "-o%T"], capture_output=True, text=True, check=True).stdout:
        time.sleep(0.1)
    assert len(of_cluster(folder)) >= 4
    test.kill()
    job.wait(60)
    for _ in range(300):
        if not folder.exists() and not daemons.SYSTEM_CONF.is_symlink():
            break
        time.sleep(0.1)
    assert not folder.exists() and not daemons.SYSTEM_CONF.is_symlink()
    assert of_cluster(folder) == []


def test_existing_slurm_is_not_touched(monkeypatch, tmp_path: Path):
    own = tmp_path / "slurm.conf"
    own.write_text("ClusterName=real\n")
    monkeypatch.setattr(daemons, "SYSTEM_CONF", own)
    with pytest.raises(RuntimeError, match="has a Slurm of its own"):
        daemons.claim_system_conf(tmp_path)
    assert own.read_text() == "ClusterName=real\n"


def test_leftovers_of_a_killed_supervisor_are_replaced(monkeypatch, tmp_path: Path):
    left = tmp_path / "slurm.conf"
    left.symlink_to(f"/nowhere/{daemons.PREFIX}1234/slurm.conf")
    monkeypatch.setattr(daemons, "SYSTEM_CONF", left)
    daemons.claim_system_conf(tmp_path / "new")
    assert left.readlink() == tmp_path / "new/slurm.conf"
