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
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
        self._begun: dict[Path, tuple[Build, str]] = {}
        self._futures: list[Future[Path | None]] = []
        self._told: list[_Told] = []

    def expect(self, builds: Sequence[Build]) -> None:
        """Have the next ``start`` compile ``builds``, too."""
        self._expected += [build for build in builds if build not in self._expected]

    def start(self, arch: str, place: int = 0, ranks: int = 1) -> None:
        """Begin to compile what is expected and not in the cache; returns at once.

        Args:
            arch: of the GPU, for example ``sm_90``.
            place, ranks: of this process, among those of its host that call this alike.

        Raises:
            MachineError: nvcc or NVSHMEM is missing.
        """
        found = {kernels.cubin_path(build, arch): build for build in self._expected}
        todo = [path for path in found if path not in self._begun and not kernels.is_made(path)]
        self._begun |= {path: (found[path], arch) for path in todo}
        if not todo:
            return
        cores = len(os.sched_getaffinity(0))
        told = _Told(len(todo), arch, min(len(todo), cores * ranks), lambda: sum(map(kernels.is_made, todo)))
        self._told.append(told)
        first = place * len(todo) // ranks
        pool = ThreadPoolExecutor(min(cores, len(todo)), thread_name_prefix="nvcc")
        for path in todo[first:] + todo[:first]:
            made = pool.submit(kernels.try_build, found[path], arch)
            made.add_done_callback(lambda _: told.look())
            self._futures.append(made)
        pool.shutdown(wait=False)

    def finish(self) -> None:
        """Wait for all that ``start`` has begun, here or in other processes.

        Raises:
            MachineError: as ``cubin``.
        """
        with kernels.waits():
            for made in self._futures:
                made.result()
            for build, arch in self._begun.values():
                kernels.cubin_of(build, arch)
        for each in self._told:
            each.look()
        self._futures.clear()
        self._told.clear()


class _Told:
    """Says how far the compilers of a host are, in one of its processes: the one that gets the lock."""

    def __init__(self, count: int, arch: str, at_once: int, done: Callable[[], int]) -> None:
        self._text = f"compiling {count} kernel{'s' * (count > 1)} for {arch}, {at_once} at a time"
        self._count, self._done, self._said = count, done, time.monotonic()
        self._lock = threading.Lock()
        self._file: TextIO | None = _taken(kernels.cache_folder() / f"compiling-{arch}.lock")
        if self._file is not None:
            print(self._text, file=sys.stderr, flush=True)

    def look(self) -> None:
        """Say it if it is due."""
        with self._lock:
            if self._file is None:
                return
            done = self._done()
            if done == self._count or time.monotonic() - self._said >= EVERY:
                self._said = time.monotonic()
                print(f"{self._text}: {done} done", file=sys.stderr, flush=True)
            if done == self._count:
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
