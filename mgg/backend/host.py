"""Base classes for CPU PEs: arrays are in host memory, and every call finishes its work before it returns."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mgg.backend.api import Array, Clock, Emulated, Outside, Repeated, SideWork, SymmetricArray, Timeline
from mgg.backend.mapped import MappedFile


class HostClock:
    """A ``Clock`` for CPU PEs."""

    def start(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def stop(self) -> float:
        """Return the seconds since ``start``."""
        return time.perf_counter() - self._start


class HostTimeline:
    """A ``Timeline`` for CPU PEs."""

    def __init__(self) -> None:
        self._stack = ["other"]
        self._spent: dict[str, float] = {}
        self._since = time.perf_counter()

    def enter(self, phase: str) -> None:
        """Enter a phase."""
        self._switch()
        self._stack.append(phase)

    def leave(self) -> None:
        """Leave the current phase."""
        self._switch()
        self._stack.pop()

    def collect(self) -> dict[str, float]:
        """Return the seconds per phase and reset them."""
        self._switch()
        spent, self._spent = self._spent, {}
        return spent

    def _switch(self) -> None:
        now = time.perf_counter()
        self._spent[self._stack[-1]] = self._spent.get(self._stack[-1], 0.0) + now - self._since
        self._since = now


class DoneWork:
    """A ``SideWork`` that was finished when its block ended."""

    def wait(self) -> None:
        """Do nothing."""


class CpuArrayMethods(ABC):
    """The array methods of a World of CPU PEs: arrays are NumPy's, and host and device memory are the same."""

    xp = np
    shmem = False
    emulated: Emulated | None = None

    size: int

    @property
    def addressable(self) -> Sequence[int]:
        """Return all PEs: ``get_rows`` reaches the PEs that loads do not."""
        return range(self.size)

    @abstractmethod
    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective)."""

    def managed(self, elements: int) -> SymmetricArray:
        """Allocate ``symmetric``: CPUs have one kind of memory."""
        return self.symmetric(elements)

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """Allocate ``symmetric``: CPUs have one kind of memory."""
        return self.symmetric(elements)

    def outside(self, size: int) -> Outside:
        """Return a mapped file."""
        return MappedFile(size)

    def transfer(self, target: Array, source: Array) -> None:
        """Copy ``source`` to ``target``."""
        np.copyto(target, source)

    def check_shmem(self) -> None:
        """Do nothing: no kernel of a CPU PE calls NVSHMEM."""
        return None

    def measure_memory(self) -> None:
        """Do nothing: there is no GPU."""
        return None

    def peak_memory(self) -> int | None:
        """Return None: there is no GPU."""
        return None

    def free_memory(self) -> int | None:
        """Return None: the system overcommits RAM, so its free bytes are no limit."""
        return None

    def upload(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def download(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def repeated(self, work: Callable[[Array], tuple[Array, Any]], entries: int) -> Repeated | None:
        """Return None: CPU PEs work at the call and submit nothing."""
        return None

    def clock(self) -> Clock:
        """Return a clock of the host."""
        return HostClock()

    def timeline(self) -> Timeline:
        """Return a timeline of the host."""
        return HostTimeline()

    def note_collective(self, what: str) -> None:
        """Do nothing: launches on CPU PEs do not wait for other PEs."""
        return None

    def side_stream(self) -> AbstractContextManager[SideWork]:
        """Run the enclosed work at once."""
        return nullcontext(DoneWork())
