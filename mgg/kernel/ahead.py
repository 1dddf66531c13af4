"""Kernels that a job is known to need, compiled before it asks for them: side by side, while the job starts.

The ranks of a host share the work by the locks of the cache: each begins at another kernel, and passes over those that
others are at.
"""

from __future__ import annotations

import fcntl
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
from mgg.kernel import compile as kernels
from mgg.kernel.compile import Build

#: Seconds between two lines that say how far compilers are.
EVERY = 2.0


class Ahead:
    """The kernels of a process. ``expect`` says which, once or more often; whoever has a GPU calls ``start``."""

    def __init__(self) -> None:
        self._expected: list[Build] = []
        self._begun: set[Path] = set()
        self._futures: list[Future[Path | None]] = []
        self._pools: list[ThreadPoolExecutor] = []
        self._told = _Told()
        self._place, self._ranks, self._cores = 0, 1, 0
        self._lock = threading.RLock()  # PEs may be threads of one process

    def share(self, place: int, ranks: int, cores: int) -> None:
        """Have what is started from now on shared out: this process is number ``place`` of ``ranks`` of its host.

        Args:
            place, ranks: of this process, among those that start the same kernels.
            cores: that these ranks may use, all of them together; 0: those of this process.
        """
        self._place, self._ranks, self._cores = place, ranks, cores

    def expect(self, builds: Sequence[Build]) -> None:
        """Have the next ``start`` compile ``builds``, too."""
        with self._lock:
            self._expected += [build for build in builds if build not in self._expected]

    def start(self, arch: str) -> None:
        """Begin to compile what is expected and not in the cache; returns at once.

        Kernels that need a missing NVSHMEM are skipped: the technique that asks for one is refused.

        Args:
            arch: of the GPU, for example ``sm_90``.

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
        self._told.begin(todo, arch, mine * self._ranks)
        first = self._place * len(todo) // self._ranks
        pool = ThreadPoolExecutor(min(mine, len(todo)), thread_name_prefix="nvcc")
        self._pools.append(pool)
        for path in todo[first:] + todo[:first]:
            made = pool.submit(kernels.try_build, found[path], arch)
            made.add_done_callback(lambda _: self._told.look())
            self._futures.append(made)
        pool.shutdown(wait=False)

    def finish(self, builds: Sequence[Build], arch: str, *, must: bool) -> None:
        """Wait for all that ``start`` has begun here, and for ``builds`` wherever they are compiled.

        Args:
            builds: that are asked for.
            arch: as of ``start``.
            must: without it, a build that cannot be compiled is left to whoever asks for it.

        Raises:
            MachineError: as ``cubin``, of one of ``builds``.
        """
        with kernels.waits(), self._lock:
            for made in self._futures:
                made.exception()
            self._futures.clear()
            for build in builds:
                with nullcontext() if must else suppress(MachineError):
                    kernels.cubin_of(build, arch)
            self._told.look()

    def cancel(self) -> None:
        """Begin no more compilers: the job ends."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)


class _Told:
    """Says how far the compilers of a host are, in one of its processes: the one that gets the lock."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._text, self._said = "", 0.0
        self._lock = threading.RLock()
        self._file: TextIO | None = None

    def begin(self, paths: Sequence[Path], arch: str, at_once: int) -> None:
        """So many of ``paths``, and of those that are still under way, are compiled ``at_once``."""
        with self._lock:
            self.look()  # another rank may have ended, and said, what this one began
            self._file = self._file or _taken(kernels.cache_folder() / "compiling.lock")
            self._paths += paths
            count = len(self._paths)
            self._text = f"compiling {count} kernel{'s' * (count > 1)} for {arch}, {min(at_once, count)} at a time"
            self._said = time.monotonic()
            if self._file is not None:
                print(self._text, file=sys.stderr, flush=True)

    def look(self) -> None:
        """Say it if it is due."""
        with self._lock:
            if not self._paths:
                return
            done = sum(map(kernels.is_made, self._paths))
            over = done == len(self._paths)
            if self._file is not None and (over or time.monotonic() - self._said >= EVERY):
                self._said = time.monotonic()
                print(f"{self._text}: {done} done", file=sys.stderr, flush=True)
            if over:
                self._paths.clear()
                if self._file is not None:
                    self._file.close()
                    self._file = None


def _taken(path: Path) -> TextIO | None:
    """``path``, locked by this process; None where another one has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:
        raise MachineError(f"{path}: cannot be written: {error.strerror or error}; set XDG_CACHE_HOME") from None
    return file


#: Those of this process.
ahead = Ahead()
