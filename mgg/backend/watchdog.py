"""Watchdogs: limits for every wait, signs of life of PEs, and messages that name the PE that is late.

- ``poll`` waits with a time limit, counted by ``awake``.
- ``Deadman``, a native thread, ends a process whose interpreter a native call blocks, or whose launcher has ended.
- ``StandStills`` finds PEs that neither work nor wait, by comparing their signs of life between checks. A thread that
  computes or reads files uses processor time; a thread that waits for other PEs or for nvcc reports it. A thread that
  is stopped or blocked for good does neither.
- ``RankStatus`` has these signs in memory that the ranks of a host share. ``RollCall`` asks the ranks of other hosts.
- ``HostWatch``, a thread of each rank, ends the job if a rank stands still; ``gpu.stream_watch`` does so for GPUs.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types

from mgg.backend.api import PHASES, name_pes, place_of
from mgg.errors import MachineError, PeError
from mgg.kernel import compile as kernels

if TYPE_CHECKING:
    from mgg.backend.mpi import MpiWorld
    from mgg.backend.mpi_start import MPI

#: Seconds in which a wait yields the core between checks; after that it sleeps.
PATIENCE = 2e-3
#: Seconds of sleep between checks: this share of the time waited so far, within limits.
NAP_SHARE, SHORTEST_NAP, LONGEST_NAP = 1e-4, 20e-6, 1e-3
#: Maximum seconds that count between two readings of ``awake``; a waiting process reads it more often unless stopped.
LONGEST_LOOK = 0.5


class AwakeClock:
    """A clock in seconds that pauses while this process is stopped; all waiting threads share it.

    So a job that is paused and resumed (Ctrl-Z, scontrol suspend, a frozen cgroup) loses no time, and no PE is blamed.
    The difference of two readings is valid if some thread has read the clock every LONGEST_LOOK seconds in between.

    Args:
        clock: returns seconds, including the time in which the process is stopped.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seconds, self._looked = 0.0, clock()

    def __call__(self) -> float:
        """Return the seconds awake so far."""
        with self._lock:
            now = self._clock()
            self._seconds += min(now - self._looked, LONGEST_LOOK)
            self._looked = now
            return self._seconds


#: This process's clock.
awake = AwakeClock()


def poll(done: Callable[[], bool], look: Callable[[float], None]) -> None:
    """Wait until ``done()`` is true; a short wait yields the core to other PEs, a longer one sleeps.

    Where some processes of a session call ``sched_yield`` without end and others wake every 100 microseconds, Linux
    6.18 starves processes of other sessions for minutes: so no wait yields without end, and waits of over 0.2 s wake
    less often.

    Args:
        done: returns whether the wait is over.
        look: called before every sleep with the awake seconds waited so far; may raise to end the wait.
    """
    start = awake()
    while not done():
        waited = awake() - start
        if waited < PATIENCE:
            os.sched_yield()
        else:
            look(waited)
            time.sleep(min(max(NAP_SHARE * waited, SHORTEST_NAP), LONGEST_NAP))


#: Indices of the words in the memory that both threads share.
_BEATS, _CLOSED, _PERIOD, _LOOKS, _TEXT, _LENGTH, _CODE, _RESTS, _OTHER, _OTHER_AT, _GONE_TEXT, _GONE_LENGTH = range(12)
_WORDS = 12
_LONGEST_LINE = 512
_STANDARD_ERROR = 2
_MICROSECONDS = 1_000_000
_READABLE = 1  # POLLIN
_FORWARD = 999_999  # microseconds that a launcher gets to read the line


class Deadman:
    """Ends this process unless ``alive`` is called regularly; ``rest`` pauses the count.

    Python threads run only while they hold the interpreter. This thread is native code that sleeps and counts; it does
    not count while the process is stopped.

    Args:
        seconds: time without a call of ``alive`` after which the process ends.
        exit_code: exit code of the process.
        line: line for standard error when the time is over.
        period: seconds between two checks.
        other: id of a process whose end also ends this one, until ``close``; None: no such process. Kernels before
            Linux 5.3 cannot watch it.
        gone: line for standard error when ``other`` has ended.
    """

    def __init__(
        self, seconds: float, exit_code: int, line: str, period: float = 1.0, *, other: int | None = None,
        gone: str = "",
    ) -> None:  # fmt: skip
        self._text, gone_text = (ctypes.create_string_buffer(_LONGEST_LINE) for _ in range(2))
        self._board = np.zeros(_WORDS, np.int64)
        self._period = period
        self._board[_PERIOD] = int(period * _MICROSECONDS)
        self._board[_TEXT], self._board[_GONE_TEXT] = ctypes.addressof(self._text), ctypes.addressof(gone_text)
        self._board[_CODE], self._board[_OTHER] = exit_code, _polled(other)
        self._board[_OTHER_AT] = self._board[_OTHER:].ctypes.data
        self.limit(seconds)
        self.say(line)
        self._board[_GONE_LENGTH] = _put(gone_text, gone)
        _keep(self._board, self._text, gone_text)
        library, thread = ctypes.CDLL(None), ctypes.c_ulong()
        with _making:  # PEs may be threads
            start, board = ctypes.c_void_p(_compiled().address), ctypes.c_void_p(self._board.ctypes.data)
        if library.pthread_create(ctypes.byref(thread), None, start, board):
            raise MachineError("no thread can be started: raise the limit of processes (ulimit -u)")
        library.pthread_detach(thread)

    def say(self, line: str) -> None:
        """Set the line for standard error."""
        self._board[_LENGTH] = _put(self._text, line)

    def limit(self, seconds: float) -> None:
        """Set the seconds without a call of ``alive`` after which this process ends."""
        self._board[_LOOKS] = max(1, round(seconds / self._period))

    def alive(self) -> None:
        """Report that the interpreter runs, and restart the count."""
        self._board[_BEATS] += 1
        self._board[_RESTS] = 0

    def rest(self) -> None:
        """Pause the count until ``alive`` is called."""
        self._board[_RESTS] = 1

    def close(self) -> None:
        """Stop for good, without waiting for the thread to end."""
        self._board[_CLOSED] = 1


def _put(buffer: Any, line: str) -> int:
    text = f"{line}\n".encode()[:_LONGEST_LINE]
    ctypes.memmove(buffer, text, len(text))
    return len(text)


def _polled(process: int | None) -> int:
    """Return a pollfd of poll(2) that shows if a process has ended: its descriptor or -1, POLLIN, no events yet."""
    descriptor = -1
    with suppress(OSError, AttributeError):  # AttributeError: this Python was built for older systems
        descriptor = -1 if process is None else os.pidfd_open(process)
    return (descriptor & 0xFFFFFFFF) | (_READABLE << 32)


def _keep(*memory: Any) -> None:
    """Keep memory alive until the process ends: the thread reads it even while the interpreter shuts down."""
    for each in memory:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


_making = threading.Lock()
#: Type checkers do not know the calls that make numba's types.
_types: Any = types
_usleep = _types.ExternalFunction("usleep", _types.int32(_types.uint32))
_write = _types.ExternalFunction("write", _types.intp(_types.int32, _types.intp, _types.intp))
_end = _types.ExternalFunction("_exit", _types.void(_types.int32))
_poll = _types.ExternalFunction("poll", _types.int32(_types.intp, _types.uint64, _types.int32))


def _wait(memory: Any) -> int:
    """The thread's function: sleep, count, and end the process if the limit is over or the other process has ended."""
    board = numba.carray(memory, _WORDS)
    seen, still = board[_BEATS], 0
    while board[_CLOSED] == 0:
        _usleep(np.uint32(board[_PERIOD]))
        if board[_RESTS] == 0 and board[_BEATS] == seen:
            still += 1
        else:
            seen, still = board[_BEATS], 0
        late = still > board[_LOOKS]
        _poll(board[_OTHER_AT], np.uint64(1), np.int32(0))
        gone = board[_OTHER] >> 48 & _READABLE
        if (late or gone) and board[_CLOSED] == 0:
            text, length = (board[_TEXT], board[_LENGTH]) if late else (board[_GONE_TEXT], board[_GONE_LENGTH])
            _write(np.int32(_STANDARD_ERROR), text, length)
            _usleep(np.uint32(_FORWARD))
            _end(np.int32(board[_CODE]))
    return 0


@cache
def _compiled() -> Any:
    """Return the thread's function, compiled once per machine."""
    return numba.cfunc(_types.intp(_types.CPointer(_types.int64)), cache=True)(_wait)


_PER_THREAD = 6  # CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED of linux/posix-timers.h
_TICK = 0.01  # seconds of processor time that count as work
#: Extra seconds after the limit before the native thread ends a process whose interpreter does not run.
LAST_WORD = 8.0


class StandStills:
    """Tracks how long the signs of PEs have not changed."""

    def __init__(self) -> None:
        self._signs: dict[int, Any] = {}
        self._still: dict[int, float] = {}
        self._looked = time.monotonic()

    def look(self, signs: Mapping[int, Any], period: float) -> None:
        """Record each PE's sign, which changes while the PE moves; the caller checks every ``period`` seconds.

        A late check counts as two periods at most: this process was stopped itself, or its machine slept.
        """
        now = time.monotonic()
        passed = min(now - self._looked, 2 * period)
        self._looked = now
        for pe, sign in signs.items():
            moved = pe not in self._signs or sign != self._signs[pe]
            self._still[pe] = 0.0 if moved else self._still[pe] + passed
        self._signs = dict(signs)

    def longer_than(self, seconds: float) -> list[int]:
        """Return the PEs that have not moved for more than ``seconds``."""
        return [pe for pe in self._signs if self._still[pe] > seconds]


def ticks_of(thread: int) -> int:
    """Return the processor time that a thread of this process has used, in hundredths of a second.

    While the thread waits for a kernel's compilation, wall time counts: the compiler works in another process.

    Args:
        thread: the thread's ``threading.get_native_id``.

    Raises:
        OSError: the thread has ended.
    """
    if thread in kernels.waiting:
        return int(time.monotonic() / _TICK)
    # The clock id is made like in clock_getcpuclockid(3); pthread_getcpuclockid reads freed memory of an ended thread.
    return int(time.clock_gettime((~thread << 3) | _PER_THREAD) / _TICK)


def no_further(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """Return the message that PEs work without progress."""
    verb = "has" if len(pes) == 1 else "have"
    return f"{name_pes(pes, places)} {verb} worked for {seconds:g} s without coming further"


def seized(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """Return the message that a native call blocks Python on a process's only PE, or on one of its PEs."""
    whose = "" if len(pes) == 1 else "one of "
    return f"{whose}{name_pes(pes, places)} has not moved for {seconds:g} s: a native call does not return"


def unmoved(pes: list[int], places: Mapping[int, str], seconds: float) -> str:
    """Return the message that PEs do not move."""
    verb = "has" if len(pes) == 1 else "have"
    return f"{name_pes(pes, places)} {verb} not moved for {seconds:g} s: neither worked nor waited for others"


_COUNTS = 2**24  # whole numbers that a float32 holds exactly
_LOOK = 0.3  # seconds within which a waiting PE beats again
_NAPS = 30  # sleeps that make up these seconds: if the whole job is paused meanwhile, the others still get time to beat


class RankStatus:
    """Rendezvous counts and places of a host's PEs, in memory that its ranks share.

    The constructor is collective. A PE writes five numbers: its count of rendezvous, epoch, phase + 1, a heartbeat
    while it waits (-1: it has given up), and, while it is watched, the processor time it has used. A PE whose numbers
    do not change is stopped, or works without a watch.
    """

    def __init__(self, world: MpiWorld):
        self.count = 0
        self._world = world
        self._board = world.symmetric(5)

    def come(self) -> int:
        """Count one more rendezvous of this PE and return its number."""
        self.count += 1
        self._board.local[0] = self.count % _COUNTS
        return self.count

    def away(self, number: int) -> list[int]:
        """Return the PEs of this host that have not reached rendezvous ``number``."""
        self._world.sync()
        missing = {pe: (number - int(copy[0])) % _COUNTS for pe, copy in self._board.peers.items()}
        return [pe for pe, count in missing.items() if 0 < count < _COUNTS // 2]

    def set_phase(self, epoch: int, phase: str) -> None:
        """Write this PE's place."""
        self._board.local[1:3] = epoch % _COUNTS, PHASES.index(phase) + 1

    def beat(self) -> None:
        """Write a heartbeat: this PE is alive and waits."""
        self._board.local[3] = (self._board.local[3] + 1) % _COUNTS

    def work(self, ticks: int) -> None:
        """Write the processor time that this PE has used; 0: it is not watched, and others must ignore the number."""
        self._board.local[4] = ticks % _COUNTS

    def give_up(self) -> None:
        """Write that this PE no longer waits, so that no other PE suspects it."""
        self._board.local[3] = -1

    def places(self) -> dict[int, str]:
        """Return the places of this host's PEs that have written one."""
        self._world.sync()
        seen = {pe: (int(copy[1]), int(copy[2])) for pe, copy in self._board.peers.items()}
        return {pe: place_of(epoch, PHASES[phase - 1]) for pe, (epoch, phase) in seen.items() if phase}

    def suspects(self) -> list[int]:
        """Return the PEs of this host that neither work nor wait."""
        before = self._seen()
        for _ in range(_NAPS):
            self.beat()
            time.sleep(_LOOK / _NAPS)
        after = self._seen()
        return [pe for pe, seen in after.items() if seen == before[pe] and seen[3] >= 0 and pe != self._world.rank]

    def signs(self) -> dict[int, tuple[float, ...]]:
        """Return the numbers of this host's PEs without ordering loads and stores, so they may be stale."""
        return {pe: tuple(copy.tolist()) for pe, copy in self._board.peers.items()}

    def _seen(self) -> dict[int, tuple[float, ...]]:
        self._world.sync()
        return self.signs()


_TAG = 9
_ASK, _ANSWER = 1, 2
#: Seconds of a wait before the first check for questions, and between two checks.
_FIRST, _BETWEEN = 0.5, 0.1


class RollCall:
    """This rank's part in questions and answers between hosts; shared memory shows only ranks of this host.

    A rank that waits too long asks the others. Ranks that wait as well receive the question and answer. A rank that is
    stopped or working does not answer.

    Args:
        comm: the job's communicator.
        others: ranks of other hosts.
    """

    def __init__(self, comm: MPI.Intracomm, others: list[int]) -> None:
        self._comm, self._others = comm, others
        self._looked = 0.0
        self._asked: float | None = None
        self._answered: set[int] = set()
        self._sends: list[MPI.Request] = []

    def wait(self, waited: float, limit: float) -> None:
        """Answer other ranks, and ask them once the wait lasts ``limit`` seconds; every wait calls this repeatedly."""
        now = time.monotonic()
        if not self._others or waited < _FIRST or now - self._looked < _BETWEEN:
            return
        self._looked = now
        self._listen()
        if waited < limit:
            self._asked = None  # a new wait has begun
        elif self._asked is None:
            self._asked, self._answered = now, set()
            for pe in self._others:
                self._send(pe, _ASK)

    def missing(self) -> list[int]:
        """Return the ranks of other hosts that were asked and have not answered."""
        self._listen()
        return [] if self._asked is None else [pe for pe in self._others if pe not in self._answered]

    def _listen(self) -> None:
        from mgg.backend.mpi_start import MPI  # which needs Deadman while it starts MPI

        status, word = MPI.Status(), np.empty(1, np.int8)
        while self._comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
            source = status.Get_source()
            self._comm.Recv(word, source, _TAG)
            self._answered.add(source)  # a rank that asks is waiting as well
            if word[0] == _ASK:
                self._send(source, _ANSWER)
        self._sends = [each for each in self._sends if not each.Test()]

    def _send(self, pe: int, what: int) -> None:
        self._sends.append(self._comm.Isend(np.array([what], np.int8), pe, _TAG))


#: Seconds in which a stalled PE that is not stopped can report it itself before other PEs do.
OWN_WORD = 3.0
_GPU_WORD = 0.5  # extra seconds in which a working PE can find itself that its GPU does not finish


class HostWatch:
    """A thread that writes this PE's processor time, and finds PEs of this host that neither work nor wait.

    Args:
        rank_status: the status of the host's ranks.
        rank: this PE, whose thread makes the watch.
        seconds: seconds that a PE may stand still.
        end: prints a line and ends the job.

    Attributes:
        work: seconds that this PE may work without progress; None: no limit.
    """

    def __init__(self, rank_status: RankStatus, rank: int, seconds: float, end: Callable[[str], None]):
        self.seconds, self._end = seconds, end
        self._rank_status, self._rank, self._watched = rank_status, rank, threading.get_native_id()
        self.work: float | None = None
        self._stalls, self._progress = StandStills(), StandStills()
        self._period = min(1.0, seconds / 10)
        # Made here, not in the new thread: the watched thread could block Python before that thread runs.
        self._deadman = Deadman(
            seconds + LAST_WORD, PeError.exit_code, self._last_word(rank_status.places().get(rank, "")), self._period
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def set_place(self, place: str) -> None:
        """Set this PE's place in the message that the native thread prints."""
        self._deadman.say(self._last_word(place))

    def others(self) -> list[int]:
        """Return the other PEs of this host that stand still and have not reported it themselves."""
        return [pe for pe in self._stalls.longer_than(self.seconds + OWN_WORD) if pe != self._rank]

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()
        self._rank_status.work(0)

    def _run(self) -> None:
        period, mine = self._period, [self._rank]
        while not self._closed.wait(period):
            self._deadman.alive()
            self._rank_status.work(max(1, ticks_of(self._watched)))
            signs = self._rank_status.signs()
            self._stalls.look({pe: sign for pe, sign in signs.items() if sign[3] >= 0 and sign[4] > 0}, period)
            self._progress.look({self._rank: signs[self._rank][:4]}, period)
            # The PE's own thread is blocked or working, and cannot report it.
            work = self.work
            if self._rank in self._stalls.longer_than(self.seconds):
                self._end(unmoved(mine, self._rank_status.places(), self.seconds))
            elif work is not None and self._progress.longer_than(work + _GPU_WORD):
                self._end(no_further(mine, self._rank_status.places(), work))
        self._deadman.close()

    def _last_word(self, place: str) -> str:
        return f"mgg: {seized([self._rank], {self._rank: place}, self.seconds)}"
