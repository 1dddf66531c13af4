"""Backend ``mpi``: one rank per PE, one-sided windows, plain loads and stores between ranks of a host.

Every wait polls with a time limit: a stalled PE ends the job, and ranks that outnumber the cores yield to each other.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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
    together,
)
from mgg.backend.host import CpuArrayMethods
from mgg.backend.machine.host_memory import mappable
from mgg.backend.mpi_start import MPI, SHARED_MEMORY
from mgg.backend.segments import unlink_mapped
from mgg.backend.watchdog import LAST_WORD, OWN_WORD, HostWatch, RankStatus, RollCall, poll, unmoved
from mgg.errors import InputError, MachineError, MggError, PeError, memory_error
from mgg.kernel import cpu
from mgg.kernel.operators import Operators

T = TypeVar("T")

_SIGNAL_TAG, _SHIFT_TAG = 7, 8
_ITEM = 4  # bytes of a float32
_GATHERED = 2**17  # numbers of all ranks together up to which an all-reduce gathers all of them on every rank
#: Seconds that ranks wait for work on rank 0 alone; waits inside that work have shorter limits.
LONGEST_WAIT = 86400.0
_FORWARD = 1.0  # seconds that a launcher gets to read a rank's last line before the rank aborts the job


@dataclass
class _Windows:
    """The MPI windows of a symmetric array: ``shared`` maps the copies of this host, ``remote`` reaches other hosts."""

    shared: MPI.Win
    remote: MPI.Win | None


class MpiWorld(CpuArrayMethods):
    """This rank's view of the job; see ``World`` for the methods.

    Args:
        comm: the communicator of the job.
        timeout: seconds that a wait may last.
        shared_memory: use plain loads and stores between ranks of one host; False: use the one-sided operations that
            ranks of different hosts use.
    """

    name = "mpi"
    gpu = gpu_bus = ""
    operators: Operators = cpu

    def __init__(self, comm: MPI.Intracomm, timeout: float = DEFAULT_TIMEOUT, shared_memory: bool = True):
        self.comm = comm.Dup()
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.counters = Counters()
        self._timeout = timeout
        host = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._host: MPI.Intracomm = host if shared_memory else comm.Split(self.rank)  # type: ignore[assignment]
        self._windows: list[_Windows] = []
        self._sends: list[MPI.Request] = []
        #: Unfinished puts: window, target, request, source array.
        self._puts: list[tuple[MPI.Win, int, MPI.Request, np.ndarray]] = []
        self._teams: dict[tuple[int, ...], MpiTeam] = {}
        near = set(MPI.Group.Translate_ranks(self._host.group, None, self.comm.group))
        self._roll_call = RollCall(self.comm, [pe for pe in range(self.size) if pe not in near])
        self._rank_status: RankStatus | None = None
        self._watch: HostWatch | None = None
        self._rank_status = RankStatus(self)  # its barrier guarantees that MPI has started on every rank
        unlink_mapped()

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective); PEs outside ``reach`` or this host use one-sided operations."""
        size = elements * _ITEM
        together(self, lambda: self._check_room(size))
        with self._allocation_errors(size):
            window = MPI.Win.Allocate_shared(size, _ITEM, comm=self._host)
        window.Lock_all()
        ranks = MPI.Group.Translate_ranks(self._host.group, None, self.comm.group)
        peers = {
            pe: self._mapped(window, host_rank, elements)
            for host_rank, pe in enumerate(ranks)
            if reach is None or pe in reach
        }
        remote = None
        if any(self.gather(len(peers) < self.size)):
            # The window counts in bytes: a bfloat16 row need not start at a multiple of 4 bytes.
            with self._allocation_errors(size):
                remote = MPI.Win.Create(window.Shared_query(self._host.rank)[0], 1, comm=self.comm)
            remote.Lock_all()
        array = SymmetricArray(self.rank, peers, _Windows(window, remote))
        array.local[:] = 0
        self._windows.append(array.handle)
        self.barrier()
        return array

    def _check_room(self, size: int) -> None:
        """Raise an error on memory that this rank cannot map: MPI might fail on this rank alone while others wait."""
        self._check_shared_memory(size)
        if not mappable(size * self._host.Get_size()):
            raise memory_error(f"PE {self.rank}: {self._lacks(size)}")

    @contextmanager
    def _allocation_errors(self, size: int) -> Iterator[None]:
        """Turn an allocation error of MPI, which may hit this rank alone, into an error that ends the job."""
        try:
            yield
        except MPI.Exception as error:
            reason = error.Get_error_string().split(":")[-1].strip()
            raise memory_error(f"{self._lacks(size)} (MPI: {reason})") from None

    def _lacks(self, size: int) -> str:
        ranks = self._host.Get_size()
        each = f"{size} bytes for each of the {ranks} ranks of its host" if ranks > 1 else f"{size} bytes"
        return f"{each} cannot be mapped: raise the limit (ulimit -v, or the job's), use more PEs or fewer columns"

    def _check_shared_memory(self, size: int) -> None:
        """Raise MachineError if /dev/shm, which holds shared windows, is too small: a write past its end is fatal."""
        if self._host.Get_size() == 1 or not Path(SHARED_MEMORY).is_dir():
            return
        status = os.statvfs(SHARED_MEMORY)
        free, needed = status.f_bavail * status.f_frsize, size * self._host.Get_size()
        if needed > free:
            raise MachineError(
                f"{SHARED_MEMORY} has {free} bytes left and the ranks of a host need {needed}: enlarge it"
                " (docker run --shm-size, or mount -o remount,size=...), or use fewer ranks per host"
            )

    @staticmethod
    def _mapped(window: MPI.Win, host_rank: int, elements: int) -> np.ndarray:
        return np.asarray(window.Shared_query(host_rank)[0], np.uint8).view(np.float32)[:elements]

    def free(self, array: SymmetricArray) -> None:
        """Free the windows of ``array`` (collective)."""
        self.barrier()
        array.peers = {}
        self._release(array.handle)

    def _release(self, windows: _Windows) -> None:
        self._windows.remove(windows)
        for window in (windows.remote, windows.shared):
            if window is not None:
                window.Unlock_all()
                window.Free()

    def get_rows(
        self, source: SymmetricArray, pe: int, rows: np.ndarray | range, out: np.ndarray, operation: str = "get"
    ) -> None:
        """Fetch rows of PE ``pe``."""
        if pe in source.peers:
            cpu.gather_rows(source.peers[pe], rows, out)
        elif len(rows):
            kind = _mpi_type(out)
            row = kind.Create_contiguous(out.shape[1])
            chosen = row.Create_indexed_block(1, list(rows) if isinstance(rows, range) else rows.tolist()).Commit()
            window = source.handle.remote
            self.wait(window.Rget([out, out.size, kind], pe, (0, 1, chosen)), f"rows of PE {pe}")
            window.Flush(pe)
            chosen.Free()
            row.Free()
        if pe != self.rank:
            self.counters.add(operation, out.nbytes)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: np.ndarray, alone: bool = False) -> None:
        """Write rows of PE ``pe``."""
        if pe in target.peers:
            target.peers[pe][first : first + len(values)] = values
        elif len(values):
            kind, at = _mpi_type(values), first * values.shape[1] * values.itemsize
            window = target.handle.remote
            request = window.Rput([values, values.size, kind], pe, (at, values.size, kind))
            self._puts.append((window, pe, request, values))
        if pe != self.rank:
            self.counters.add("put", values.nbytes)

    def _complete(self) -> None:
        """Wait until all puts have arrived.

        MPI has no request that tells when a put has arrived. Flush waits for that, without a limit and without leaving
        the core to the target, which may need it to take the rows. So this polls first: a put's request tells when the
        rows have left, and a byte read after it when the target answers.
        """
        for _, pe, request, _ in self._puts:
            self.wait(request, f"PE {pe} to take rows")
        while self._puts:
            window, pe, *_ = self._puts[0]
            self.wait(window.Rget([bytearray(1), 1, MPI.BYTE], pe), f"PE {pe} to take rows")
            window.Flush(pe)
            self._puts = [each for each in self._puts if each[:2] != (window, pe)]

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``."""
        self._complete()
        self.sync()
        self._sends.append(self.comm.Isend([b"", 0, MPI.BYTE], pe, _SIGNAL_TAG))

    def wait_signal(self, pe: int) -> None:
        """Wait for PE ``pe``'s signal."""
        request = self.comm.Irecv([bytearray(1), 0, MPI.BYTE], pe, _SIGNAL_TAG)
        self.wait(request, f"a signal from PE {pe}")
        self.sync()

    def broadcast(self, values: np.ndarray, root: int) -> None:
        """Copy PE ``root``'s values everywhere (collective)."""
        if self.size == 1:
            return
        self.wait(self.comm.Ibcast([values, values.size, MPI.FLOAT], root), f"the broadcast of PE {root}")
        if self.rank != root:
            self.counters.add("broadcast", values.nbytes)

    def shift(self, send: np.ndarray, receive: np.ndarray, step: int) -> None:
        """Send to PE ``rank + step``, receive from PE ``rank - step`` (collective)."""
        MpiTeam(self, tuple(range(self.size)), self.comm).shift(send, receive, step)

    def team(self, pes: Sequence[int]) -> MpiTeam:
        """Return a team with its own communicator (collective)."""
        mine = agreed_team(self.gather(tuple(pes)), self.rank)
        if mine not in self._teams:
            # This call has no time limit, but every PE has just taken part in the gather above.
            comm = self.comm.Create_group(self.comm.group.Incl(list(mine)), tag=mine[0])
            self._teams[mine] = MpiTeam(self, mine, comm)
        return self._teams[mine]

    def barrier(self) -> None:
        """Wait for every PE."""
        if self._rank_status is not None:
            self._rank_status.come()
        self._complete()
        self.sync()
        for request in self._sends:
            self.wait(request, "a signal to be taken")
        self._sends.clear()
        self.wait(self.comm.Ibarrier(), "the others at a barrier", barrier=True)
        self.sync()

    def named(self, pes: list[int]) -> str:
        """Return the PEs' numbers and places, for messages."""
        return name_pes(pes, {} if self._rank_status is None else self._rank_status.places())

    def set_phase(self, epoch: int, phase: str) -> None:
        """Set this PE's place."""
        if self._rank_status is not None:
            self._rank_status.set_phase(epoch, phase)
        if self._watch is not None:
            self._watch.set_place(place_of(epoch, phase))

    def limit_waits(self, seconds: float) -> None:
        """Set the limit of this rank's waits."""
        self._timeout = seconds

    def limit_work(self, seconds: float) -> None:
        """Set the limit of this rank's work without progress."""
        if self._watch is not None:
            self._watch.work = seconds

    def watch(self, seconds: float | None) -> None:
        """Watch this host's PEs."""
        if self._watch is not None:
            self._watch.close()
        status = self._rank_status
        self._watch = None if seconds is None or status is None else HostWatch(status, self.rank, seconds, end)

    def all_reduce(self, values: np.ndarray) -> np.ndarray:
        """Sum in rank order (collective)."""
        if self.size == 1:
            return values.copy()
        if self._rank_status is not None:
            self._rank_status.come()
        flat = np.ascontiguousarray(values).reshape(-1)
        if flat.size * self.size <= _GATHERED:
            total = in_rank_order(self._gathered(flat))
            self.counters.add("all_reduce", flat.nbytes * (self.size - 1))
        else:
            total = self._reduced_in_parts(flat)
        return total.reshape(values.shape)

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        """Return the ``values`` [n] of every rank as [P, n]."""
        copies = np.empty((self.size, values.size), values.dtype)
        self.wait(self.comm.Iallgather(values, copies), "the other PEs at an all-reduce")
        return copies

    def _reduced_in_parts(self, flat: np.ndarray) -> np.ndarray:
        """Sum 1/P of ``flat`` on each rank and gather the sums: memory and bytes do not grow with the ranks."""
        parts = np.zeros((self.size, -(-flat.size // self.size)), flat.dtype)
        parts.reshape(-1)[: flat.size] = flat
        mine = np.empty_like(parts)
        self.wait(self.comm.Ialltoall(parts, mine), "the other PEs at an all-reduce")
        total = self._gathered(in_rank_order(mine))
        self.counters.add("all_reduce", 2 * (parts.nbytes - parts[0].nbytes))
        return total.reshape(-1)[: flat.size]

    def gather(self, value: Any) -> list[Any]:
        """Return every PE's value (collective)."""
        if self.size == 1:
            return [value]
        self.barrier()
        mine = _pickled(value)
        counts = np.empty(self.size, np.int64)
        # Each step has its own limit: a PE may stall between any two of them.
        self.wait(self.comm.Iallgather(np.array([len(mine)]), counts), "the others at a gather")
        found = np.empty(int(counts.sum()), np.uint8)
        self.wait(self.comm.Iallgatherv([mine, MPI.BYTE], [found, counts, MPI.BYTE]), "the others at a gather")
        return _unpickled(found, counts)

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        """Give each PE its value, with one message per pair of PEs (collective)."""
        self.barrier()
        given = [_pickled(None if pe == self.rank else value) for pe, value in enumerate(values)]
        sizes = np.array([len(each) for each in given], np.int64)
        counts = np.empty(self.size, np.int64)
        self.wait(self.comm.Ialltoall(sizes, counts), "the others at an exchange")
        found = np.empty(int(counts.sum()), np.uint8)
        sent = [np.concatenate(given), sizes, MPI.BYTE]
        self.wait(self.comm.Ialltoallv(sent, [found, counts, MPI.BYTE]), "the others at an exchange")
        received = _unpickled(found, counts)
        received[self.rank] = values[self.rank]
        return received

    def close(self) -> None:
        """Free the remaining arrays and teams (collective)."""
        self.watch(None)
        self.barrier()
        for team in self._teams.values():
            team.comm.Free()
        self._teams.clear()
        for windows in list(self._windows):
            self._release(windows)

    def sync(self) -> None:
        """Order this rank's loads and stores on shared windows with those of others (MPI-4.1, 12.7)."""
        for windows in self._windows:
            windows.shared.Sync()
            if windows.remote is not None:
                windows.remote.Sync()

    def wait(self, request: MPI.Request, what: str, barrier: bool = False) -> None:
        """Wait for ``request`` (``what``, in words); after the time limit raises PeError, which names the late PE."""

        def look(waited: float) -> None:
            if waited >= self._timeout + self._own_words():
                raise PeError(self._stalled(what, barrier))
            if self._rank_status is not None:
                self._rank_status.beat()
            self._roll_call.wait(waited, self._timeout)
            if self._watch is not None and (still := self._watch.others()):
                assert self._rank_status is not None
                self._rank_status.give_up()
                raise PeError(unmoved(still, self._rank_status.places(), self._watch.seconds))

        poll(request.Test, look)

    def _own_words(self) -> float:
        """Return extra seconds for a wait, in which a watched PE can report itself that it is stalled."""
        if self._watch is None:
            return 0.0
        # No other rank sees a PE of another host, so the wait also leaves time for that PE's own last message.
        return OWN_WORD if self._host.Get_size() == self.size else LAST_WORD + OWN_WORD

    def _stalled(self, what: str, barrier: bool) -> str:
        """Return a message that names the late PE, from shared memory: a one-sided get would wait for a stalled PE."""
        late, suspects = [], []
        if self._rank_status is not None:
            late = self._rank_status.away(self._rank_status.count) if barrier else []
            suspects = [] if late else self._rank_status.suspects()
            self._rank_status.give_up()
        if suspects:
            verb = "does" if len(suspects) == 1 else "do"
            return f"PE {self.rank}: waited {self._timeout:g} s for {what}; {self.named(suspects)} {verb} not move"
        if barrier and late:
            return f"{self.named(late)} did not reach a barrier within {self._timeout:g} s"
        if away := self._roll_call.missing():
            mine = self.named([self.rank])
            return f"{name_pes(away)} of another host did not answer {mine} within {self._timeout:g} s"
        if barrier and self._host.Get_size() < self.size:
            return f"a PE of another host did not reach a barrier within {self._timeout:g} s"
        return f"PE {self.rank}: waited {self._timeout:g} s for {what}"


class MpiTeam:
    """This rank's view of a team; see ``Team`` for the methods.

    Args:
        world: this rank's view of the job.
        pes: the team's PEs.
        comm: a communicator of the same ranks, in the same order.
    """

    def __init__(self, world: MpiWorld, pes: tuple[int, ...], comm: MPI.Intracomm):
        self.pes, self.comm = pes, comm
        self._world = world

    def broadcast(self, values: np.ndarray, root: int) -> None:
        """Copy PE ``root``'s values (collective)."""
        if len(self.pes) == 1:
            return
        request = self.comm.Ibcast([values, values.size, MPI.FLOAT], self.pes.index(root))
        self._world.wait(request, f"the broadcast of PE {root} to {name_pes(list(self.pes))}")
        if self._world.rank != root:
            self._world.counters.add("broadcast", values.nbytes)

    def shift(self, send: np.ndarray, receive: np.ndarray, step: int) -> None:
        """Send to the PE ``step`` places later, receive from the PE ``step`` places earlier (collective)."""
        place = self.pes.index(self._world.rank)
        target, source = (place + step) % len(self.pes), (place - step) % len(self.pes)
        if source == place:
            receive[...] = send
            return
        arrival = self.comm.Irecv([receive, receive.size, MPI.FLOAT], source, _SHIFT_TAG)
        departure = self.comm.Isend([send, send.size, MPI.FLOAT], target, _SHIFT_TAG)
        self._world.wait(arrival, f"a shift from PE {self.pes[source]}")
        self._world.wait(departure, f"PE {self.pes[target]} to take a shift")
        self._world.counters.add("shift", receive.nbytes)

    def all_gather(self, values: np.ndarray, out: np.ndarray) -> None:
        """Collect the values of all PEs (collective)."""
        self._world.wait(self.comm.Iallgather(values, out), f"the all-gather of {name_pes(list(self.pes))}")
        self._world.counters.add("all_gather", out.nbytes - values.nbytes)

    def reduce_scatter(self, values: np.ndarray, out: np.ndarray) -> None:
        """Sum in the team's order, which MPI's own reductions do not guarantee (collective)."""
        parts = np.empty_like(values)
        self._world.wait(self.comm.Ialltoall(values, parts), f"the reduce-scatter of {name_pes(list(self.pes))}")
        out[...] = parts.sum(axis=0, dtype=np.float64)
        self._world.counters.add("reduce_scatter", values.nbytes - out.nbytes)


def run(pes: Callable[[], int], program: Callable[[World], T], timeout: float = DEFAULT_TIMEOUT) -> list[T]:
    """Run ``program`` on this rank and return its result in a list of one.

    Raises:
        InputError: the number of ranks differs from ``pes()``.
    """
    comm = MPI.COMM_WORLD
    # MGG_MPI_SHARED_MEMORY=0 makes ranks of one host communicate like ranks of different hosts.
    world = MpiWorld(comm, timeout, os.environ.get("MGG_MPI_SHARED_MEMORY", "1") != "0")
    together(world, lambda: check_size(comm.Get_size(), pes()))
    with threadpool_limits(THREADS_PER_PE):
        try:
            result = program(world)
        except MggError as error:
            if error.everywhere:
                world.close()  # or UCX prints a warning for each array that is left, below the error
            raise
        world.close()
    return [result]


def on_first_rank(pes: Callable[[], int], action: Callable[[], T]) -> T | None:
    """Run ``action`` on rank 0 while the other ranks wait; every rank raises its MggError (collective).

    Returns:
        The result on rank 0, None on the other ranks.

    Raises:
        InputError: the number of ranks differs from ``pes()``.
    """
    control = MpiWorld(MPI.COMM_WORLD, LONGEST_WAIT)
    together(control, lambda: check_size(control.size, pes()))
    result = together(control, lambda: action() if control.rank == 0 else None)
    control.close()
    return result


def gathered(value: Any) -> list[Any]:
    """Return the ``value`` of every rank of the job, before a world exists (collective)."""
    control = MpiWorld(MPI.COMM_WORLD)
    values = control.gather(value)
    control.close()
    return values


def _mpi_type(values: np.ndarray) -> MPI.Datatype:
    """Return the MPI type of embeddings: float32, float64, or bfloat16 stored as uint16."""
    return {4: MPI.FLOAT, 8: MPI.DOUBLE, 2: MPI.UINT16_T}[values.itemsize]


def _pickled(value: Any) -> np.ndarray:
    return np.frombuffer(MPI.pickle.dumps(value), np.uint8)


def _unpickled(data: np.ndarray, counts: np.ndarray) -> list[Any]:
    """Return the values pickled one after another in ``data``; ``counts`` are their bytes."""
    ends = np.cumsum(counts)
    return [MPI.pickle.loads(data[end - count : end].data) for end, count in zip(ends, counts, strict=True)]


def check_size(ranks: int, pes: int) -> None:
    """Raise InputError unless the job has as many ranks as there are PEs."""
    if ranks != pes:
        raise InputError(
            f"this layout is for {pes} PEs but the job has {ranks}: start it with mpiexec -n {pes}"
            " (or srun -n), or make a layout for as many PEs as the job has"
        )


def end(line: str) -> None:
    """Print ``line`` to standard error and end every rank of the job with the exit code of a PeError."""
    # The newline is part of the string: unbuffered, print would write it separately, and other ranks write in between.
    print(f"mgg: {line}\n", end="", file=sys.stderr, flush=True)
    abort(PeError.exit_code)


def abort(exit_code: int) -> None:
    """End every rank of the job with ``exit_code``, so that no rank waits for one that failed alone."""
    sys.stdout.flush()
    sys.stderr.flush()
    # An aborting launcher drops output that it has not read yet, such as the line with the reason.
    time.sleep(_FORWARD)
    MPI.COMM_WORLD.Abort(exit_code)


def library() -> str:
    """Return the name and version of the MPI library."""
    return MPI.Get_library_version().split("\n")[0].strip(" \0")
