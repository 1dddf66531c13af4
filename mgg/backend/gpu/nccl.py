"""Collectives between GPUs through NCCL (cupy.cuda.nccl), in the order of the streams; MPI carries the control data.

A team has one communicator for both streams of a PE. Each operation first waits, on the GPU, for the team's last one,
so all PEs run a team's operations in the order of submission, whichever streams they use. NVSHMEM's barrier takes one
thread block and NCCL at most a few dozen. Both fit on a GPU at once with room to spare, and products end by
themselves, so a barrier on one stream and a transfer on the other never block each other.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, Protocol

import cupy
import numpy as np

from mgg.backend.api import Array, Counters, agreed_team, in_rank_order, name_pes, together
from mgg.backend.gpu import wheel
from mgg.backend.mpi import MpiWorld
from mgg.errors import MachineError, PeError

#: The first row and the end of rows, by place in a team.
Spans = Sequence[tuple[int, int]]
#: Bytes up to which an all-reduce gathers the values of all PEs.
_GATHERED = 2**20


class Watch(Protocol):
    """The parts of ``StreamWatch`` that NCCL's operations use."""

    def mark(self, what: str, number: int | None = None) -> Any:
        """Mark this point of the current stream, which it must pass within the time limit."""

    def blocked(self, what: str) -> AbstractContextManager[None]:
        """Watch a block in which the host may wait for other PEs."""


class NcclTeam:
    """This PE's view of a team; see ``Team`` for the methods.

    Args:
        pes: the team's PEs.
        rank: this PE.
        communicator: NCCL's communicator of the same PEs in the same order; None for a team of one PE.
        counters: bytes that this PE moved.
        watch: watches everything that waits for other PEs.
        arrive: counts this PE's calls in a team of all PEs, so that the watch can name late PEs; else None.
    """

    def __init__(
        self, pes: tuple[int, ...], rank: int, communicator: Any, counters: Counters, watch: Watch,
        arrive: Callable[[], int] | None,
    ):  # fmt: skip
        self.pes = pes
        self._place = pes.index(rank)
        self._communicator, self._counters, self._watch, self._arrive = communicator, counters, watch, arrive
        self._last: Any = None  # the event after the last operation

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values (collective)."""
        if self._communicator is None or not values.size:
            return
        at, nccl, place = _address(values), _library(), self.pes.index(root)
        with self._operation(f"the broadcast of PE {root}") as stream:
            self._communicator.broadcast(at, at, values.size, nccl.NCCL_FLOAT32, place, stream)
        if place != self._place:
            self._counters.add("broadcast", values.nbytes)

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send to the PE ``step`` places later, receive from the PE ``step`` places earlier (collective)."""
        target, source = (self._place + step) % len(self.pes), (self._place - step) % len(self.pes)
        if source == self._place:
            receive[...] = send
            return
        nccl = _library()
        with self._operation("a shift") as stream:
            # A group, because each PE's send and receive must run concurrently.
            nccl.groupStart()
            if send.size:
                self._communicator.send(_address(send), send.size, nccl.NCCL_FLOAT32, target, stream)
            if receive.size:
                self._communicator.recv(_address(receive), receive.size, nccl.NCCL_FLOAT32, source, stream)
            nccl.groupEnd()
        self._counters.add("shift", receive.nbytes)

    def all_gather(self, values: Array, out: Array) -> None:
        """Collect the values of all PEs (collective)."""
        if self._communicator is None:
            out[0] = values
        elif values.size:
            to, kind = _address(out), _library().NCCL_FLOAT32
            with self._operation("the all-gather") as stream:
                self._communicator.allGather(_address(values), to, values.size, kind, stream)
            self._counters.add("all_gather", out.nbytes - values.nbytes)

    def reduce_scatter(self, values: Array, out: Array) -> None:
        """Sum in float32, in an order that the communicator fixes when it is made (collective)."""
        if self._communicator is None:
            out[...] = values[0]
        elif values.size:
            to, nccl = _address(out), _library()
            with self._operation("the reduce-scatter") as stream:
                self._communicator.reduceScatter(
                    _address(values), to, out.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream
                )
            self._counters.add("reduce_scatter", values.nbytes - out.nbytes)

    def all_reduce(self, values: Array) -> Array:
        """Sum values of any type in rank order, with the same bits as on CPU ranks (collective)."""
        if self._communicator is None or not values.size:
            return values.copy()
        size = len(self.pes)
        if size * values.nbytes <= _GATHERED:
            copies = cupy.empty((size, values.size), values.dtype)
            self._collect(values.reshape(-1), copies)
            self._counters.add("all_reduce", (size - 1) * values.nbytes)
            return in_rank_order([copies[place] for place in range(size)]).reshape(values.shape)
        # Each PE sums one part, and all gather the sums: memory and bytes do not grow with the PEs.
        parts = cupy.zeros((size, -(-values.size // size)), values.dtype)
        parts.reshape(-1)[: values.size] = values.reshape(-1)
        theirs, total = (cupy.empty(parts.shape, parts.dtype) for _ in range(2))
        each = [(place, place + 1) for place in range(size)]
        self._swap("an all-reduce", parts, each, theirs, each)
        self._collect(in_rank_order([theirs[place] for place in range(size)]), total)
        self._counters.add("all_reduce", 2 * (parts.nbytes - parts[0].nbytes))
        return total.reshape(-1)[: values.size].reshape(values.shape)

    def _collect(self, values: Array, out: Array) -> None:
        """Collect the bytes of all PEs, whatever their type."""
        with self._operation("an all-reduce") as stream:
            ends = int(values.data.ptr), int(out.data.ptr)
            self._communicator.allGather(*ends, values.nbytes, _library().NCCL_INT8, stream)

    def all_to_all(
        self, send: Array, sent: Spans, receive: Array, received: Spans, operation: str | None = "all_to_all"
    ) -> None:  # fmt: skip
        """Send rows to every PE of the team and receive rows from it, in one group (collective).

        Args:
            send, receive: contiguous arrays of one type whose rows are of one size.
            sent, received: rows of ``send`` that go to each place of the team, rows of ``receive`` that come from it.
            operation: the counter for the bytes; None: control data, which does not count.
        """
        self._swap("the all-to-all", send, sent, receive, received)
        rows = sum(end - first for place, (first, end) in enumerate(received) if place != self._place)
        if operation is not None:
            self._counters.add(operation, rows * _row_bytes(receive))

    def _swap(self, what: str, send: Array, sent: Spans, receive: Array, received: Spans) -> None:
        """Do what ``all_to_all`` says, without counting."""
        if self._communicator is None:
            receive[slice(*received[0])] = send[slice(*sent[0])]
            return
        nccl, row = _library(), _row_bytes(receive)
        sends, receives = (self._communicator.send, send, sent), (self._communicator.recv, receive, received)
        with self._operation(what) as stream:
            nccl.groupStart()
            for call, array, spans in (sends, receives):
                for place, (first, end) in enumerate(spans):
                    if end > first:
                        call(int(array.data.ptr) + first * row, (end - first) * row, nccl.NCCL_INT8, place, stream)
            nccl.groupEnd()

    @contextmanager
    def _operation(self, what: str) -> Iterator[int]:
        """Submit one operation to the current stream after the team's last one; yields the stream's pointer."""
        stream = cupy.cuda.get_current_stream()
        if self._last is not None:
            stream.wait_event(self._last)
        number = None if self._arrive is None else self._arrive()
        if number is None:
            what = f"{what} in the team of {name_pes(list(self.pes))}"
        try:
            with self._watch.blocked(what):
                yield stream.ptr
            self._communicator.check_async_error()
        except _library().NcclError as error:
            raise PeError(f"PE {self.pes[self._place]}: {what} failed: {error} (NCCL_DEBUG=INFO says more)") from None
        self._last = self._watch.mark(what, number)

    def close(self) -> None:
        """Destroy the communicator (collective); the streams must have finished its work."""
        if self._communicator is not None:
            with self._watch.blocked("NCCL to end"):
                self._communicator.destroy()


class NcclTeams:
    """The teams of a job, each made at its first use.

    Args:
        control: a World of the same PEs over MPI.
        watch: watches everything that waits for other PEs.
        arrive: counts the calls that all PEs make.
    """

    def __init__(self, control: MpiWorld, watch: Watch, arrive: Callable[[], int]):
        self._control, self._watch, self._arrive = control, watch, arrive
        self._teams: dict[tuple[int, ...], NcclTeam] = {}

    def everyone(self) -> NcclTeam:
        """Return the team of all PEs (collective)."""
        pes = tuple(range(self._control.size))
        return self._teams.get(pes) or self.team(pes)

    def team(self, pes: Sequence[int]) -> NcclTeam:
        """See ``World.team``."""
        control = self._control
        teams = control.gather(tuple(pes))
        mine = agreed_team(teams, control.rank)
        if any(len(team) > 1 for team in teams):
            together(control, _check)
        first = control.rank == mine[0] and len(mine) > 1 and mine not in self._teams
        # NCCL waits for all PEs of a team; after this gather, all of them are about to call it.
        keys = control.gather(_library().get_unique_id() if first else None)
        if mine not in self._teams:
            self._teams[mine] = NcclTeam(
                mine, control.rank, self._communicator(mine, keys[mine[0]]), control.counters, self._watch,
                self._arrive if len(mine) == control.size else None,
            )  # fmt: skip
        return self._teams[mine]

    def _communicator(self, pes: tuple[int, ...], key: bytes | None) -> Any:
        if key is None:
            return None
        nccl, rank = _library(), self._control.rank
        try:
            with self._watch.blocked(f"NCCL to start on {name_pes(list(pes))}"):
                return nccl.NcclCommunicator(len(pes), key, pes.index(rank))
        except nccl.NcclError as error:
            raise MachineError(
                f"PE {rank}: NCCL {version()} did not start: {error} (NCCL_DEBUG=INFO says more)"
            ) from None

    def close(self) -> None:
        """Destroy every communicator (collective); the streams must have finished their work."""
        for team in self._teams.values():
            team.close()
        self._teams.clear()


def missing() -> str | None:
    """Return one line on how to install NCCL; None if it is there."""
    return None if _library().available else f"NCCL is missing: pip install {wheel('nvidia-nccl')}"


def version() -> str:
    """Return the version of the NCCL library, which must not be missing."""
    number = _library().get_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _check() -> None:
    lack = missing()
    if lack:
        raise MachineError(lack)


def _library() -> ModuleType:
    """Import CuPy's binding, which loads libnccl.so.2 of the wheel or the system; CuPy itself does not import it."""
    return importlib.import_module("cupy.cuda.nccl")


def _row_bytes(values: Array) -> int:
    return int(values.itemsize) * math.prod(values.shape[1:])


def _address(values: Array) -> int:
    """Return the address of the values; raises ValueError unless they are contiguous float32."""
    if values.dtype != np.float32 or not values.flags.c_contiguous:
        raise ValueError(f"NCCL needs a contiguous float32 array, found {values.dtype} of shape {values.shape}")
    return int(values.data.ptr)
