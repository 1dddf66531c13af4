"""Compile kernels in parallel before a job needs them, while the job starts.

The ranks of a host share the work through the cache's locks: each starts at a different kernel and skips those that
other ranks are compiling.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TextIO

from mgg.errors import MachineError
from mgg.files import lock
from mgg.kernel import compile as kernels
from mgg.kernel.compile import Build

#: Seconds between two progress lines.
EVERY = 2.0


class Ahead:
    """The kernels of a process: ``expect`` registers them, once or repeatedly; a process with a GPU calls ``start``."""

    def __init__(self) -> None:
        self._expected: list[Build] = []
        self._begun: set[Path] = set()
        self._futures: list[Future[Path | None]] = []
        self._pools: list[ThreadPoolExecutor] = []
        self._progress = _Progress()
        self._place, self._ranks, self._cores = 0, 1, 0
        self._lock = threading.RLock()  # PEs may be threads of one process

    def share(self, place: int, ranks: int, cores: int) -> None:
        """Split the work of later ``start`` calls: this process is number ``place`` of ``ranks`` on its host.

        Args:
            place, ranks: position of this process, and number of processes that start the same kernels.
            cores: number of cores for all these ranks together; 0: the cores of this process.
        """
        self._place, self._ranks, self._cores = place, ranks, cores

    def expect(self, builds: Sequence[Build]) -> None:
        """Add ``builds`` to what the next ``start`` compiles."""
        with self._lock:
            self._expected += [build for build in builds if build not in self._expected]

    def start(self, arch: str) -> None:
        """Start compiling the expected kernels that are not in the cache; return at once.

        Kernels that need a missing NVSHMEM are skipped; a technique that needs one is refused later.

        Args:
            arch: architecture of the GPU, for example ``sm_90``.

        Raises:
            MachineError: nvcc is missing.
        """
        with self._lock:
            self._start(arch)

    def _start(self, arch: str) -> None:
        found = {}
        for build in self._expected:
            with suppress(MachineError) if build.nvshmem else nullcontext():
                found[kernels.cubin_path(build, arch)] = build
        todo = [path for path in found if path not in self._begun and not kernels.is_made(path)]
        self._begun.update(todo)
        if not todo:
            return
        mine = max(1, (self._cores or len(os.sched_getaffinity(0))) // self._ranks)
        self._progress.begin(todo, arch, mine * self._ranks)
        first = self._place * len(todo) // self._ranks
        pool = ThreadPoolExecutor(min(mine, len(todo)), thread_name_prefix="nvcc")
        self._pools.append(pool)
        for path in todo[first:] + todo[:first]:
            made = pool.submit(kernels.try_build, found[path], arch)
            made.add_done_callback(lambda _: self._progress.look())
            self._futures.append(made)
        pool.shutdown(wait=False)

    def finish(self, builds: Sequence[Build], arch: str, *, must: bool) -> None:
        """Wait for everything that ``start`` began here, and for ``builds``, whichever process compiles them.

        Args:
            builds: the kernels that are needed now.
            arch: as for ``start``.
            must: raise for builds that fail to compile; otherwise the error appears when such a kernel is used.

        Raises:
            MachineError: as ``cubin``, for one of ``builds``.
        """
        with kernels.compiler_wait(), self._lock:
            for made in self._futures:
                made.exception()
            self._futures.clear()
            for build in builds:
                with nullcontext() if must else suppress(MachineError):
                    kernels.cubin_of(build, arch)
            self._progress.look()

    def cancel(self) -> None:
        """Start no more compilers, because the job ends."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)


class _Progress:
    """Progress output of a host's compilers, printed by the one process that gets the lock."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._text, self._said = "", 0.0
        self._lock = threading.RLock()
        self._file: TextIO | None = None
        self._stream = sys.stderr

    def begin(self, paths: Sequence[Path], arch: str, at_once: int) -> None:
        """Add ``paths`` to the running compilations; ``at_once`` of them run in parallel."""
        with self._lock:
            self.look()  # another rank may have finished, and reported, what this one began
            self._file = self._file or _taken(kernels.cache_folder() / "compiling.lock")
            self._paths += paths
            count = len(self._paths)
            self._text = f"compiling {count} kernel{'s' * (count > 1)} for {arch}, {min(at_once, count)} at a time"
            self._said = time.monotonic()
            # Compilers end while the start of NVSHMEM redirects sys.stderr.
            self._stream = sys.stderr
            if self._file is not None:
                print(self._text, file=self._stream, flush=True)

    def look(self) -> None:
        """Print the progress if it is due."""
        with self._lock:
            if not self._paths:
                return
            done = sum(map(kernels.is_made, self._paths))
            over = done == len(self._paths)
            if self._file is not None and (over or time.monotonic() - self._said >= EVERY):
                self._said = time.monotonic()
                print(f"{self._text}: {done} done", file=self._stream, flush=True)
            if over:
                self._paths.clear()
                if self._file is not None:
                    self._file.close()
                    self._file = None


def _taken(path: Path) -> TextIO | None:
    """Open and lock ``path``; return None if another process has the lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
        if lock(file):
            return file
    except OSError as error:
        raise MachineError(f"{path}: cannot be written: {error.strerror or error}; set XDG_CACHE_HOME") from None
    file.close()
    return None


#: The kernels of this process.
ahead = Ahead()
