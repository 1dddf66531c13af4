"""Backend ``simulated``: PEs as threads of one process, to run and debug everything without MPI."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from mgg.backend.api import (
    DEFAULT_TIMEOUT,
    THREADS_PER_PE,
    Counters,
    SymmetricArray,
    World,
    agreed_team,
    in_rank_order,
    name_pes,
    place_of,
    shaped_as,
)
from mgg.backend.host import CpuArrayMethods
from mgg.backend.watchdog import LAST_WORD, Deadman, StandStills, awake, no_further, seized, ticks_of, unmoved
from mgg.errors import PeError
from mgg.kernel import cpu
from mgg.kernel.operators import Operators

T = TypeVar("T")

_POLL = 0.1  # seconds between checks of the time limit and of failed PEs
_GRACE = 2.0  # seconds that the other PEs get to end after a failure


class _PeerFailedError(Exception):
    """Another PE failed; this one only has to end."""


class _Meeting:
    """A barrier for some PEs, through which they also exchange values."""

    def __init__(self, pes: Sequence[int], shared: _Shared):
        self.slots: dict[int, Any] = dict.fromkeys(pes)
        self._shared = shared
        self.changed = threading.Condition()
        self._arrivals = dict.fromkeys(pes, 0)  # arrivals per PE
        shared.meetings.append(self)

    def wait(self, pe: int) -> None:
        """Make PE ``pe`` wait until every PE has arrived."""
        shared = self._shared
        with self.changed:
            self._arrivals[pe] += 1
            number = self._arrivals[pe]
            if self._complete(number):
                self.changed.notify_all()

            def come(seconds: float) -> bool:
                self.changed.wait_for(lambda: self._complete(number) or shared.failed.is_set(), seconds)
                return self._complete(number)

            if shared.wait(pe, come):
                return
            away = [other for other, count in self._arrivals.items() if count < number]
        shared.fail()
        raise PeError(f"{name_pes(away, shared.places)} did not reach a barrier within {shared.timeout:g} s")

    def _complete(self, number: int) -> bool:
        """Return whether every PE has arrived ``number`` times."""
        return min(self._arrivals.values()) >= number

    def show(self, pe: int, value: Any) -> dict[int, Any]:
        """Return every PE's value by PE; the values stay valid until the next ``wait``."""
        self.slots[pe] = value
        self.wait(pe)
        return self.slots

    def came(self, pe: int) -> int:
        """Return how often PE ``pe`` has arrived."""
        return self._arrivals.get(pe, 0)


class _Shared:
    """State that the PEs of one job share."""

    def __init__(self, size: int, timeout: float):
        self.size = size
        self.timeout = timeout
        self.meetings: list[_Meeting] = []
        self.everyone = _Meeting(range(size), self)
        self.signals: dict[tuple[int, int], threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self.signals_lock = threading.Lock()
        self.failed = threading.Event()
        self.places: dict[int, str] = {}  # epoch and phase of each PE, in words
        self.waiting: set[int] = set()
        self.longest: float | None = None  # seconds that a PE may stand still; None: not watched
        self.work: float | None = None  # seconds that a PE may work without progress; None: no limit

    def fail(self) -> None:
        self.failed.set()
        for meeting in list(self.meetings):
            with meeting.changed:
                meeting.changed.notify_all()

    def wait(self, pe: int, come: Callable[[float], bool]) -> bool:
        """Make PE ``pe`` wait; return whether the wait ended within the time limit.

        Args:
            pe: the PE.
            come: waits for at most the given seconds, and returns whether the wait is over.

        Raises:
            _PeerFailedError: another PE has failed.
        """
        start, limit = awake(), self.timeout
        self.waiting.add(pe)
        try:
            while not self.failed.is_set():
                if come(_POLL):
                    return True
                if awake() - start > limit:
                    return False
            raise _PeerFailedError
        finally:
            self.waiting.discard(pe)

    def signal(self, source: int, target: int) -> threading.Semaphore:
        with self.signals_lock:
            return self.signals[source, target]


class SimulatedTeam:
    """One thread's view of a team; see ``Team`` for the methods."""

    def __init__(self, rank: int, meeting: _Meeting, counters: Counters):
        self.pes = tuple(meeting.slots)
        self._rank, self._meeting, self._counters = rank, meeting, counters

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each PE of the team (collective)."""
        values = list(self._meeting.show(self._rank, value).values())
        self._meeting.wait(self._rank)
        return values

    def broadcast(self, values: np.ndarray, root: int) -> None:
        """Copy PE ``root``'s values (collective)."""
        shown = self._meeting.show(self._rank, values)
        if self._rank != root:
            values[...] = shown[root]
            self._counters.add("broadcast", values.nbytes)
        self._meeting.wait(self._rank)

    def shift(self, send: np.ndarray, receive: np.ndarray, step: int) -> None:
        """Receive from the PE ``step`` places earlier in the team (collective)."""
        source = self.pes[(self.pes.index(self._rank) - step) % len(self.pes)]
        receive[...] = self._meeting.show(self._rank, send)[source]
        if source != self._rank:
            self._counters.add("shift", receive.nbytes)
        self._meeting.wait(self._rank)

    def all_gather(self, values: np.ndarray, out: np.ndarray) -> None:
        """Collect the values of all PEs (collective)."""
        shown = self._meeting.show(self._rank, values)
        for place, pe in enumerate(self.pes):
            out[place] = shown[pe]
        self._counters.add("all_gather", (len(self.pes) - 1) * values.nbytes)
        self._meeting.wait(self._rank)

    def reduce_scatter(self, values: np.ndarray, out: np.ndarray) -> None:
        """Sum in the team's order (collective)."""
        shown = self._meeting.show(self._rank, values)
        place = self.pes.index(self._rank)
        out[...] = np.sum([shown[pe][place] for pe in self.pes], axis=0, dtype=np.float64)
        self._counters.add("reduce_scatter", (len(self.pes) - 1) * out.nbytes)
        self._meeting.wait(self._rank)


class SimulatedWorld(CpuArrayMethods):
    """One thread's view of the job; see ``World`` for the methods."""

    name = "simulated"
    gpu = gpu_bus = ""
    operators: Operators = cpu

    def __init__(self, rank: int, shared: _Shared):
        self.rank = rank
        self.size = shared.size
        self.counters = Counters()
        self._shared = shared
        self._everyone = SimulatedTeam(rank, shared.everyone, self.counters)

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective); ``handle`` has the copies beyond ``reach``."""
        copies = dict(enumerate(self.gather(np.zeros(elements, np.float32))))
        beyond = {} if reach is None else {pe: copies.pop(pe) for pe in range(self.size) if pe not in reach}
        return SymmetricArray(self.rank, copies, beyond)

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """Allocate zeros for every PE in one piece (collective)."""
        whole = self.gather(np.zeros(self.size * elements, np.float32) if self.rank == 0 else None)[0]
        return SymmetricArray(self.rank, dict(enumerate(whole.reshape(self.size, elements))), whole=whole)

    def free(self, array: SymmetricArray) -> None:
        """Drop every PE's copy (collective)."""
        self.barrier()
        if array.handle is not None:
            array.handle.clear()
        array.peers, array.whole = {}, None

    def get_rows(
        self, source: SymmetricArray, pe: int, rows: np.ndarray | range, out: np.ndarray, operation: str = "get"
    ) -> None:
        """Fetch rows of PE ``pe``."""
        cpu.gather_rows(self._copy(source, pe), rows, out)
        if pe != self.rank:
            self.counters.add(operation, out.nbytes)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: np.ndarray, alone: bool = False) -> None:
        """Write rows of PE ``pe``."""
        self._copy(target, pe)[first : first + len(values)] = values
        if pe != self.rank:
            self.counters.add("put", values.nbytes)

    @staticmethod
    def _copy(array: SymmetricArray, pe: int) -> np.ndarray:
        return array.peers[pe] if pe in array.peers else shaped_as(array.local, array.handle[pe])

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``."""
        self._shared.signal(self.rank, pe).release()

    def wait_signal(self, pe: int) -> None:
        """Wait for PE ``pe``'s signal."""
        signal = self._shared.signal(pe, self.rank)
        if not self._shared.wait(self.rank, lambda seconds: signal.acquire(timeout=seconds)):
            other = name_pes([pe], self._shared.places)
            raise PeError(f"PE {self.rank}: no signal from {other} within {self._shared.timeout:g} s")

    def broadcast(self, values: np.ndarray, root: int) -> None:
        """Copy PE ``root``'s values everywhere (collective)."""
        self._everyone.broadcast(values, root)

    def shift(self, send: np.ndarray, receive: np.ndarray, step: int) -> None:
        """Receive the values of PE ``rank - step`` (collective)."""
        self._everyone.shift(send, receive, step)

    def team(self, pes: Sequence[int]) -> SimulatedTeam:
        """Return a team; its first PE makes the shared state (collective)."""
        mine = agreed_team(self.gather(tuple(pes)), self.rank)
        made = self.gather(_Meeting(mine, self._shared) if self.rank == mine[0] else None)
        return SimulatedTeam(self.rank, made[mine[0]], self.counters)

    def barrier(self) -> None:
        """Wait for every PE."""
        self._shared.everyone.wait(self.rank)

    def set_phase(self, epoch: int, phase: str) -> None:
        """Set this PE's place."""
        self._shared.places[self.rank] = place_of(epoch, phase)

    def named(self, pes: list[int]) -> str:
        """Return the PEs' numbers and places, for messages."""
        return name_pes(pes, self._shared.places)

    def limit_waits(self, seconds: float) -> None:
        """Set the limit of all PEs' waits."""
        self._shared.timeout = seconds

    def limit_work(self, seconds: float) -> None:
        """Set the limit of all PEs' work without progress."""
        self._shared.work = seconds

    def watch(self, seconds: float | None) -> None:
        """Set the limit for all PEs; the thread that started them watches."""
        self._shared.longest, self._shared.work = seconds, None

    def check_others(self) -> None:
        """End this PE if another PE has failed; called in waits outside ``_Shared.wait``."""
        if self._shared.failed.is_set():
            raise _PeerFailedError

    def all_reduce(self, values: np.ndarray) -> np.ndarray:
        """Sum in rank order (collective)."""
        total = in_rank_order(self.gather(values))
        if self.size > 1:
            self.counters.add("all_reduce", values.nbytes * (self.size - 1))
        self.barrier()  # nobody overwrites its values before all PEs have read them
        return total

    def gather(self, value: Any) -> list[Any]:
        """Return every PE's value (collective)."""
        return self._everyone.gather(value)

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        """Give each PE its value (collective)."""
        return [theirs[self.rank] for theirs in self.gather(values)]

    def close(self) -> None:
        """Wait for every PE; the last reference frees the memory (collective)."""
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
        watch = _Watch(shared, threads)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(_POLL)
                    if not shared.failed.is_set() and (found := watch.look()):
                        failures.append(PeError(found))
                        shared.fail()
                    if shared.failed.is_set():
                        thread.join(_GRACE)  # threads are daemons: one that never returns does not keep the process
                        break
        except BaseException:  # for example Ctrl-C, after which the caller may continue
            shared.fail()
            raise
        finally:
            watch.close()
    if failures:
        raise failures[0]
    return results


class _Watch:
    """Finds PEs that stand still or work without progress.

    Args:
        shared: the PEs' shared state.
        threads: the PEs' threads.
    """

    def __init__(self, shared: _Shared, threads: Sequence[threading.Thread]) -> None:
        self._shared, self._threads = shared, threads
        self._stalls, self._progress = StandStills(), StandStills()
        self._deadman: tuple[float, Deadman] | None = None  # with the limit that it was made for

    def look(self) -> str | None:
        """Return a message if a PE stands still or makes no progress, else None."""
        shared = self._shared
        # A new object differs from every earlier sign, so a PE that waits or is done counts as moving.
        signs: dict[int, Any] = {pe: object() for pe in range(shared.size)}
        came = dict(signs)
        for pe, thread in enumerate(self._threads):
            if pe not in shared.waiting and thread.native_id is not None and thread.is_alive():
                try:
                    signs[pe] = ticks_of(thread.native_id), shared.places.get(pe)
                except OSError:
                    continue  # the thread has just ended
                came[pe] = shared.places.get(pe), sum(each.came(pe) for each in list(shared.meetings))
        self._stalls.look(signs, _POLL)
        self._progress.look(came, _POLL)
        self._live()
        if shared.longest is not None and (still := self._stalls.longer_than(shared.longest)):
            return unmoved(still, shared.places, shared.longest)
        if shared.work is not None and (busy := self._progress.longer_than(shared.work)):
            return no_further(busy, shared.places, shared.work)
        return None

    def _live(self) -> None:
        """Tell the native thread that the interpreter runs."""
        longest = self._shared.longest
        if self._deadman is not None and self._deadman[0] != longest:
            self.close()
        if longest is None:
            return
        line = f"mgg: {seized(list(range(self._shared.size)), self._shared.places, longest)}"
        if self._deadman is None:
            self._deadman = longest, Deadman(longest + LAST_WORD, PeError.exit_code, line)
        self._deadman[1].say(line)
        self._deadman[1].alive()

    def close(self) -> None:
        """Stop watching."""
        if self._deadman is not None:
            self._deadman[1].close()
        self._deadman = None
