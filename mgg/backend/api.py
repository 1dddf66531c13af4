"""The seam between techniques and what carries them: ``World``, its symmetric arrays and its byte counters.

A technique is one SPMD function over a ``World``: every PE calls the same collective methods in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np

from mgg.errors import MggError
from mgg.kernel.operators import Operators
from mgg.record import Machine, my_cores, this_machine

#: Seconds after which a PE that waits for others gives up with a PeError: nothing hangs.
DEFAULT_TIMEOUT = 600.0
#: Threads of a CPU PE's dense products: a PE is one core, and its bits do not depend on the machine's cores or load.
THREADS_PER_PE = 1
#: An array of the PE's device: numpy.ndarray on CPUs, cupy.ndarray on GPUs (CuPy has no types to check against).
Array = Any


@dataclass
class Counters:
    """Bytes that other PEs' data took to or from this PE, by operation; local copies do not count.

    Each byte is counted once, on one side: get and broadcast where it arrives, put where it leaves.
    """

    bytes: dict[str, int] = field(default_factory=dict)

    def add(self, operation: str, count: int) -> None:
        """Add ``count`` bytes to ``operation`` (get, put, broadcast or all_reduce)."""
        self.bytes[operation] = self.bytes.get(operation, 0) + count

    def embeddings(self) -> int:
        """Bytes of embeddings: everything but the all-reduces of losses and gradients."""
        return sum(count for operation, count in self.bytes.items() if operation != "all_reduce")


@dataclass
class SymmetricArray:
    """A float32 array of the same number of elements on every PE, remotely readable and writable.

    Attributes:
        rank: this PE.
        peers: PE -> its copy, for every PE whose memory this one can address, itself included.
        handle: what the backend needs to reach the others; views share it.
    """

    rank: int
    peers: dict[int, Array]
    handle: Any = None

    @property
    def local(self) -> Array:
        """This PE's copy."""
        return self.peers[self.rank]

    def view(self, rows: int, columns: int) -> SymmetricArray:
        """The first ``rows * columns`` elements as a matrix; every PE must take the same shape."""
        peers = {pe: copy[: rows * columns].reshape(rows, columns) for pe, copy in self.peers.items()}
        return SymmetricArray(self.rank, peers, self.handle)


class Clock(Protocol):
    """Times the work that a PE submits between ``start`` and ``stop``."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> float:
        """Wait until the work submitted since ``start`` is done; seconds it took."""


class HostClock:
    """The clock of CPU PEs, whose work is done when its call returns."""

    def start(self) -> None:
        """Begin."""
        self._start = time.perf_counter()

    def stop(self) -> float:
        """Seconds since ``start``."""
        return time.perf_counter() - self._start


class HostArrays:
    """What a World of CPU PEs does with arrays: they are NumPy's, and host and device are one."""

    xp = np

    def upload(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def download(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def clock(self) -> Clock:
        """A clock of the host."""
        return HostClock()


class World(Protocol):
    """The PEs of a job, seen from one of them.

    Attributes:
        name: config value of the backend.
        rank: this PE.
        size: number of PEs.
        counters: bytes that this PE moved.
        gpu: model of this PE's GPU; empty on CPUs.
    """

    name: str
    rank: int
    size: int
    counters: Counters
    gpu: str

    @property
    def xp(self) -> ModuleType:
        """The array module of this PE's device: numpy or cupy."""

    @property
    def operators(self) -> Operators:
        """The arithmetic of this PE's device."""

    def upload(self, array: np.ndarray) -> Array:
        """``array`` on this PE's device; on CPUs the array itself."""

    def download(self, array: Array) -> np.ndarray:
        """``array`` of this PE's device in host memory, once it has been computed; on CPUs the array itself."""

    def clock(self) -> Clock:
        """A clock for work of this PE's device."""

    def symmetric(self, elements: int) -> SymmetricArray:
        """Allocate ``elements`` float32 zeros on every PE (collective; ``elements`` must agree)."""

    def free(self, array: SymmetricArray) -> None:
        """Free a symmetric array (collective)."""

    def get_rows(self, source: SymmetricArray, pe: int, rows: Array, out: Array) -> None:
        """Fetch ``source[rows]`` of PE ``pe`` into ``out`` [len(rows), columns]; a row asked for twice moves twice."""

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array) -> None:
        """Write ``values`` [k, columns] into rows first .. first + k of PE ``pe``'s ``target``."""

    def signal(self, pe: int) -> None:
        """Tell PE ``pe`` that every row put there before has arrived."""

    def wait_signal(self, pe: int) -> None:
        """Wait for the next signal from PE ``pe``; raises PeError after the time limit."""

    def broadcast(self, values: Array, root: int, source: SymmetricArray | None = None) -> None:
        """Copy ``values`` of PE ``root`` into ``values`` of every PE (collective); in host or device memory.

        Args:
            values: an array of the same shape on every PE.
            root: the PE whose values count.
            source: the symmetric matrix whose first rows the root's ``values`` are, if they are: the others may then
                read them there, and the root writes them again only after the next barrier.
        """

    def barrier(self) -> None:
        """Wait until every PE is here and its writes are visible; raises PeError after the time limit."""

    def all_reduce(self, values: Array) -> Array:
        """Sum over PEs, in float64 and rank order, so that every PE and every run gets the same bits (collective).

        The sum is where ``values`` is, in host or device memory.
        """

    def gather(self, value: Any) -> list[Any]:
        """Every PE's ``value``, in rank order, on every PE (collective; small control data only)."""

    def close(self) -> None:
        """Free every symmetric array (collective, explicit: never from a destructor)."""


T = TypeVar("T")


def name_pes(pes: list[int]) -> str:
    """``PE 3`` or ``PEs 1, 2``, for messages."""
    return f"PE {pes[0]}" if len(pes) == 1 else f"PEs {', '.join(map(str, pes))}"


def job_machine(world: World) -> Machine:
    """The machine of the whole job, for records (collective)."""
    members = world.gather((my_cores(), world.gpu))
    return this_machine(set().union(*(cores for cores, _ in members)), [gpu for _, gpu in members if gpu])


def together(world: World, action: Callable[[], T]) -> T:
    """Run ``action`` on every PE; if it fails anywhere, every PE raises the error of the lowest such PE (collective).

    So a job whose PEs read different files ends with one line and one exit code instead of a hang.
    """
    result, error = None, None
    try:
        result = action()
    except MggError as caught:
        error = caught
    for failed in world.gather(error):
        if failed is not None:
            raise failed.on_every_pe()
    return result  # type: ignore[return-value]
