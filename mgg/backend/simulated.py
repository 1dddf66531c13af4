"""Backend ``simulated``: N PEs as threads of one process, so that everything runs and is debugged without MPI."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from mgg.backend.api import (
    DEFAULT_TIMEOUT,
    THREADS_PER_PE,
    Counters,
    HostArrays,
    SymmetricArray,
    World,
    name_pes,
)
from mgg.errors import PeError
from mgg.kernel import cpu
from mgg.kernel.operators import Operators

T = TypeVar("T")

_POLL = 0.1  # seconds between looks at whether a PE has failed
_GRACE = 2.0  # seconds that the other PEs get to end after a failure


class _PeerFailedError(Exception):
    """Another PE failed; this one only has to end."""


class _Shared:
    """What the PEs of one job have in common."""

    def __init__(self, size: int, timeout: float):
        self.size = size
        self.timeout = timeout
        self.slots: list[Any] = [None] * size
        self.rendezvous = threading.Barrier(size)
        self.signals: dict[tuple[int, int], threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self.signals_lock = threading.Lock()
        self.failed = threading.Event()
        self.arrivals = [0] * size  # barriers that each PE has come to

    def fail(self) -> None:
        self.failed.set()
        self.rendezvous.abort()

    def signal(self, source: int, target: int) -> threading.Semaphore:
        with self.signals_lock:
            return self.signals[source, target]


class SimulatedWorld(HostArrays):
    """One thread's view of the job; see ``World`` for the methods."""

    name = "simulated"
    gpu = ""
    operators: Operators = cpu

    def __init__(self, rank: int, shared: _Shared):
        self.rank = rank
        self.size = shared.size
        self.counters = Counters()
        self._shared = shared

    def symmetric(self, elements: int) -> SymmetricArray:
        """Allocate zeros on every PE (collective)."""
        return SymmetricArray(self.rank, dict(enumerate(self.gather(np.zeros(elements, np.float32)))))

    def free(self, array: SymmetricArray) -> None:
        """Drop every PE's copy (collective)."""
        self.barrier()
        array.peers = {}

    def get_rows(self, source: SymmetricArray, pe: int, rows: np.ndarray, out: np.ndarray) -> None:
        """Fetch rows of PE ``pe``."""
        cpu.gather_rows(source.peers[pe], rows, out)
        if pe != self.rank:
            self.counters.add("get", out.nbytes)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: np.ndarray) -> None:
        """Write rows of PE ``pe``."""
        target.peers[pe][first : first + len(values)] = values
        if pe != self.rank:
            self.counters.add("put", values.nbytes)

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``."""
        self._shared.signal(self.rank, pe).release()

    def wait_signal(self, pe: int) -> None:
        """Wait for PE ``pe``'s signal."""
        deadline = time.monotonic() + self._shared.timeout
        # Wake up now and then to see whether the PE that should signal has failed.
        while not self._shared.signal(pe, self.rank).acquire(timeout=_POLL):
            if self._shared.failed.is_set():
                raise _PeerFailedError
            if time.monotonic() > deadline:
                raise PeError(f"PE {self.rank}: no signal from PE {pe} within {self._shared.timeout:g} s")

    def broadcast(self, values: np.ndarray, root: int, source: SymmetricArray | None = None) -> None:
        """Copy PE ``root``'s values everywhere (collective)."""
        shared = self._shared
        if self.rank == root:
            shared.slots[root] = values
        self.barrier()
        if self.rank != root:
            values[...] = shared.slots[root]
            self.counters.add("broadcast", values.nbytes)
        self.barrier()

    def barrier(self) -> None:
        """Wait for every PE."""
        shared = self._shared
        shared.arrivals[self.rank] += 1
        try:
            shared.rendezvous.wait(shared.timeout)
        except threading.BrokenBarrierError:
            if shared.failed.is_set():
                raise _PeerFailedError from None
            away = [pe for pe, count in enumerate(shared.arrivals) if count < shared.arrivals[self.rank]]
            shared.fail()
            raise PeError(f"{name_pes(away)} did not reach a barrier within {shared.timeout:g} s") from None

    def all_reduce(self, values: np.ndarray) -> np.ndarray:
        """Sum in rank order (collective)."""
        copies = self.gather(values)
        total = np.sum(np.stack(copies).astype(np.float64), axis=0).astype(values.dtype)
        if self.size > 1:
            self.counters.add("all_reduce", values.nbytes * (self.size - 1))
        self.barrier()  # nobody overwrites its values before all have read them
        return total

    def gather(self, value: Any) -> list[Any]:
        """Every PE's value (collective)."""
        self._shared.slots[self.rank] = value
        self.barrier()
        values = list(self._shared.slots)
        self.barrier()
        return values

    def close(self) -> None:
        """Wait for every PE; memory goes with the last reference (collective)."""
        self.barrier()


def run(size: int, program: Callable[[World], T], timeout: float = DEFAULT_TIMEOUT) -> list[T]:
    """Run ``program`` on ``size`` PEs and return their results in rank order.

    Raises:
        Exception: the first failure of any PE, after all PEs have ended.
    """
    shared = _Shared(size, timeout)
    results: list[Any] = [None] * size
    failures: list[BaseException] = []

    def pe(rank: int) -> None:
        world = SimulatedWorld(rank, shared)
        try:
            results[rank] = program(world)
            world.close()
        except _PeerFailedError:
            pass
        except BaseException as error:
            failures.append(error)
            shared.fail()

    with threadpool_limits(THREADS_PER_PE):
        threads = [threading.Thread(target=pe, args=(rank,), name=f"PE {rank}", daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_POLL)
                if shared.failed.is_set():
                    thread.join(_GRACE)  # one that never comes back is a daemon: it does not keep the process
                    break
    if failures:
        raise failures[0]
    return results
