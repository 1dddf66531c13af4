"""The seam between techniques and what carries them: ``World``, its symmetric arrays and its byte counters.

A technique is one SPMD function over a ``World``: every PE calls the same collective methods in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from mgg.errors import MggError
from mgg.kernel.operators import Operators
from mgg.record import Machine, my_cores, this_machine

#: Seconds after which a PE that waits for others gives up with a PeError: nothing hangs.
DEFAULT_TIMEOUT = 600.0
#: Threads of a CPU PE's dense products: a PE is one core, and its bits do not depend on the machine's cores or load.
THREADS_PER_PE = 1


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
    peers: dict[int, np.ndarray]
    handle: Any = None

    @property
    def local(self) -> np.ndarray:
        """This PE's copy."""
        return self.peers[self.rank]

    def view(self, rows: int, columns: int) -> SymmetricArray:
        """The first ``rows * columns`` elements as a matrix; every PE must take the same shape."""
        peers = {pe: copy[: rows * columns].reshape(rows, columns) for pe, copy in self.peers.items()}
        return SymmetricArray(self.rank, peers, self.handle)


class World(Protocol):
    """The PEs of a job, seen from one of them."""

    name: str
    rank: int
    size: int
    counters: Counters

    @property
    def operators(self) -> Operators:
        """The arithmetic of this PE's device."""

    def symmetric(self, elements: int) -> SymmetricArray:
        """Allocate ``elements`` float32 zeros on every PE (collective; ``elements`` must agree)."""

    def free(self, array: SymmetricArray) -> None:
        """Free a symmetric array (collective)."""

    def get_rows(self, source: SymmetricArray, pe: int, rows: np.ndarray, out: np.ndarray) -> None:
        """Fetch ``source[rows]`` of PE ``pe`` into ``out`` [len(rows), columns]; a row asked for twice moves twice."""

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: np.ndarray) -> None:
        """Write ``values`` [k, columns] into rows first .. first + k of PE ``pe``'s ``target``."""

    def signal(self, pe: int) -> None:
        """Tell PE ``pe`` that every row put there before has arrived."""

    def wait_signal(self, pe: int) -> None:
        """Wait for the next signal from PE ``pe``; raises PeError after the time limit."""

    def broadcast(self, values: np.ndarray, root: int) -> None:
        """Copy ``values`` of PE ``root`` into ``values`` of every PE (collective)."""

    def barrier(self) -> None:
        """Wait until every PE is here and its writes are visible; raises PeError after the time limit."""

    def all_reduce(self, values: np.ndarray) -> np.ndarray:
        """Sum over PEs, in float64 and rank order, so that every PE and every run gets the same bits (collective)."""

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
    return this_machine(cores=set().union(*world.gather(my_cores())))


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
