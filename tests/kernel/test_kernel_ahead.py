import fcntl
import io
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import redirect_stderr

import pytest

from mgg.errors import MachineError
from mgg.kernel import compile as kernels
from mgg.kernel import compile_ahead as module
from mgg.kernel.compile import build_of
from mgg.kernel.compile_ahead import Ahead

BUILDS = [build_of(name, 32) for name in ("gather", "rows", "halo", "pull")]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(kernels, "nvcc_version", lambda _: "release 13")
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: range(4))
    return tmp_path


@pytest.fixture
def compiling(monkeypatch):
    """``compiling(act)``: a compiler of each source calls ``act`` with its name; the names, as that began."""

    def by(act):
        names = []

        def compile_one(nvcc, source, path, flags, libraries):
            names.append(source.stem)
            act(source.stem)
            path.write_text("")

        monkeypatch.setattr(kernels, "_compile", compile_one)
        return names

    return by


@pytest.fixture
def compiled(compiling):
    return compiling(lambda name: None)


def started(*several, ranks=None):
    """What was begun for each of ``several`` lists of kernels, one after the other."""
    ahead = Ahead()
    if ranks:
        ahead.share(*ranks)
    for builds in several:
        ahead.expect(builds)
        ahead.start("sm_90")
    return ahead


def test_expected_kernels_are_compiled_once_and_reported(compiled, capsys):
    ahead = Ahead()
    ahead.expect(BUILDS[:3])
    ahead.expect(BUILDS[2:])
    ahead.start("sm_90")
    ahead.finish(BUILDS, "sm_90", must=True)
    assert sorted(compiled) == sorted(build.source for build in BUILDS)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "compiling 4 kernels for sm_90, 4 at a time"
    assert said[-1] == "compiling 4 kernels for sm_90, 4 at a time: 4 done"
    ahead.start("sm_90")
    for each in (ahead, started(BUILDS)):
        each.finish(BUILDS, "sm_90", must=True)
    assert len(compiled) == 4 and capsys.readouterr().err == ""


def test_progress_is_not_lost_while_stderr_is_redirected(compiling, capsys):
    """As during the start of NVSHMEM."""
    free = threading.Event()
    compiling(lambda name: free.wait(60))
    ahead = started(BUILDS)
    with redirect_stderr(io.StringIO()):
        free.set()
        ahead.finish(BUILDS, "sm_90", must=True)
    assert capsys.readouterr().err.endswith("compiling 4 kernels for sm_90, 4 at a time: 4 done\n")


def test_compilers_run_in_parallel(compiling):
    together = threading.Barrier(4, timeout=60)
    compiling(lambda name: together.wait())
    started(BUILDS).finish(BUILDS, "sm_90", must=True)


def test_ranks_begin_at_different_kernels_and_one_reports(compiled, capsys, monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: range(1))
    held = kernels.cubin_path(BUILDS[2], "sm_90").with_suffix(".lock")
    held.parent.mkdir(parents=True)
    with held.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another rank is at it, and is passed over
        first = started(BUILDS, ranks=(1, 2, 2))
        for made in first._futures:
            made.result()
    assert compiled == ["pull", "gather", "rows"]
    second = started(BUILDS, ranks=(0, 2, 2))
    for each in (second, first):
        each.finish(BUILDS, "sm_90", must=True)
    assert compiled == ["pull", "gather", "rows", "halo"]
    assert capsys.readouterr().err.splitlines()[0] == "compiling 4 kernels for sm_90, 2 at a time"


@pytest.mark.parametrize(("ranks", "cores", "at_once"), [(1, 0, 4), (2, 8, 4), (2, 3, 2), (4, 2, 4)])
def test_ranks_of_a_host_share_its_compiler_cores(compiled, capsys, ranks, cores, at_once):
    started(BUILDS, ranks=(ranks - 1, ranks, cores)).finish(BUILDS, "sm_90", must=True)
    assert f"compiling 4 kernels for sm_90, {at_once} at a time: 4 done\n" in capsys.readouterr().err


def test_later_kernels_join_the_progress_report(monkeypatch, compiling, capsys):
    free = threading.Event()
    monkeypatch.setattr(module, "EVERY", 1e9)
    compiling(lambda name: free.wait(60))
    ahead = started(BUILDS[:3], BUILDS)
    free.set()
    ahead.finish(BUILDS, "sm_90", must=True)
    begun = "compiling 4 kernels for sm_90, 4 at a time"
    said = ["compiling 3 kernels for sm_90, 3 at a time", begun, f"{begun}: 4 done"]
    assert capsys.readouterr().err.splitlines() == said


def test_kernels_finished_by_another_rank_leave_the_report(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "try_build", lambda build, arch: None)  # another rank is at it
    made = set()
    monkeypatch.setattr(kernels, "is_made", made.__contains__)
    ahead = Ahead()
    for some in (BUILDS[:3], BUILDS):
        ahead.expect(some)
        ahead.start("sm_90")
        made.update(kernels.cubin_path(build, "sm_90") for build in some)
    assert capsys.readouterr().err.splitlines() == [
        "compiling 3 kernels for sm_90, 3 at a time",
        "compiling 3 kernels for sm_90, 3 at a time: 3 done",
        "compiling 1 kernel for sm_90, 1 at a time",
    ]


def test_kernels_without_nvshmem_are_skipped_at_start(compiled, monkeypatch):
    monkeypatch.setattr(kernels, "nvshmem_folder", lambda: None)
    builds = [build_of("mgg", 32, "warp"), BUILDS[0]]
    started(builds).finish(builds, "sm_90", must=False)
    assert compiled == ["gather"]


def test_pes_as_threads_compile_once(compiled):
    ahead, meeting = Ahead(), threading.Barrier(8, timeout=60)

    def pe(number):
        meeting.wait()
        ahead.expect(BUILDS[number % 4 :])
        ahead.start("sm_90")
        ahead.finish(BUILDS, "sm_90", must=True)
        return [build.source for build in BUILDS[number % 4 :] if not kernels.cubin_path(build, "sm_90").exists()]

    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(pe, range(8)))
    assert sorted(compiled) == sorted(build.source for build in BUILDS)


def test_compiler_error_is_raised_where_the_kernel_is_needed(compiling):
    def fail(name):
        raise MachineError(f"{name}.cu: does not compile")

    compiling(fail)
    ahead = started(BUILDS[:1])
    ahead.finish(BUILDS[:1], "sm_90", must=False)  # it may be one technique of many
    ahead.finish([], "sm_90", must=True)
    with pytest.raises(MachineError, match=r"gather\.cu: does not compile"):
        ahead.finish(BUILDS[:1], "sm_90", must=True)


def test_cancelled_job_starts_no_more_compilers(monkeypatch, compiling):
    free = threading.Event()
    begun = compiling(lambda name: free.wait(60))
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: range(1))
    ahead = started(BUILDS)
    ahead.cancel()
    free.set()
    wait(made for made in ahead._futures if not made.cancelled())  # not beside the next test
    assert len(begun) <= 1 and sum(made.cancelled() for made in ahead._futures) >= 3


def test_waiting_for_compilers_is_marked_and_counted(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(kernels.time, "perf_counter", lambda: now[0])
    before = kernels.waited()
    with kernels.compiler_wait():
        now[0] += 3.0
        with kernels.compiler_wait():  # of what is waited for, one kernel
            now[0] += 2.0
        assert threading.get_native_id() in kernels.waiting
    assert threading.get_native_id() not in kernels.waiting
    now[0] += 7.0
    assert kernels.waited() - before == 5.0
