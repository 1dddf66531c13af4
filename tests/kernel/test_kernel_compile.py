import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.graphs import awkward_graphs, matrix, relative_error

from mgg.backend.watchdog import ticks_of
from mgg.errors import MachineError
from mgg.graph.csr import Csr
from mgg.kernel import compile as build
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK, SMALLEST_TASK, remote_sources, row_schedule

KERNEL = '#include "mgg/vector.cuh"\nextern "C" __global__ void k(float *p) { *p = VALUE; }\n'

try:
    build.find_nvcc()
    HAS_NVCC = True
except MachineError:
    HAS_NVCC = False
# Continuous integration sets CI, and installs nvcc: there nothing is left out.
IN_CI = bool(os.environ.get("CI"))
needs_nvcc = pytest.mark.skipif(not HAS_NVCC and not IN_CI, reason="nvcc is not installed: make kernels installs it")
needs_nvshmem = pytest.mark.skipif(
    build.nvshmem_folder() is None and not IN_CI, reason="NVSHMEM is not installed: make kernels installs it"
)
#: The cache of whoever runs the tests: what `make kernels` has put there is not compiled again.
USERS_CACHE = build.cache_folder()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_documented_table_has_every_kernel():
    folder = build.source_folder()
    found = re.findall(r"^\| `(\S+\.cu)`", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(found) == sorted(str(path.relative_to(folder)) for path in folder.rglob("*.cu"))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "k.cu"
    path.write_text(KERNEL)
    return path


@needs_nvcc
def test_cubin_is_compiled_once_until_something_changes(source, monkeypatch):
    first = build.cubin(source, "sm_90", {"VALUE": 1})
    assert first.read_bytes()[:4] == b"\x7fELF"
    made = first.stat().st_mtime_ns
    assert build.cubin(source, "sm_90", {"VALUE": 1}) == first
    assert first.stat().st_mtime_ns == made
    others = [build.cubin(source, "sm_90", {"VALUE": 2}), build.cubin(source, "sm_80", {"VALUE": 1})]
    source.write_text(KERNEL + "\n")
    others.append(build.cubin(source, "sm_90", {"VALUE": 1}))
    monkeypatch.setattr(build, "nvcc_version", lambda _: "release 99")
    others.append(build.cubin(source, "sm_90", {"VALUE": 1}))
    assert len({first, *others}) == 5
    assert not [path for path in first.parent.iterdir() if path.suffix not in (".cubin", ".lock", ".sha256")]


def test_changed_header_recompiles(source, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "nvcc_version", lambda _: "release 13")
    copy = shutil.copytree(build.source_folder(), tmp_path / "kernels")
    monkeypatch.setattr(build, "source_folder", lambda: copy)
    before = build._key(source, "nvcc", [], False)
    header = copy / "include" / "mgg" / "vector.cuh"
    header.write_text(header.read_text() + "\n")
    assert build._key(source, "nvcc", [], False) != before


def test_another_nvshmem_recompiles_linked_cubins(source, tmp_path, monkeypatch):
    """In the same folder, as after an update of the package."""
    header = tmp_path / "nvshmem" / "include" / "non_abi" / "nvshmem_version.h"
    header.parent.mkdir(parents=True)
    monkeypatch.setattr(build, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(build, "nvcc_version", lambda _: "release 13")
    monkeypatch.setattr(build, "nvshmem_folder", lambda: tmp_path / "nvshmem")
    monkeypatch.setattr(build, "_compile", lambda nvcc, source, path, *others: path.touch())

    def cubins(*version):
        names = zip(("MAJOR", "MINOR", "PATCH"), version, strict=True)
        header.write_text("".join(f"#define NVSHMEM_VENDOR_{name}_VERSION {number}\n" for name, number in names))
        return [build.cubin(source, "sm_90", {}, nvshmem) for nvshmem in (False, True)]

    (plain, linked), (plain_later, linked_later) = cubins(3, 4, 5), cubins(3, 4, 6)
    assert plain == plain_later and len({plain, linked, linked_later}) == 3
    assert cubins(3, 4, 5) == [plain, linked]


def byte_changed(data, number):
    """Every kind of change: a bit, a byte more or less, an end that is missing, nothing left."""
    at = number % len(data)
    flipped = data[:at] + bytes([data[at] ^ (1 << number % 8)]) + data[at + 1 :]
    return (flipped, data[:at], data + b"\0", data[:at] + data[at + 1 :], b"")[number % 5]


@pytest.mark.parametrize("file", [".cubin", ".sha256"])
def test_altered_cubin_is_compiled_again(source, monkeypatch, capsys, file):
    """Torn or changed by a bit, it would be loaded, and do anything."""
    code, made = bytes(range(256)) * 3, []
    monkeypatch.setattr(build, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(build, "nvcc_version", lambda _: "release 13")
    monkeypatch.setattr(build, "_compile", lambda nvcc, source, path, *_: made.append(path.write_bytes(code)))
    path = build.cubin(source, "sm_90", {})
    assert path.read_bytes() == code and capsys.readouterr().err == ""
    whole = path.with_suffix(file).read_bytes()
    for number in range(40):
        path.with_suffix(file).write_bytes(byte_changed(whole, number * 19))
        assert not build.is_made(path)
        assert build.cubin(source, "sm_90", {}) == path and path.read_bytes() == code
        assert capsys.readouterr().err == f"{path}: has no .sha256 beside it that fits: compiling it again\n"
        assert path.with_suffix(file).read_bytes() == whole
    assert len(made) == 41 and build.cubin(source, "sm_90", {}) == path and len(made) == 41
    path.with_suffix(".sha256").unlink()
    assert build.cubin(source, "sm_90", {}) == path and len(made) == 42


def compile_once(path):
    made = []
    run = build._run
    build._run = lambda *arguments: (made.append(1), run(*arguments))
    build.cubin(path, "sm_90", {"VALUE": 3})
    return len(made)


@needs_nvcc
def test_concurrent_ranks_compile_once(source):
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert sum(pool.map(compile_once, [source] * 3, chunksize=1)) == 1


@needs_nvcc
def test_waiting_for_nvcc_is_no_stall(source, monkeypatch):
    """It uses no processor time itself, and must not be taken for stalled."""
    moved = []

    def asleep():
        before = ticks_of(threading.get_native_id())
        time.sleep(0.2)
        return ticks_of(threading.get_native_id()) - before

    monkeypatch.setattr(build, "_compile", lambda nvcc, source, path, *_: (path.touch(), moved.append(asleep())))
    build.cubin(source, "sm_80", {})
    assert moved[0] >= 15 and asleep() < 5


def test_errors_are_one_line(source, cache):
    source.write_text('#include "mgg/vector.cuh"\nint broken = unknown;\n')
    with pytest.raises(MachineError, match=r"k\.cu: does not compile: .*k\.cu\(\d+\): error: ") as caught:
        build.cubin(source, "sm_90", {})
    assert "\n" not in str(caught.value)
    with pytest.raises(MachineError, match="does not compile"):
        build.cubin(source, "sm_1", {})
    assert not list(cache.rglob("*.cubin"))
    cache.chmod(0o700)
    shutil.rmtree(cache)
    cache.write_text("a file in the way")
    source.write_text(KERNEL)
    with pytest.raises(MachineError, match=r"cannot be written: .*XDG_CACHE_HOME"):
        build.cubin(source, "sm_90", {"VALUE": 1})


def test_missing_tools_are_named(source, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(MachineError, match=r"nvcc is missing: pip install 'mgg\[kernels\]'"):
        build.cubin(source, "sm_90", {})
    monkeypatch.undo()
    monkeypatch.setattr(build, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(build, "nvshmem_folder", lambda: None)
    with pytest.raises(MachineError, match=r"NVSHMEM.*pip install"):
        build.cubin(source, "sm_90", {}, nvshmem=True)
    monkeypatch.setattr(build, "nvshmem_folder", lambda: source.parent)
    with pytest.raises(MachineError, match=r"nvshmem_version\.h: cannot be read: .* set NVSHMEM_HOME"):
        build.cubin(source, "sm_90", {}, nvshmem=True)


@needs_nvcc
def test_missing_host_compiler_is_named(source, tmp_path, monkeypatch):
    nvcc = build.find_nvcc()
    monkeypatch.setattr(build, "find_nvcc", lambda: nvcc)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"^nvcc needs a C\+\+ compiler of the host: install g\+\+"):
        build.cubin(source, "sm_90", {"VALUE": 1})


def test_nvcc_is_found_in_its_usual_places(tmp_path, monkeypatch):
    """$CUDA_HOME, this environment's packages, $PATH: the first that has one."""
    homes = [tmp_path / "toolkit", tmp_path / "package", tmp_path / "system"]
    found = [home / "bin" / "nvcc" for home in homes]
    for path in found:
        path.parent.mkdir(parents=True)
        path.touch(0o755)
    monkeypatch.setattr(build, "_package_folders", {"nvidia.cu13": [homes[1]]}.get)
    monkeypatch.setenv("CUDA_HOME", str(homes[0]))
    monkeypatch.setenv("PATH", f"{homes[2] / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert build.find_nvcc() == str(found[0])
    monkeypatch.delenv("CUDA_HOME")
    assert build.find_nvcc() == str(found[1])
    monkeypatch.setattr(build, "_package_folders", lambda _: [])
    assert build.find_nvcc() == str(found[2])


@pytest.mark.skipif(
    not any((folder / "bin" / "nvcc").exists() for folder in build._package_folders("nvidia.cu13")) and not IN_CI,
    reason="the extra kernels is not installed: make kernels installs it",
)
def test_extra_kernels_suffices_to_compile(source, monkeypatch):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # g++ and what it needs, no link to a toolkit
    assert Path(sys.prefix) in Path(build.find_nvcc()).parents
    source.write_text("#include <cuda_fp16.h>\n" + KERNEL)  # which wants the headers of all the extra's packages
    assert build.cubin(source, "sm_100", {"VALUE": 1}).read_bytes()[:4] == b"\x7fELF"


NAMES = ["rows", "narrow_rows", "gather", "columns", "partitions", "cola", "mgg", "pull", "wire", "bags"]
#: Functions of a source whose names are not spmm_ and its own.
FUNCTIONS = {
    "mgg": "mgg",
    "gather": "gather_rows",
    "pull": "halo_pull",
    "bags": "lookup_mgg",
    "narrow_rows": "spmm_narrow",
}


@needs_nvcc
@pytest.mark.parametrize(
    "chosen",
    [
        *(build.build_of(name, 32) for name in NAMES),
        *(build.build_of(name, bits, bf16=True) for name in build.BF16 for bits in (32, 64)),
        *(
            pytest.param(build.build_of("mgg", bits, primitive), marks=[needs_nvshmem, pytest.mark.slow])
            for primitive in ("warp", "thread", "block")
            for bits in (32, 64)
        ),
    ],
    ids=lambda chosen: "-".join([chosen.source, *map(str, chosen.defines.values())]),
)
def test_every_kernel_compiles(chosen, monkeypatch):
    """With 16 bytes a load; of bfloat16 these are eight elements."""
    assert chosen in build.all_builds()
    monkeypatch.setattr(build, "cache_folder", lambda: USERS_CACHE)
    code = build.cubin(chosen.path, "sm_90", chosen.defines, chosen.nvshmem).read_bytes()
    if chosen.source == "wire":
        names = [f"wire_{what}_{bits}" for what in ("pack", "unpack") for bits in (2, 4, 8, 16)]
    else:
        vectors = (1, 2, 4, 8) if "MGG_BF16" in chosen.defines else (1, 2, 4)
        kernel, lanes = (
            FUNCTIONS.get(chosen.source, f"spmm_{chosen.source}"),
            8 if chosen.source == "narrow_rows" else 32,
        )
        names = [f"{kernel}_{each}_{vector}" for each in (4, lanes) for vector in vectors]
    assert all(name.encode() in code for name in names)


@pytest.mark.parametrize("bits", [32, 64])
def test_nvshmem_primitives_are_compiled_beforehand(bits, monkeypatch):
    wanted = [build.build_of("mgg", bits, primitive) for primitive in build.PRIMITIVES]
    for folder, able in ((Path("nvshmem"), wanted), (None, wanted[:1])):
        monkeypatch.setattr(build, "nvshmem_folder", lambda folder=folder: folder)
        assert [one for one in wanted if one in build.all_builds()] == able


#: What each kernel says to the launch before or after it, and what it has done by then.
DEPENDENTS = {
    "pull": ("launch_dependents", r"st\.release\.gpu\.global\.u32.*(membar|fence).*bar\.sync"),
    "halo": ("wait", r"st\.global"),
}


@needs_nvcc
@pytest.mark.parametrize(("name", "arch"), [("pull", "sm_80"), ("pull", "sm_90"), ("halo", "sm_90")])
def test_every_kernel_allows_dependent_launches(name, arch, tmp_path):
    """Every kernel says so once, on its way: kernels/include/mgg/dependents.cuh."""
    said, before = DEPENDENTS[name]
    path, ptx = build.build_of(name, 32).path, tmp_path / "k.ptx"
    flags = [*build.FLAGS, f"-arch={arch}", f"-I{build.source_folder() / 'include'}"]
    subprocess.run([build.find_nvcc(), *flags, "-ptx", str(path), "-o", str(ptx)], check=True)
    kernels = ptx.read_text().split(".entry")[1:]
    wanted = [said] if arch == "sm_90" else []
    assert kernels
    for kernel in kernels:
        assert re.findall(r"griddepcontrol\.(\w+);", kernel) == wanted
        assert not wanted or re.search(before, kernel.partition("griddepcontrol")[0], re.DOTALL)


def reference(schedule, indices, weights, b, rows):
    """What the kernel computes, from the schedule alone."""
    c = np.full((rows, b.shape[1]), np.nan)
    partial = np.full((schedule.slots, b.shape[1]), np.nan)
    for first, count in schedule.tasks:
        for piece in range(first, first + count):
            arcs = slice(schedule.begin[piece], schedule.begin[piece + 1])
            w = 1 if weights is None else weights[arcs, None]
            total = (b[indices[arcs]] * w).sum(axis=0)
            to = schedule.target[piece]
            (c if to >= 0 else partial)[to if to >= 0 else -1 - to] = total
    for i, row in enumerate(schedule.split_rows):
        c[row] = partial[schedule.split_first[i] : schedule.split_first[i + 1]].sum(axis=0)
    return c


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("task", [None, 32, 64, 512])
@pytest.mark.parametrize("name", awkward_graphs())
def test_schedule_covers_every_row_once(name, task, empty):
    csr = awkward_graphs()[name]
    schedule = row_schedule(csr.indptr, task, empty=empty)
    covered = set(schedule.target[schedule.target >= 0]) | set(schedule.split_rows)
    assert covered == set(range(csr.rows) if empty else np.flatnonzero(np.diff(csr.indptr)))
    sizes, lengths = schedule.tasks[:, 1], np.diff(schedule.begin)
    assert np.array_equal(schedule.tasks[:, 0], np.cumsum(sizes) - sizes) and sizes.sum() == len(schedule.target)
    assert sizes.min(initial=1) >= 1 and sizes.max(initial=0) <= PIECES_PER_TASK
    assert lengths.min(initial=0) >= 0 and lengths.max(initial=0) <= (task or LARGEST_TASK)
    assert np.all(np.diff(schedule.split_first) > 1)
    b = np.random.default_rng(0).random((csr.columns, 3))
    found = reference(schedule, csr.indices, csr.weights, b, csr.rows)
    written = sorted(covered)
    assert np.allclose(found[written], (csr.to_scipy(np.float64) @ b)[written], rtol=1e-12)
    assert np.isnan(np.delete(found, written, axis=0)).all()


def test_oracle_of_the_gpu_tests_detects_errors():
    """Of arcs that repeat, in rows of which one has none."""
    rng, indptr = np.random.default_rng(5), np.array([0, 700, 700, 703])
    a = matrix(
        Csr(indptr, rng.integers(0, 500, 703).astype(np.int32), rng.standard_normal(703).astype(np.float32), 500)
    )
    b = np.ones((500, 2), np.float32)
    exact = (a @ b.astype(np.float64)).astype(np.float32)
    assert relative_error(exact, a, b) <= 1e-7
    for row, wrong in ((0, exact[0, 0] + 1e-2), (1, 1e-30), (2, np.nan)):
        found = exact.copy()
        found[row, 0] = wrong
        assert relative_error(found, a, b) > 1e-6


def test_blocks_take_consecutive_tasks():
    schedule = row_schedule(np.arange(0, 40_001, 40), 256)
    assert schedule.blocks(3).tolist() == [*range(0, len(schedule.tasks), 3), len(schedule.tasks)]
    assert row_schedule(np.array([0]), 64).blocks(12).tolist() == [0]


def test_tasks_have_equal_work_for_the_matrix_size():
    small, large = np.arange(0, 1001, 10), np.arange(0, 60_000_001, 30)
    assert np.diff(row_schedule(small).begin).max() == 10
    hub = np.array([0, 5, 100_005, 100_006])
    assert np.diff(row_schedule(hub).begin).max() == SMALLEST_TASK
    made = row_schedule(large)
    work = np.add.reduceat(np.diff(made.begin), made.tasks[:, 0])
    assert LARGEST_TASK / 2 < np.median(work) <= LARGEST_TASK
    assert work.max() <= LARGEST_TASK + 30


def test_slices_of_a_csr_keep_their_arc_numbers():
    indptr = np.array([100, 103, 103, 700])
    schedule = row_schedule(indptr, 64)
    assert schedule.begin[0] == 100 and schedule.begin[-1] == 700
    assert schedule.target[:2].tolist() == [0, 1] and schedule.slots == 10


def test_remote_sources_pack_pe_and_row():
    halo_ptr, halo_rows = np.array([0, 2, 2, 5]), np.array([4, 9, 0, 1, 70_000], np.int32)
    sources = remote_sources(np.array([4, 0, 2], np.int32), halo_ptr, halo_rows)
    assert sources.dtype == np.uint64
    assert [(int(s) >> 48, int(s) & (2**48 - 1)) for s in sources] == [(2, 70_000), (0, 4), (2, 0)]
