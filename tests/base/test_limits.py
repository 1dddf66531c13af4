"""Limits of a process are named with what to raise, whatever a library or a reader makes of them."""

import errno
import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.graphs import make_layout, random_csr
from support.ranks import changed_environment

from mgg import files, layout, limits
from mgg.backend import mpi_start
from mgg.cli import group
from mgg.errors import InputError, MachineError


def limited(kind: str, limit: int, *command: str) -> subprocess.CompletedProcess[str]:
    """``mgg`` under a limit of the shell's."""
    return subprocess.run(
        ["sh", "-c", f'ulimit -{kind} {limit}; exec "$@"', "sh", sys.executable, "-m", "mgg.cli", *command],
        env=changed_environment({}), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_layout(tmp_path_factory.mktemp("limits"), random_csr(60, 200), 2)


def test_too_few_file_descriptors_are_reported_as_such(folder, tmp_path):
    out = str(tmp_path / "records.jsonl")
    done = limited("n", 30, "aggregate", str(folder), "--technique", "halo", "--dim", "2", "--out", out)
    expected = "mgg: too few file descriptors, this process may have 30: raise the limit (ulimit -n, or the job's)\n"
    assert (done.returncode, done.stderr) == (3, expected)


def test_soft_limit_of_files_is_raised(monkeypatch):
    changes = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 4096) if what == resource.RLIMIT_NOFILE else (-1, -1))
    monkeypatch.setattr(resource, "setrlimit", lambda *given: changes.append(given))
    limits.prepare()
    assert changes == [(resource.RLIMIT_NOFILE, (4096, 4096))]


def test_too_little_address_space_is_reported(tmp_path):
    """Which abort, or hang."""
    done = limited("v", 600_000, "doctor")
    assert done.returncode == 3 and done.stderr == (
        "mgg: the limit on addresses of this process is 614400000 bytes, and MGG needs 1258291200 at least: raise it"
        " (ulimit -v, or the job's)\n"
    )


def _wrapped(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except (OSError, ImportError, MemoryError, RuntimeError):
            raise InputError("x.npy: not readable: run mgg layout again") from None
    except InputError as error:
        return error


@pytest.mark.parametrize(
    ("cause", "limit", "message"),
    [
        (OSError(errno.ENFILE, "Too many open files in system"), -1, "this host has no more"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 10**10, "addresses of this process is 10000000000 bytes"),
        (ImportError("x.so: failed to map segment from shared object"), 10**10, "raise it (ulimit -v"),
        (MemoryError("Unable to allocate 3 GiB"), 10**10, "Unable to allocate 3 GiB"),
        (RuntimeError("can't start new thread"), -1, "(ulimit -u)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), -1, None),
        (OSError("Not a Parquet file"), 10**10, None),
        (ModuleNotFoundError("No module named 'torch'"), 10**10, None),
        (OSError(errno.ENOENT, "No such file"), 10**10, None),
    ],
)
def test_error_causes_are_recognized(cause, limit, message, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limit, limit))
    for error in (cause, _wrapped(cause)):
        found = limits.lack_behind(error)
        assert found is None if message is None else isinstance(found, MachineError) and message in str(found)


@pytest.mark.parametrize(("rank", "ranks", "free", "fits"), [
    (0, 1, 65536, False), (0, 1, 2**21, True), (0, 4, 2**21, False), (3, 4, 65536, True), (0, 4, 2**23, True),
])  # fmt: skip
def test_too_little_shared_memory_for_mpi_is_reported(rank, ranks, free, fits, monkeypatch):
    """The first rank of a host looks at what is free, of which others may have taken their part when the last looks."""
    monkeypatch.setenv("MPI_LOCALRANKID", str(rank))
    monkeypatch.setenv("MPI_LOCALNRANKS", str(ranks))
    there = SimpleNamespace(f_frsize=4096, f_blocks=2**23 // 4096, f_bavail=free // 4096)
    monkeypatch.setattr(os, "statvfs", lambda path: there)
    if fits:
        mpi_start.check_shared_memory()
        return
    with pytest.raises(
        MachineError, match=rf"^/dev/shm of .* has {free} bytes left, and MPI needs {1061440 * ranks} to"
    ):
        mpi_start.check_shared_memory()


def test_error_line_of_a_host_is_printed_by_any_rank(monkeypatch, capsys):
    monkeypatch.setattr("mgg.backend.job_rank", lambda: 3)
    assert group._fail("no room", 3, False, MachineError("no room").by_itself().alone) == 3
    assert group._fail("no room", 3, False, MachineError("no room").alone) == 3
    assert capsys.readouterr().err == "mgg: no room\n"


def test_full_disk_while_writing_a_layout_is_reported(tmp_path):
    """In the kernel's words; NumPy's say how many elements it has written."""
    full, out = "out: cannot be written: No space left on device", tmp_path / "out"
    with pytest.raises(MachineError, match=full), files.replace_folder(out, files.Kind("x")) as made:
        (made / "bounds.npy").symlink_to("/dev/full")
        layout.store.save(made / "bounds.npy", random_csr(60, 20_000).indices)
