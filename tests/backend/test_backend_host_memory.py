"""Memory that this host has free, within the limits of cgroups, version 1 or 2."""

from types import SimpleNamespace

import psutil
import pytest

from mgg.backend.machine import host_memory

HOST = 50_000_000
CGROUP_FILE = {
    1: "9:name=systemd:/elsewhere\n4:cpu,memory:/slurm/uid_1/job_7/step_0\n1:cpu:/slurm\n0::/\n",
    2: "0::/slurm/uid_1/job_7/step_0\n",
}
UNLIMITED = {1: 9223372036854771712, 2: "max"}


@pytest.fixture(params=[1, 2])
def version(request, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=HOST))
    (tmp_path / "cgroup").write_text(CGROUP_FILE[request.param])
    return request.param


def make_group(version, root, path, limit, used=0, active=0, inactive=0):
    """Make a group of the hierarchy that limits memory; ``active`` and ``inactive`` are bytes of cached files."""
    folder = (root / "memory" if version == 1 else root) / path
    folder.mkdir(parents=True, exist_ok=True)
    names = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
    for name, value in zip(names, (limit, used), strict=True):
        (folder / f"memory.{name}").write_text(f"{value}\n")
    prefix = "total_" if version == 1 else ""
    cached = f"{prefix}active_file {active}\n{prefix}inactive_file {inactive}\n"
    # Version 1 also has figures without the groups below, which must not be read.
    (folder / "memory.stat").write_text(f"{'active_file 1' if version == 1 else 'anon 5'}\n{cached}")


def available(tmp_path):
    return host_memory.available(tmp_path / "cgroup", tmp_path / "groups")


def test_free_host_memory_without_cgroups(version, tmp_path):
    assert available(tmp_path) == HOST
    assert host_memory.available(tmp_path / "nothing", tmp_path / "nothing") == HOST


def test_tightest_cgroup_on_the_path_to_the_root_counts(version, tmp_path):
    groups = tmp_path / "groups"
    make_group(version, groups, "slurm/uid_1/job_7/step_0", UNLIMITED[version], used=60_000_000)
    assert available(tmp_path) == HOST
    # Cached files can be evicted.
    make_group(version, groups, "slurm/uid_1/job_7", 9_000_000, used=5_000_000, active=100_000, inactive=200_000)
    assert available(tmp_path) == 4_300_000
    # Another job uses most of the limit of the group above both.
    make_group(version, groups, "slurm", 90_000_000, used=89_000_000)
    assert available(tmp_path) == 1_000_000
    make_group(version, groups, "", 70_000, used=90_000)
    assert available(tmp_path) == 0


def test_cgroups_of_other_jobs_do_not_count(version, tmp_path):
    groups = tmp_path / "groups"
    for path in ("slurm/uid_1/job_8", "elsewhere", "slurm/uid_1/job_7/step_1"):
        make_group(version, groups, path, 1000)
    make_group(3 - version, groups, "slurm/uid_1/job_7/step_0", 1000)
    assert available(tmp_path) == HOST


@pytest.mark.parametrize("path", ["/docker/0123", "/../../slurm", "/gone (deleted)"])
def test_cgroup_of_a_container_is_its_root(version, path, tmp_path):
    """Whatever path the host gives that group."""
    (tmp_path / "cgroup").write_text(f"4:memory:{path}\n" if version == 1 else f"0::{path}\n")
    make_group(version, tmp_path / "groups", "", 3_000_000, used=1_000_000)
    assert available(tmp_path) == 2_000_000
