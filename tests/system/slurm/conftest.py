"""Tests on a real Slurm, started for them on this machine: where it cannot be, they are skipped and say why."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster as daemons
from slurm_folder import SlurmFolder


def forbidden() -> str | None:
    """Why no cluster may be started here."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return "a cluster has the machine to itself: make test-slurm"
    if os.geteuid() != 0:
        return "Slurm's daemons need root here"
    own = daemons.SYSTEM_CONF.exists() and not daemons.SYSTEM_CONF.is_symlink()
    return f"{daemons.SYSTEM_CONF}: this machine has a Slurm of its own" if own else None


def missing() -> str | None:
    """What a cluster lacks here."""
    lacking = [name for name in (*daemons.PROGRAMS, "setpriv") if shutil.which(name) is None]
    return f"{', '.join(lacking)} not installed: make help names the packages" if lacking else None


def installable() -> bool:
    """Continuous integration leaves nothing out where it could have installed Slurm; .ci/run says if it could not."""
    fetched = "SLURM_NOT_FETCHED" not in os.environ
    return bool(os.environ.get("CI")) and fetched and shutil.which("apt-get") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = forbidden() or (None if installable() else missing())
    for item in items:
        if reason and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """A test that fails takes its Snakemakes and their jobs along: the next one has the cluster to itself."""
    yield
    for run in SlurmFolder.started:
        if run.poll() is None:
            run.kill()
            run.wait()
            subprocess.run(["scancel", "--user", "root"], check=False)
    SlurmFolder.started.clear()


@pytest.fixture(scope="session")
def cluster(supervisor: tuple[subprocess.Popen, Path]) -> Path:
    """A running cluster: the folder of its configuration and logs."""
    return supervisor[1]


@pytest.fixture(scope="session")
def supervisor() -> Iterator[tuple[subprocess.Popen, Path]]:
    """The process that holds the cluster, which takes orders, and the cluster's folder."""
    lack = missing()
    assert lack is None, lack
    started = subprocess.Popen(
        [sys.executable, daemons.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = started.stdout.readline()
    if not line.startswith(daemons.READY):
        pytest.fail(f"no cluster: {line}{started.communicate()[1]}")
    yield started, Path(line.rpartition(" ")[2].strip())
    started.communicate()
    assert started.returncode == 0
