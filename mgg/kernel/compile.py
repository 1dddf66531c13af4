"""Compile CUDA sources to cubins with nvcc, cached by everything that affects the result.

``python -m mgg.kernel.compile --arch sm_80 sm_90 sm_100`` compiles every kernel; it needs nvcc, but no GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mgg import files, hashed
from mgg.errors import MachineError, MggError
from mgg.files import sync

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
FLAGS = ("-std=c++17", "-O3", "--generate-line-info")
#: Suffix of the file next to a cubin with the sha256 of its content.
_SEAL = ".sha256"
#: Threads, by ``threading.get_native_id``, that wait for nvcc or for another process that has the lock.
waiting: set[int] = set()
#: Seconds that each thread has waited.
_waited: dict[int, float] = {}
#: How the ``mgg`` kernel fetches remote rows: value of MGG_PRIMITIVE in kernels/aggregate/mgg.cu.
PRIMITIVES = {"direct": 0, "warp": 1, "thread": 2, "block": 3}

#: Kernels that also take bfloat16 embeddings.
BF16 = ("rows", "narrow_rows", "gather", "halo", "pull", "wire")


@dataclass(frozen=True)
class Build:
    """One cubin: a source in kernels/aggregate or kernels/lookup, or the path of a generated one, with its macros."""

    source: str
    defines: Mapping[str, int | str] = field(default_factory=dict)
    nvshmem: bool = False

    @property
    def path(self) -> Path:
        """Path of the source."""
        return Path(self.source) if self.source.endswith(".cu") else _sources()[self.source]


def source_folder() -> Path:
    """Return the folder of the kernels: ``kernels`` in a checkout, package data in a wheel.

    Raises:
        MachineError: neither exists.
    """
    here = Path(__file__).resolve()
    for folder in (here.parents[2] / "kernels", here.parents[1] / "kernels"):
        if (folder / "include" / "mgg").is_dir():
            return folder
    raise MachineError(f"no kernel sources beside {here.parents[1]}: install MGG from its repository or its wheel")


def _sources() -> dict[str, Path]:
    """Return every source by its name."""
    return {path.stem: path for path in sorted(source_folder().glob("*/*.cu"))}


def build_of(
    name: str, index_bits: int, primitive: str = "direct", *, bf16: bool = False, merge: bool = False
) -> Build:
    """Return the build for launching kernels of ``NAME.cu``.

    Args:
        name: rows, narrow_rows, gather, columns, partitions, cola, halo, pull, wire, mgg, gnnadvisor, bags or
            port.
        index_bits: 32 or 64, the width of column ids.
        primitive: for kernel ``mgg``; all but ``direct`` need NVSHMEM.
        bf16: embeddings are bfloat16 (``BF16``).
        merge: blocks of ``mgg`` request each row once; requires ``direct``.
    """
    defines: dict[str, int | str] = {"MGG_INDEX_BITS": index_bits}
    if bf16:
        defines["MGG_BF16"] = 1
    if merge:
        defines["MGG_MERGE"] = 1
    if primitive != "direct":
        defines |= {"MGG_NVSHMEM": 1, "MGG_PRIMITIVE": PRIMITIVES[primitive]}
    return Build(name, defines, primitive != "direct")


def all_builds() -> list[Build]:
    """Return every cubin that techniques and models may need; those with NVSHMEM only if its headers exist."""
    widths = (32, 64)
    builds = [build_of(name, bits) for name in sorted(_sources()) for bits in widths]
    builds += [build_of(name, bits, bf16=True) for name in BF16 for bits in widths]
    builds += [build_of("mgg", bits, merge=True) for bits in widths]
    if nvshmem_folder() is not None:
        builds += [build_of("mgg", bits, primitive) for primitive in ("warp", "thread", "block") for bits in widths]
    return builds


def cubin(source: Path, arch: str, defines: Mapping[str, int | str], nvshmem: bool = False) -> Path:
    """Compile ``source`` unless it is in the cache; ranks that request it at the same time compile it once.

    Args:
        source: a .cu file.
        arch: for example ``sm_90``.
        defines: macros.
        nvshmem: link with NVSHMEM's device library.

    Returns:
        The cubin, in ``$XDG_CACHE_HOME/mgg/kernels``. If its content no longer matches the sha256 file next to it, it
        is compiled again, with a message.

    Raises:
        MachineError: nvcc or NVSHMEM is missing, the source does not compile, or the cache cannot be written.
    """
    path = _made(source, arch, defines, nvshmem, wait=True)
    assert path is not None
    return path


def try_build(build: Build, arch: str) -> Path | None:
    """Return ``cubin`` of a build; None if another thread or process is compiling it."""
    return _made(build.path, arch, build.defines, build.nvshmem, wait=False)


def cubin_path(build: Build, arch: str) -> Path:
    """Return the path of a build's cubin, which may not exist yet; raise MachineError as ``cubin``."""
    return _recipe(build.path, arch, build.defines, build.nvshmem)[0]


def _recipe(
    source: Path, arch: str, defines: Mapping[str, int | str], nvshmem: bool
) -> tuple[Path, str, list[str], list[str]]:
    """Return the path of the cubin, nvcc, its flags and its linker arguments."""
    folder = device_library() if nvshmem else None
    nvcc, flags = find_nvcc(), [*FLAGS, f"-arch={arch}"]
    flags += [f"-D{name}={value}" for name, value in sorted(defines.items())]
    path = cache_folder() / f"{source.stem}-{arch}-{_key(source, nvcc, flags, nvshmem)}.cubin"
    if folder is None:
        return path, nvcc, flags, []
    # Not part of the key, which has NVSHMEM's version: the location of its headers does not matter.
    return path, nvcc, [*flags, f"-I{folder / 'include'}"], [f"-L{folder / 'lib'}", "-lnvshmem_device"]


def _made(source: Path, arch: str, defines: Mapping[str, int | str], nvshmem: bool, *, wait: bool) -> Path | None:
    """Return ``cubin``; without ``wait``, None if another thread or process is compiling it."""
    path, nvcc, flags, libraries = _recipe(source, arch, defines, nvshmem)
    if is_made(path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with compiler_wait(), path.with_suffix(".lock").open("w") as lock:
            if not files.lock(lock, wait=wait):
                return None
            if not is_made(path):
                if path.exists():
                    print(f"{path}: has no .sha256 beside it that fits: compiling it again", file=sys.stderr)
                _compile(nvcc, source, path, [*flags, f"-I{source_folder() / 'include'}"], libraries)
                files.write_text(path.with_suffix(_SEAL), hashed.file_hash(path) + "\n")
    except OSError as error:
        raise MachineError(f"{path}: cannot be written: {error.strerror or error}; set XDG_CACHE_HOME") from None
    return path


def is_made(path: Path) -> bool:
    """Return whether a cubin exists with the content that it was compiled to."""
    try:
        return path.with_suffix(_SEAL).read_bytes().decode("ascii", "replace") == hashed.file_hash(path) + "\n"
    except OSError:
        return False


def check_compiler(arch: str) -> None:
    """Compile a kernel that every job needs, unless it is in the cache.

    Raises:
        MachineError: as ``cubin``.
    """
    cubin_of(build_of("gather", 32), arch)


@contextmanager
def compiler_wait() -> Iterator[None]:
    """Mark this thread as waiting for compilers, so that it does not count as stalled and its work is timed without."""
    thread, began = threading.get_native_id(), time.perf_counter()
    if thread in waiting:  # this wait is nested in a wait for several kernels
        yield
        return
    waiting.add(thread)
    try:
        yield
    finally:
        waiting.discard(thread)
        _waited[thread] = waited() + time.perf_counter() - began


def waited() -> float:
    """Return the seconds that this thread has waited for compilers so far."""
    return _waited.get(threading.get_native_id(), 0.0)


def cache_folder() -> Path:
    """Return the folder of cached cubins."""
    return files.cache_folder("kernels")


def find_nvcc() -> str:
    """Find nvcc in $CUDA_HOME, this Python environment (extra ``kernels``), $PATH or /usr/local/cuda.

    Raises:
        MachineError: nvcc is in none of them.
    """
    home = os.environ.get("CUDA_HOME")
    folders = [f"{home}/bin"] if home else []
    folders += [str(folder / "bin") for folder in _package_folders("nvidia.cu13")]
    for folder in [*folders, None, "/usr/local/cuda/bin"]:
        found = shutil.which("nvcc", path=folder)
        if found:
            return found
    raise MachineError("nvcc is missing: pip install 'mgg[kernels]', or set CUDA_HOME to a CUDA toolkit 12.4 or newer")


@cache
def nvcc_version(nvcc: str) -> str:
    """Return the release and build from ``nvcc --version``."""
    run = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"release .*", run.stdout)
    if run.returncode or not found:
        raise MachineError(f"{nvcc}: does not run: {_first_error(run.stdout + run.stderr)}")
    return found[0]


def nvshmem_folder() -> Path | None:
    """Return the folder with NVSHMEM's ``include`` and ``lib``: $NVSHMEM_HOME or the package nvidia-nvshmem."""
    places = [Path(home)] if (home := os.environ.get("NVSHMEM_HOME")) else []
    places += _package_folders("nvidia.nvshmem")
    return next((place for place in places if (place / "include" / "nvshmem.h").exists()), None)


def device_library(host: str | None = None) -> Path:
    """Return NVSHMEM's folder, for kernels that call it.

    Args:
        host: version of the host library that will run the kernels; NVSHMEM requires the same version.

    Raises:
        MachineError: NVSHMEM is missing, incomplete or of another version.
    """
    folder = nvshmem_folder()
    if folder is None:
        raise MachineError("NVSHMEM's device library is missing: pip install nvidia-nvshmem-cu13, or set NVSHMEM_HOME")
    version = nvshmem_version(folder)
    if host is not None and version != host:
        raise MachineError(
            f"NVSHMEM's device library in {folder} is of version {version} and the host library that nvshmem4py loads"
            f" of {host}: set NVSHMEM_HOME to that one's, or unset it and pip install nvidia-nvshmem-cu13=={host}"
        )
    return folder


def _package_folders(name: str) -> list[Path]:
    """Return the folders of NVIDIA's Python packages of this name; empty if none is installed."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    return [Path(place) for place in (spec.submodule_search_locations or [] if spec else [])]


def nvshmem_version(folder: Path) -> str:
    """Return the version in NVSHMEM's headers, for example 3.4.5.

    Raises:
        MachineError: the headers lack a version.
    """
    header = folder / "include" / "non_abi" / "nvshmem_version.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MachineError(
            f"{header}: cannot be read: {error.strerror}; set NVSHMEM_HOME to a whole NVSHMEM, or unset it"
        ) from None
    found = re.findall(r"define NVSHMEM_VENDOR_(?:MAJOR|MINOR|PATCH)_VERSION (\d+)", text)
    if len(found) != len(("major", "minor", "patch")):
        raise MachineError(f"{header}: says no version of NVSHMEM; set NVSHMEM_HOME to another NVSHMEM, or unset it")
    return ".".join(found)


def _key(source: Path, nvcc: str, flags: list[str], nvshmem: bool) -> str:
    folder = nvshmem_folder()
    digest = hashlib.sha256("\0".join([*flags, nvcc_version(nvcc)]).encode())
    if nvshmem and folder is not None:
        digest.update(nvshmem_version(folder).encode())
    digest.update(_contents(source))
    return digest.hexdigest()[:32]


def source_hash(build: Build) -> str:
    """Return the sha256 of a build's sources, macros and flags, which needs no compiler."""
    digest = hashlib.sha256("\0".join([*FLAGS, *(f"{name}={value}" for name, value in build.defines.items())]).encode())
    digest.update(_contents(build.path))
    return digest.hexdigest()


def _contents(source: Path) -> bytes:
    """Return the contents of a source and all headers, with their names."""
    files = [source, *sorted((source_folder() / "include").rglob("*.cuh"))]
    return b"".join(f"\0{path.name}\0".encode() + path.read_bytes() for path in files)


def _compile(nvcc: str, source: Path, path: Path, flags: list[str], libraries: list[str]) -> None:
    """Compile to ``path``, which is written as a whole or not at all."""
    part, unlinked = path.with_suffix(f".{os.getpid()}.part"), path.with_suffix(f".{os.getpid()}.unlinked.cubin")
    try:
        if libraries:
            arch = next(flag for flag in flags if flag.startswith("-arch="))
            # Not -dc, which would compile NVSHMEM's headers again, for the host.
            _run(source, [nvcc, *flags, "-rdc=true", "-cubin", str(source), "-o", str(unlinked)])
            _run(source, [nvcc, arch, "-dlink", "-cubin", str(unlinked), *libraries, "-o", str(part)])
        else:
            _run(source, [nvcc, *flags, "-cubin", str(source), "-o", str(part)])
        sync(part)
        part.replace(path)
    finally:
        for leftover in (part, unlinked):
            leftover.unlink(missing_ok=True)


def _run(source: Path, command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    output = run.stderr + run.stdout
    if run.returncode and "preprocess host compiler" in output:
        raise MachineError(
            "nvcc needs a C++ compiler of the host: install g++ (apt-get install g++, dnf install gcc-c++)"
        )
    if run.returncode:
        raise MachineError(f"{source}: does not compile: {_first_error(output)}")


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next(
        (line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)), (lines or ["no output"])[0]
    )


def main(arguments: list[str] | None = None) -> int:
    """Compile every kernel for the given architectures; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mgg.kernel.compile", description="Compile every kernel.")
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES, metavar="ARCH", help="for example sm_90")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="compilers at once")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    try:
        # The slowest builds come first, so that none runs alone at the end.
        builds = sorted(all_builds(), key=lambda build: not build.nvshmem)
        jobs = [(build, arch) for build in builds for arch in options.arch]
        with ThreadPoolExecutor(options.workers) as pool:
            for path in pool.map(lambda job: cubin_of(*job), jobs):
                print(path)
    except MggError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if nvshmem_folder() is None:
        print("note: NVSHMEM is not installed; its primitives were left out", file=sys.stderr)
    print(f"{len(jobs)} cubins in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return 0


def cubin_of(build: Build, arch: str) -> Path:
    """Return ``cubin`` of a build."""
    return cubin(build.path, arch, build.defines, build.nvshmem)


if __name__ == "__main__":
    sys.exit(main())
