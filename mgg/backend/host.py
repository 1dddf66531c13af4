"""CPU PEs: their arrays are in host memory, and what they are told to do is done when the call returns."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mgg.backend.api import Array, Clock, Emulated, Outside, Repeated, SymmetricArray, Timeline, Work
from mgg.backend.mapped import MappedFile


class HostClock:
    """The clock of CPU PEs, whose work is done when its call returns."""

    def start(self) -> None:
        """Begin."""
        self._start = time.perf_counter()

    def stop(self) -> float:
        """Seconds since ``start``."""
        return time.perf_counter() - self._start


class HostTimeline:
    """That of CPU PEs, whose work is done when its call returns."""

    def __init__(self) -> None:
        self._stack = ["other"]
        self._spent: dict[str, float] = {}
        self._since = time.perf_counter()

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self._switch()
        self._stack.append(phase)

    def leave(self) -> None:
        """End it."""
        self._switch()
        self._stack.pop()

    def collect(self) -> dict[str, float]:
        """The sums, which start anew."""
        self._switch()
        spent, self._spent = self._spent, {}
        return spent

    def _switch(self) -> None:
        now = time.perf_counter()
        self._spent[self._stack[-1]] = self._spent.get(self._stack[-1], 0.0) + now - self._since
        self._since = now


class DoneWork:
    """The work of CPU PEs, which is done when its block has ended."""

    def wait(self) -> None:
        """Nothing to wait for."""


class HostArrays(ABC):
    """What a World of CPU PEs does with arrays: they are NumPy's, and host and device are one."""

    xp = np
    shmem = False
    emulated: Emulated | None = None

    size: int

    @property
    def addressable(self) -> Sequence[int]:
        """All PEs: where loads do not reach, get_rows does."""
        return range(self.size)

    @abstractmethod
    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective)."""

    def managed(self, elements: int) -> SymmetricArray:
        """The same: CPUs have one kind of memory."""
        return self.symmetric(elements)

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """The same: CPUs have one kind of memory."""
        return self.symmetric(elements)

    def outside(self, size: int) -> Outside:
        """A mapped file."""
        return MappedFile(size)

    def transfer(self, target: Array, source: Array) -> None:
        """A copy."""
        np.copyto(target, source)

    def check_shmem(self) -> None:
        """Nothing to see to: no kernel calls NVSHMEM."""
        return None

    def measure_memory(self) -> None:
        """There is no GPU."""
        return None

    def peak_memory(self) -> int | None:
        """There is no GPU."""
        return None

    def free_memory(self) -> int | None:
        """Not asked: the system gives out more RAM than there is."""
        return None

    def upload(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def download(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def repeated(self, work: Callable[[Array], tuple[Array, Any]], entries: int) -> Repeated | None:
        """None: what a CPU PE calls is done, not submitted."""
        return None

    def clock(self) -> Clock:
        """A clock of the host."""
        return HostClock()

    def timeline(self) -> Timeline:
        """That of the host."""
        return HostTimeline()

    def met(self, what: str) -> None:
        """Nothing to see to: what a CPU PE calls ends by itself."""
        return None

    def aside(self) -> AbstractContextManager[Work]:
        """The enclosed work is done at once."""
        return nullcontext(DoneWork())
