"""The seam between techniques and what carries them: ``World``, its symmetric arrays and its byte counters.

A technique is one SPMD function over a ``World``: every PE calls the same collective methods in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np

from mgg.errors import MggError, gpu_memory_error
from mgg.kernel.operators import Operators
from mgg.limits import lack_behind
from mgg.network import Network

#: Seconds after which a PE that waits for others gives up with a PeError: nothing hangs.
DEFAULT_TIMEOUT = 600.0
#: What a PE of a training does, as messages about one that stays away call it.
PHASES = (
    "loading", "plans", "first pass", "forward", "backward", "all-reduce", "update", "evaluation", "checkpoint",
    "prediction", "writing",
)  # fmt: skip
#: Threads of a CPU PE's dense products: a PE is one core, and its bits do not depend on the machine's cores or load.
THREADS_PER_PE = 1
#: An array of the PE's device: numpy.ndarray on CPUs, cupy.ndarray on GPUs (CuPy has no types to check against).
Array = Any


@dataclass
class Counters:
    """Bytes that other PEs' data took to or from this PE, by operation; local copies do not count.

    Each byte is counted once, on one side: put where it leaves, everything else where it arrives.
    """

    bytes: dict[str, int] = field(default_factory=dict)

    def add(self, operation: str, count: int) -> None:
        """Add ``count`` bytes to ``operation``: get, get_between, put, or the name of a collective."""
        self.bytes[operation] = self.bytes.get(operation, 0) + count

    def embeddings(self) -> int:
        """Bytes of embeddings: everything but the all-reduces of losses and gradients."""
        return sum(count for operation, count in self.bytes.items() if operation != "all_reduce")

    def between(self) -> int:
        """Bytes between workgroups, of techniques that have these: they put rows there, or fetch them by that name."""
        return self.bytes.get("put", 0) + self.bytes.get("get_between", 0)


@dataclass
class SymmetricArray:
    """A float32 array of the same number of elements on every PE, remotely readable and writable.

    Attributes:
        rank: this PE.
        peers: PE -> its copy, for every PE of the array's reach whose memory this one can address, itself included.
        handle: what the backend needs to reach the others; views share it.
        whole: all PEs' copies, one after another, where they are one piece of memory; views have none.
    """

    rank: int
    peers: dict[int, Array]
    handle: Any = None
    whole: Array | None = None

    @property
    def local(self) -> Array:
        """This PE's copy."""
        return self.peers[self.rank]

    def copy_of(self, pe: int) -> Array:
        """PE ``pe``'s copy; raises ValueError where this PE does not address it."""
        if pe not in self.peers:
            raise ValueError(f"PE {self.rank} does not address the memory of PE {pe}: rows are put there, not fetched")
        return self.peers[pe]

    def view(
        self, rows: int, columns: int, dtype: type = np.float32, pitch: int | None = None
    ) -> SymmetricArray:  # fmt: skip
        """The first elements of ``dtype`` as a matrix [rows, columns]; every PE must take the same shape.

        ``pitch``: elements from row to row; None: ``columns``.
        """
        peers = {pe: matrix_of(copy, rows, columns, dtype, pitch or columns) for pe, copy in self.peers.items()}
        return SymmetricArray(self.rank, peers, self.handle)


def shaped_as(view: Array, copy: Array) -> Array:
    """The first elements of ``copy``, float32 [elements], in the type, the shape and the pitch of ``view``."""
    rows, columns = view.shape
    return matrix_of(copy, rows, columns, view.dtype, view.strides[0] // view.itemsize if view.size else columns)


def matrix_of(memory: Array, rows: int, columns: int, dtype: Any, pitch: int) -> Array:
    """The first elements of ``memory``, float32 [elements], as ``dtype`` [rows, columns], ``pitch`` elements a row."""
    floats = -(-rows * pitch * np.dtype(dtype).itemsize // 4)
    whole = memory[:floats].view(dtype)[: rows * pitch].reshape(rows, pitch)
    return whole if pitch == columns else whole[:, :columns]


@dataclass(frozen=True)
class Emulated:
    """A network that a job's transfers between workgroups are held to (``mgg.backend.emulated``).

    Attributes:
        network: what it takes.
        members: PEs of a workgroup, which follow one another; the last one may have fewer.
    """

    network: Network
    members: int

    def mates(self, rank: int, size: int) -> range:
        """The PEs of the workgroup of PE ``rank``, out of ``size``."""
        first = rank - rank % self.members
        return range(first, min(first + self.members, size))


class Clock(Protocol):
    """Times the work that a PE submits between ``start`` and ``stop``."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> float:
        """Wait until the work submitted since ``start`` is done; seconds it took."""


class Timeline(Protocol):
    """Seconds of a PE's work by phase; phases may lie in one another, and the inner one's are not the outer one's."""

    def enter(self, phase: str) -> None:
        """The work submitted from now on belongs to ``phase``."""

    def leave(self) -> None:
        """Back to the phase before."""

    def collect(self) -> dict[str, float]:
        """Seconds by phase since the last call, "other" outside of all; waits for the work."""


class Work(Protocol):
    """Work that ``World.aside`` has submitted."""

    def wait(self) -> None:
        """Let what this PE submits from now on wait for the work; the host goes on."""


class Outside(Protocol):
    """Memory of one PE that is not of its device's: page-locked host memory, or of CPU PEs a mapped file.

    Attributes:
        bytes: uint8 [size], any numbers at first.
    """

    bytes: np.ndarray

    def close(self) -> None:
        """Give it back; there are no views of it any more, and no transfers."""


class Repeated(Protocol):
    """Work of a PE's device that is submitted again and again, with other numbers each time."""

    def submit(self, numbers: np.ndarray) -> Any:
        """Submit the work with ``numbers`` (float64), once the ``result`` of the last time has been asked for.

        Returns:
            What the work returned beside its result: arrays have the contents of this time once the result is there.
        """

    def result(self) -> np.ndarray:
        """What the work found this time, float64, on the host, once it is done."""

    def release(self) -> None:
        """Give back its memory; the next submission is the first."""


class Team(Protocol):
    """Some PEs of a job, seen from one of them; its methods are collective over the team, in device memory.

    Attributes:
        pes: the PEs, in the order in which they were given.
    """

    pes: tuple[int, ...]

    def broadcast(self, values: Array, root: int) -> None:
        """Copy ``values`` of PE ``root``, a number of the job, into ``values``, float32 of one shape on every PE."""

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send to the PE ``step`` places on in the team, receive from the one ``step`` places before; see ``World``."""

    def all_gather(self, values: Array, out: Array) -> None:
        """Collect ``values``, float32 of one shape on every PE, into ``out`` [PEs, *shape], in the team's order."""

    def reduce_scatter(self, values: Array, out: Array) -> None:
        """Put the sum over the team's PEs of their ``values[i]`` into ``out`` of its i-th PE.

        Args:
            values: float32 [PEs, *shape].
            out: float32 [*shape].
        """


class World(Protocol):
    """The PEs of a job, seen from one of them.

    Attributes:
        name: config value of the backend.
        rank: this PE.
        size: number of PEs.
        counters: bytes that this PE moved.
        gpu: model of this PE's GPU; empty on CPUs.
        gpu_bus: its PCI bus id, by which the GPUs of a host are told apart; empty on CPUs.
        shmem: kernels may call NVSHMEM.
        emulated: what transfers between workgroups are held to; None: nothing, they are as they are.
    """

    name: str
    rank: int
    size: int
    counters: Counters
    gpu: str
    gpu_bus: str
    shmem: bool
    emulated: Emulated | None

    @property
    def xp(self) -> ModuleType:
        """The array module of this PE's device: numpy or cupy."""

    @property
    def operators(self) -> Operators:
        """The arithmetic of this PE's device."""

    @property
    def addressable(self) -> Sequence[int]:
        """The PEs, in order, whose symmetric arrays this one may address or fetch from, itself among them.

        On GPUs those of its host; on CPUs all.
        """

    def check_shmem(self) -> None:
        """Raise MachineError on every PE where kernels that call NVSHMEM cannot be linked with it (collective)."""

    def upload(self, array: np.ndarray) -> Array:
        """``array`` on this PE's device; on CPUs the array itself."""

    def download(self, array: Array) -> np.ndarray:
        """``array`` of this PE's device in host memory, once it has been computed; on CPUs the array itself."""

    def repeated(self, work: Callable[[Array], tuple[Array, Any]], entries: int) -> Repeated | None:
        """``work`` for submitting it again and again, on GPUs as a CUDA graph where it can be one; None on CPUs.

        Every PE submits it as often as the others do.

        Args:
            work: takes float64 [entries] in device memory and returns a float64 vector there and what else it made. It
                may read and write arrays that stay where they are; what differs from time to time it reads there.
            entries: numbers that it is given.
        """

    def clock(self) -> Clock:
        """A clock for work of this PE's device."""

    def timeline(self) -> Timeline:
        """Tells how long phases of this PE's work take; on GPUs it also marks them for Nsight (NVTX ranges)."""

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate ``elements`` float32 zeros on every PE (collective; ``elements`` must agree).

        Args:
            elements: of each copy.
            reach: the PEs whose copies this one addresses, out of ``addressable``, itself among them; None: all PEs.
                Whoever is in another's reach has it in its own. ``put_rows`` goes to any PE.
        """

    def managed(self, elements: int) -> SymmetricArray:
        """``symmetric`` in one piece of unified memory, whose pages follow who touches them; CPUs have one kind.

        Raises:
            InputError: GPUs of several processes.
            MachineError: the piece is larger than what a GPU has left.
        """

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """``symmetric`` in one piece of host memory that every GPU reads in place; CPUs have one kind.

        Raises:
            MachineError: too little host memory, or memory that processes share.
        """

    def outside(self, size: int) -> Outside:
        """``size`` bytes beside the device's memory, for this PE alone.

        Raises:
            MachineError: too little host memory or, of CPU PEs, room in the folder for temporary files.
        """

    def transfer(self, target: Array, source: Array) -> None:
        """Submit a copy of ``source`` to ``target``: one is an array of the device, one is memory of ``outside``.

        That has as many bytes as are copied, from the array's first one on.
        """

    def free_memory(self) -> int | None:
        """Bytes of its GPU's memory that this PE may still allocate; None on CPUs."""

    def measure_memory(self) -> None:
        """``peak_memory`` is about what comes from now on; what allocators keep of earlier work is given back."""

    def peak_memory(self) -> int | None:
        """Most bytes of its GPU's memory that this PE's arrays and their allocators had at a time; None on CPUs.

        Threads with a GPU each share a process: those of one GPU have the same number.
        """

    def free(self, array: SymmetricArray) -> None:
        """Free a symmetric array of any kind (collective)."""

    def get_rows(self, source: SymmetricArray, pe: int, rows: Array, out: Array, operation: str = "get") -> None:
        """Fetch ``source[rows]`` of PE ``pe`` into ``out`` [len(rows), columns]; a row asked for twice moves twice.

        ``operation``: what the bytes are counted as; ``get_between`` tells apart rows of another workgroup.

        Raises:
            ValueError: on GPUs, a PE beyond the array's reach: its rows have no address here.
        """

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool = False) -> None:
        """Write ``values`` [k, columns] into rows first .. first + k of PE ``pe``'s ``target``.

        The rows of both are contiguous, and equally far apart.
        Beyond the array's reach they are one message, which nothing waits for: ``values`` must stay as they are until
        this PE has signalled somebody or met the others at a barrier. On GPUs they must be symmetric memory then.
        ``alone``: no other message goes beside this one, so that GPUs may wait for it where that is faster.
        """

    def signal(self, pe: int) -> None:
        """Tell PE ``pe`` that every row put there before has arrived."""

    def wait_signal(self, pe: int) -> None:
        """Wait for the next signal from PE ``pe``; raises PeError after the time limit."""

    def aside(self) -> AbstractContextManager[Work]:
        """``with world.aside() as work``: submit the enclosed work beside what this PE submits from then on.

        It starts after everything submitted before; blocks of one PE follow one another. Memory that it touches must
        stay as it is until somebody has called ``work.wait()``.
        """

    def broadcast(self, values: Array, root: int) -> None:
        """Copy ``values`` of PE ``root``, float32, into ``values`` of every PE (collective); in host or device memory.

        Raises:
            MachineError: a GPU's array, and no NCCL.
        """

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send ``send`` to PE ``rank + step``, receive ``receive`` from PE ``rank - step``, modulo P (collective).

        Args:
            send: float32, in device memory.
            receive: of the shape that the other PE sends; apart from ``send``.
            step: the same on every PE.

        Raises:
            MachineError: GPUs, and no NCCL.
        """

    def team(self, pes: Sequence[int]) -> Team:
        """The team of ``pes`` (collective over the job): every PE gives the team that it is in; kept until ``close``.

        Raises:
            ValueError: teams overlap, or a PE is not in its own.
            MachineError: GPUs, and no NCCL.
        """

    def barrier(self) -> None:
        """Wait until every PE is here and its writes are visible; raises PeError after the time limit."""

    def met(self, what: str) -> None:
        """A launch that waits for all PEs itself has been submitted (collective): ``what`` names it in messages."""

    def all_reduce(self, values: Array) -> Array:
        """Sum over PEs, in float64 and rank order, so that every PE and every run gets the same bits (collective).

        The sum is where ``values`` is, in host or device memory.
        """

    def gather(self, value: Any) -> list[Any]:
        """Every PE's ``value``, in rank order, on every PE (collective; small control data only)."""

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        """Give ``values[q]`` to PE q; entry p of the result comes from PE p (collective; control data, host memory).

        What comes from another PE is for reading only: PEs of one process share it.
        """

    def at(self, epoch: int, phase: str) -> None:
        """Say where this PE is, for messages about PEs that stay away.

        Args:
            epoch: from 1; 0 before the first.
            phase: one of ``PHASES``.
        """

    def limit_waits(self, seconds: float) -> None:
        """From now on give up waiting for other PEs after so long; every PE calls it."""

    def limit_work(self, seconds: float) -> None:
        """From now on, until ``watch`` is called, end the job when a PE works for so long without coming further.

        Every PE calls it. A PE comes further when it says where it is (``at``) and when it meets others.
        """

    def watch(self, seconds: float | None) -> None:
        """From now on end the job when a PE neither works nor waits for others for so long; None: look no more.

        Every PE calls it; there is no ``limit_work`` until that is called. Seen are the PEs of this host, this one
        included; of PEs of other hosts ``limit_waits`` is the limit. Where the PE that stands still is this process's
        only one, the process ends with a line and the exit code of a PeError; so it does, 8 s later, where a native
        call keeps Python itself from running.
        """

    def close(self) -> None:
        """Free every symmetric array (collective, explicit: never from a destructor)."""


T = TypeVar("T")
#: PEs that ``name_short`` gives the numbers of: more of them are no line that one reads.
MOST_NAMED = 4


def name_pes(pes: list[int], where: Mapping[int, str] = MappingProxyType({})) -> str:
    """``PE 3``, ``PEs 1, 2`` or, where it is known what they do, ``PE 3 (epoch 12, forward)``, for messages."""
    named = [f"{pe} ({where[pe]})" if where.get(pe) else str(pe) for pe in pes]
    return f"PE {named[0]}" if len(pes) == 1 else f"PEs {', '.join(named)}"


def name_short(everywhere: Sequence[tuple[int, int] | None]) -> str:
    """The PEs that need more bytes of GPU memory than they have free, with both; the worst of many. Empty: none is.

    Args:
        everywhere: what each PE needs and has free; None: it has no limit.
    """
    short = [(pe, *both) for pe, both in enumerate(everywhere) if both is not None and both[0] > both[1]]
    worst = sorted(sorted(short, key=lambda each: each[2] - each[1])[:MOST_NAMED])
    named = [f"PE {pe} needs {needed} bytes of GPU memory and has {free} free" for pe, needed, free in worst]
    more = len(short) - len(worst)
    return ", ".join(named) + (f", and {more} more PE{'s' if more > 1 else ''}" if more else "")


def place_of(epoch: int, phase: str) -> str:
    """Where a PE is, for ``name_pes``."""
    return f"epoch {epoch}, {phase}" if epoch else phase


def in_rank_order(copies: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of the PEs' ``copies``, one after the other in float64: the same bits on every PE and in every run."""
    first, *others = copies
    total = first.astype(np.float64)
    for copy in others:
        total += copy
    return total if first.dtype == np.float64 else total.astype(first.dtype)


def agreed_team(teams: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    """The team of PE ``rank``, out of the teams that all PEs gave.

    Raises:
        ValueError: teams overlap, or a PE is not in its own; on every PE.
    """
    for pe, team in enumerate(teams):
        if pe not in team or any(teams[member] != team for member in team):
            raise ValueError(f"PE {pe} gave the team {team}, which is not what each PE in it gave")
    return teams[rank]


def together(world: World, action: Callable[[], T]) -> T:
    """Run ``action`` on every PE; if it fails anywhere, every PE raises the error of the lowest such PE (collective).

    So a job whose PEs read different files ends with one line and one exit code instead of a hang.
    """
    result, error = None, None
    try:
        result = action()
    except MggError as caught:
        error = lack_behind(caught) or caught
    for failed in world.gather(error):
        if failed is not None:
            raise failed.on_every_pe()
    return result  # type: ignore[return-value]


@contextmanager
def told_of_gpu_memory(world: World) -> Iterator[None]:
    """Memory of a GPU that runs out inside is a MachineError; of a job of one PE, every PE's."""
    try:
        yield
    except MemoryError as error:
        told = gpu_memory_error(error)
        if told is None:
            raise
        raise (told.on_every_pe() if world.size == 1 else told) from None
