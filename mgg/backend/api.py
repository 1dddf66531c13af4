"""The interface between techniques and backends: ``World``, its symmetric arrays and its byte counters.

A technique is an SPMD function over a ``World``: every PE calls the same collective methods in the same order.
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

#: Seconds after which a waiting PE raises PeError, so that no job hangs.
DEFAULT_TIMEOUT = 600.0
#: The phases of a training, as messages about late PEs name them.
PHASES = (
    "loading", "plans", "first pass", "forward", "backward", "all-reduce", "update", "evaluation", "checkpoint",
    "prediction", "writing",
)  # fmt: skip
#: Threads of a CPU PE's dense products: one, so that results do not depend on the machine's cores or load.
THREADS_PER_PE = 1
#: An array on the PE's device: numpy.ndarray on CPUs, cupy.ndarray on GPUs (CuPy has no type stubs).
Array = Any


@dataclass
class Counters:
    """Bytes that this PE exchanged with other PEs, by operation; local copies do not count.

    Each byte counts once: puts count on the sender, all other operations on the receiver.
    """

    bytes: dict[str, int] = field(default_factory=dict)

    def add(self, operation: str, count: int) -> None:
        """Add ``count`` bytes to ``operation``: get, get_between, put, or the name of a collective."""
        self.bytes[operation] = self.bytes.get(operation, 0) + count

    def embeddings(self) -> int:
        """Return the bytes of embeddings: everything but the all-reduces of losses and gradients."""
        return sum(count for operation, count in self.bytes.items() if operation != "all_reduce")

    def intergroup_bytes(self) -> int:
        """Return the bytes between workgroups, which techniques with workgroups count as put or get_between."""
        return self.bytes.get("put", 0) + self.bytes.get("get_between", 0)


@dataclass
class SymmetricArray:
    """A float32 array with the same number of elements on every PE, which other PEs can read and write.

    Attributes:
        rank: this PE.
        peers: PE -> its copy, for every PE within the array's reach whose memory this PE can address (itself included).
        handle: what the backend needs to reach the other PEs; views share it.
        whole: all copies in PE order if they are one piece of memory, else None; None for views.
    """

    rank: int
    peers: dict[int, Array]
    handle: Any = None
    whole: Array | None = None

    @property
    def local(self) -> Array:
        """Return this PE's copy."""
        return self.peers[self.rank]

    def copy_of(self, pe: int) -> Array:
        """Return PE ``pe``'s copy; raises ValueError if this PE does not address it."""
        if pe not in self.peers:
            raise ValueError(f"PE {self.rank} does not address the memory of PE {pe}: rows are put there, not fetched")
        return self.peers[pe]

    def view(
        self, rows: int, columns: int, dtype: type = np.float32, pitch: int | None = None
    ) -> SymmetricArray:  # fmt: skip
        """Return the first elements as a ``dtype`` matrix [rows, columns]; every PE must take the same shape.

        ``pitch``: elements from row to row; None: ``columns``.
        """
        peers = {pe: matrix_of(copy, rows, columns, dtype, pitch or columns) for pe, copy in self.peers.items()}
        return SymmetricArray(self.rank, peers, self.handle)


def shaped_as(view: Array, copy: Array) -> Array:
    """Return the first elements of ``copy`` (float32 [elements]) with the dtype, shape and pitch of ``view``."""
    rows, columns = view.shape
    return matrix_of(copy, rows, columns, view.dtype, view.strides[0] // view.itemsize if view.size else columns)


def matrix_of(memory: Array, rows: int, columns: int, dtype: Any, pitch: int) -> Array:
    """Return the start of ``memory`` (float32 [elements]) as ``dtype`` [rows, columns], ``pitch`` elements per row."""
    floats = -(-rows * pitch * np.dtype(dtype).itemsize // 4)
    whole = memory[:floats].view(dtype)[: rows * pitch].reshape(rows, pitch)
    return whole if pitch == columns else whole[:, :columns]


@dataclass(frozen=True)
class Emulated:
    """An emulated network that slows a job's transfers between workgroups (``mgg.backend.emulated``).

    Attributes:
        network: the network's latency and bandwidth.
        members: consecutive PEs per workgroup; the last workgroup may have fewer.
    """

    network: Network
    members: int

    def mates(self, rank: int, size: int) -> range:
        """Return the PEs in the workgroup of PE ``rank``, for a job of ``size`` PEs."""
        first = rank - rank % self.members
        return range(first, min(first + self.members, size))


class Clock(Protocol):
    """Times the work that a PE submits between ``start`` and ``stop``."""

    def start(self) -> None:
        """Start the clock."""

    def stop(self) -> float:
        """Wait until the work submitted since ``start`` is done and return the seconds it took."""


class Timeline(Protocol):
    """Times a PE's work by phase; phases may nest, and the outer phase excludes the time of the inner one."""

    def enter(self, phase: str) -> None:
        """Count the work submitted from now on as ``phase``."""

    def leave(self) -> None:
        """Return to the phase before."""

    def collect(self) -> dict[str, float]:
        """Wait for the work; return the seconds per phase since the last call ("other": outside all phases)."""


class SideWork(Protocol):
    """Work that ``World.side_stream`` has submitted."""

    def wait(self) -> None:
        """Make all work that this PE submits from now on wait for this work, without blocking the host."""


class Outside(Protocol):
    """Memory of one PE outside its device: page-locked host memory for GPU PEs, a mapped file for CPU PEs.

    Attributes:
        bytes: uint8 [size], not initialized.
    """

    bytes: np.ndarray

    def on_device(self, owner: Any) -> Array:
        """Return the memory as the device's work addresses it, uint8 [size].

        Args:
            owner: an object that the array and its views refer to.
        """

    def close(self) -> None:
        """Free the memory; no view of it and no transfer may be left."""


class Repeated(Protocol):
    """Work on a PE's device that is submitted repeatedly, each time with new numbers."""

    def submit(self, numbers: np.ndarray) -> Any:
        """Submit the work with ``numbers`` (float64); call ``result`` before the next submission.

        Returns:
            The work's second return value; its arrays have this submission's contents once ``result`` returns.
        """

    def result(self) -> np.ndarray:
        """Wait for the work and return its result vector (float64) on the host."""

    def release(self) -> None:
        """Free the memory; the next submission prepares the work again."""


class Team(Protocol):
    """One PE's view of a group of PEs; methods are collective over the team and work on device memory.

    Attributes:
        pes: the team's PEs, in the order in which they were given.
    """

    pes: tuple[int, ...]

    def broadcast(self, values: Array, root: int) -> None:
        """Copy ``values`` of PE ``root`` (its rank in the job) into every PE's ``values``: float32, the same shape."""

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send to the PE ``step`` places later in the team, receive from ``step`` places earlier; see ``World``."""

    def all_gather(self, values: Array, out: Array) -> None:
        """Collect every PE's ``values`` (float32, the same shape) into ``out`` [PEs, *shape], in the team's order."""

    def reduce_scatter(self, values: Array, out: Array) -> None:
        """Sum ``values[i]`` over the team's PEs into ``out`` of its i-th PE.

        Args:
            values: float32 [PEs, *shape].
            out: float32 [*shape].
        """


class World(Protocol):
    """One PE's view of a job.

    Attributes:
        name: the backend's name in the config.
        rank: this PE.
        size: number of PEs.
        counters: bytes that this PE moved.
        gpu: model of this PE's GPU; empty on CPUs.
        gpu_bus: PCI bus id of this PE's GPU, which distinguishes the GPUs of a host; empty on CPUs.
        shmem: whether kernels may call NVSHMEM.
        emulated: the emulated network that slows transfers between workgroups; None: no emulation.
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
        """Return the array module of this PE's device: numpy or cupy."""

    @property
    def operators(self) -> Operators:
        """Return the operators of this PE's device."""

    @property
    def addressable(self) -> Sequence[int]:
        """Return the PEs, in order, whose symmetric arrays this PE may address or fetch from, itself included.

        GPU PEs: the PEs of the same host. CPU PEs: all PEs.
        """

    def check_shmem(self) -> None:
        """Raise MachineError on every PE if kernels that call NVSHMEM cannot be linked with it (collective)."""

    def upload(self, array: np.ndarray) -> Array:
        """Return a copy of ``array`` on this PE's device; CPU PEs return ``array`` itself."""

    def download(self, array: Array) -> np.ndarray:
        """Wait for ``array`` and return a copy in host memory; CPU PEs return ``array`` itself."""

    def repeated(self, work: Callable[[Array], tuple[Array, Any]], entries: int) -> Repeated | None:
        """Prepare ``work`` for repeated submission, on GPUs as a CUDA graph if possible; None on CPUs.

        Every PE submits the work equally often.

        Args:
            work: takes float64 [entries] in device memory; returns a float64 vector in device memory and any other
                value. It may read and write arrays whose addresses do not change, and must read everything that
                changes between submissions from its argument or from such arrays.
            entries: length of the argument.
        """

    def clock(self) -> Clock:
        """Return a clock for work on this PE's device."""

    def timeline(self) -> Timeline:
        """Return a timeline of this PE's phases; on GPUs it also marks them for Nsight (NVTX ranges)."""

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate ``elements`` float32 zeros on every PE (collective; ``elements`` must agree).

        Args:
            elements: length of each copy.
            reach: the PEs whose copies this PE addresses: a subset of ``addressable`` with this PE; None: all PEs.
                Reach is symmetric: if p is in the reach of q, then q is in the reach of p. ``put_rows`` reaches any PE.
        """

    def managed(self, elements: int) -> SymmetricArray:
        """Allocate ``symmetric`` in one piece of unified memory, whose pages migrate on access; plain memory on CPUs.

        Raises:
            InputError: the GPUs belong to several processes.
            MachineError: the piece is larger than a GPU's free memory.
        """

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """Allocate ``symmetric`` in one piece of host memory that every GPU reads in place; plain memory on CPUs.

        Raises:
            MachineError: too little host memory, or too little memory that processes can share.
        """

    def outside(self, size: int) -> Outside:
        """Allocate ``size`` bytes outside the device's memory, for this PE alone.

        Raises:
            MachineError: too little host memory (GPU PEs), or too little room for temporary files (CPU PEs).
        """

    def transfer(self, target: Array, source: Array) -> None:
        """Submit a copy of ``source`` to ``target``: one is a device array, the other is memory of ``outside``.

        The size of the outside memory decides how many bytes are copied, from the start of the array.
        """

    def free_memory(self) -> int | None:
        """Return the bytes of its GPU's memory that this PE may still allocate; None on CPUs."""

    def measure_memory(self) -> None:
        """Restart the measurement of ``peak_memory`` and release memory that allocators cached from earlier work."""

    def peak_memory(self) -> int | None:
        """Return the peak bytes of GPU memory of this PE's arrays and allocators; None on CPUs.

        PEs that are threads of one process and share a GPU get the same number.
        """

    def free(self, array: SymmetricArray) -> None:
        """Free a symmetric array of any kind (collective)."""

    def get_rows(
        self, source: SymmetricArray, pe: int, rows: Array | range, out: Array, operation: str = "get"
    ) -> None:
        """Fetch ``source[rows]`` of PE ``pe`` into ``out`` [len(rows), columns]; repeated rows move repeatedly.

        ``rows``: ids, or a range of consecutive rows, which a copy engine of GPUs fetches.
        ``operation``: the counter for the bytes; ``get_between`` marks rows from another workgroup.

        Raises:
            ValueError: on GPUs, if ``pe`` is outside the array's reach and its rows have no address here.
        """

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool = False) -> None:
        """Write ``values`` [k, columns] into rows first .. first + k of PE ``pe``'s ``target``.

        Rows are contiguous, and ``values`` and ``target`` have the same pitch. Outside the array's reach the rows
        travel as one asynchronous message: ``values`` must not change until this PE's next signal or barrier, and on
        GPUs they must lie in symmetric memory.
        ``alone``: this PE sends no other message at the same time, so GPUs may wait for this one if that is faster.
        """

    def signal(self, pe: int) -> None:
        """Signal PE ``pe`` that all rows put to it before have arrived."""

    def wait_signal(self, pe: int) -> None:
        """Wait for the next signal from PE ``pe``; raises PeError after the time limit."""

    def side_stream(self) -> AbstractContextManager[SideWork]:
        """``with world.side_stream() as work``: submit the enclosed work to a side stream.

        The work starts after everything submitted before the block and runs concurrently with what follows it. Blocks
        of one PE run in order. The memory that the work touches must not change until ``work.wait()`` is called.
        """

    def broadcast(self, values: Array, root: int) -> None:
        """Copy ``values`` (float32, host or device memory) of PE ``root`` into every PE's ``values`` (collective).

        Raises:
            MachineError: ``values`` is in GPU memory, and NCCL is missing.
        """

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send ``send`` to PE ``rank + step``, receive ``receive`` from PE ``rank - step``, modulo P (collective).

        Args:
            send: float32, in device memory.
            receive: float32, of the shape that the other PE sends; must not overlap ``send``.
            step: the same on every PE.

        Raises:
            MachineError: on GPUs, if NCCL is missing.
        """

    def team(self, pes: Sequence[int]) -> Team:
        """Return the team of ``pes``, which lasts until ``close``; every PE names its own (collective over the job).

        Raises:
            ValueError: teams overlap, or a PE is not in its own team.
            MachineError: on GPUs, if NCCL is missing.
        """

    def barrier(self) -> None:
        """Wait until every PE is here and its writes are visible; raises PeError after the time limit."""

    def note_collective(self, what: str) -> None:
        """Record a submitted launch that itself waits for all PEs (collective); ``what`` names it in messages."""

    def all_reduce(self, values: Array) -> Array:
        """Return the sum over PEs, in float64 and rank order: the same bits on every PE and in every run (collective).

        The sum is in the same memory as ``values``: host or device.
        """

    def gather(self, value: Any) -> list[Any]:
        """Return every PE's ``value`` in rank order, on every PE (collective; small control data only)."""

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        """Send ``values[q]`` to PE q; entry p of the result comes from PE p (collective; control data, host memory).

        Treat received values as read-only: PEs of one process share them.
        """

    def set_phase(self, epoch: int, phase: str) -> None:
        """Set the current place of this PE, for messages about late PEs.

        Args:
            epoch: from 1; 0 before the first epoch.
            phase: one of ``PHASES``.
        """

    def limit_waits(self, seconds: float) -> None:
        """Limit every later wait for other PEs to ``seconds``; every PE calls it."""

    def limit_work(self, seconds: float) -> None:
        """End the job if a PE works for ``seconds`` without progress, until the next call of ``watch``.

        Every PE calls it. A PE makes progress when it calls ``set_phase`` and when it meets other PEs.
        """

    def watch(self, seconds: float | None) -> None:
        """End the job if a PE neither works nor waits for others for ``seconds``; None: stop watching.

        Every PE calls it. It cancels ``limit_work``. It watches the PEs of this host, this one included; for PEs of
        other hosts only ``limit_waits`` applies. If the stalled PE is the only one of this process, the process ends
        with a line and the exit code of a PeError. If a native call blocks Python itself, it ends 8 s later.
        """

    def close(self) -> None:
        """Free every symmetric array (collective; never called from a destructor)."""


T = TypeVar("T")
#: PEs that ``name_short`` lists, so that its line stays readable.
MOST_NAMED = 4


def name_pes(pes: list[int], where: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return ``PE 3``, ``PEs 1, 2`` or, if ``where`` has the place, ``PE 3 (epoch 12, forward)``, for messages."""
    named = [f"{pe} ({where[pe]})" if where.get(pe) else str(pe) for pe in pes]
    return f"PE {named[0]}" if len(pes) == 1 else f"PEs {', '.join(named)}"


def name_short(everywhere: Sequence[tuple[int, int] | None]) -> str:
    """Return a message on the PEs that need more GPU memory than they have free (the worst few); empty if none does.

    Args:
        everywhere: per PE, the bytes that it needs and has free; None: no limit.
    """
    short = [(pe, *both) for pe, both in enumerate(everywhere) if both is not None and both[0] > both[1]]
    worst = sorted(sorted(short, key=lambda each: each[2] - each[1])[:MOST_NAMED])
    named = [f"PE {pe} needs {needed} bytes of GPU memory and has {free} free" for pe, needed, free in worst]
    more = len(short) - len(worst)
    return ", ".join(named) + (f", and {more} more PE{'s' if more > 1 else ''}" if more else "")


def place_of(epoch: int, phase: str) -> str:
    """Return the place of a PE in words, for ``name_pes``."""
    return f"epoch {epoch}, {phase}" if epoch else phase


def in_rank_order(copies: Iterable[np.ndarray]) -> np.ndarray:
    """Return the sum of the PEs' ``copies`` in rank order and float64: the same bits on every PE and in every run."""
    first, *others = copies
    total = first.astype(np.float64)
    for copy in others:
        total += copy
    return total if first.dtype == np.float64 else total.astype(first.dtype)


def agreed_team(teams: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    """Return the team of PE ``rank`` from the teams that all PEs gave.

    Raises:
        ValueError: teams overlap, or a PE is not in its own team (on every PE).
    """
    for pe, team in enumerate(teams):
        if pe not in team or any(teams[member] != team for member in team):
            raise ValueError(f"PE {pe} gave the team {team}, which is not what each PE in it gave")
    return teams[rank]


def together(world: World, action: Callable[[], T]) -> T:
    """Run ``action`` on every PE; if it fails anywhere, every PE raises the error of the lowest such PE (collective).

    A job whose PEs read different files therefore ends with one line and one exit code instead of a hang.
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
def gpu_memory_errors(world: World) -> Iterator[None]:
    """Turn an out-of-memory error of the GPU into a MachineError, which counts as every PE's in a job of one PE."""
    try:
        yield
    except MemoryError as error:
        found = gpu_memory_error(error)
        if found is None:
            raise
        raise (found.on_every_pe() if world.size == 1 else found) from None
