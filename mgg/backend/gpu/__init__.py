"""Common code of Worlds of GPU PEs: CuPy arrays, clocks of CUDA events, facts about the devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import cupy
import numpy as np

from mgg.backend.api import (
    Array,
    Clock,
    Counters,
    Emulated,
    Outside,
    SideWork,
    SymmetricArray,
    Timeline,
    World,
    name_short,
)
from mgg.backend.gpu import pinned
from mgg.backend.gpu.graphs import Recorder, RepeatedGraph, copied
from mgg.errors import InputError, MachineError
from mgg.kernel.cuda.dependent_launch import urgent_stream
from mgg.kernel.operators import Operators


class GpuArrays(ABC):
    """The array methods of a World of GPU PEs, on the PE's current stream; it addresses peers' memory directly."""

    xp = cupy
    rank: int
    counters: Counters
    emulated: Emulated | None = None
    operators: Operators
    sharing = 1  # processes that have a PE on this PE's GPU
    symmetric_bytes = 0  # bytes of symmetric memory in use outside CuPy's pools
    _most = 0
    _control: Any  # a World of the same PEs as CPU ranks or threads, which carries data in host memory

    @abstractmethod
    def note_collective(self, what: str) -> None:
        """See ``World``; also called for the captured launches of a CUDA graph at each of its launches."""

    @abstractmethod
    def wait(self, event: Any) -> None:
        """Wait until the GPU has reached ``event``; raises PeError after the time limit."""

    def check_shmem(self) -> None:
        """Do nothing, unless a backend has ``shmem``."""
        return None

    def upload(self, array: np.ndarray) -> Array:
        """Return a copy on this PE's GPU."""
        self.recorder.refuse("an upload")
        return cupy.asarray(array)

    def download(self, array: Array) -> np.ndarray:
        """Wait for the stream and return a copy in host memory."""
        self.finish()
        return cupy.asnumpy(array)

    def outside(self, size: int) -> Outside:
        """Allocate page-locked host memory."""
        self.recorder.refuse("page-locked memory")
        return pinned.anonymous(size)

    def transfer(self, target: Array, source: Array) -> None:
        """Copy in the order of the current stream."""
        runtime = cupy.cuda.runtime
        if isinstance(target, np.ndarray):
            copied(target.ctypes.data, source.data.ptr, target.nbytes, runtime.memcpyDeviceToHost)
        else:
            copied(target.data.ptr, source.ctypes.data, source.nbytes, runtime.memcpyHostToDevice)

    def clock(self) -> Clock:
        """Return a clock of CUDA events."""
        return _EventClock(self)

    def timeline(self) -> Timeline:
        """Return a timeline of the current stream from CUDA events; phases are also NVTX ranges."""
        return _EventTimeline(self)

    def limit_work(self, seconds: float) -> None:
        """Limit the work of the PE's host thread, which includes its waits for the GPU."""
        self._control.limit_work(seconds)

    def watch(self, seconds: float | None) -> None:
        """Watch the host threads; the limit of waits applies to the GPU."""
        self._control.watch(seconds)

    @cached_property
    def recorder(self) -> Recorder:
        """Return the state of this PE's CUDA graph captures."""
        return Recorder()

    def end_recording(self) -> None:
        """Add to a CUDA graph at the end of its capture; nothing by default."""
        return None

    def repeated(self, work: Callable[[Array], tuple[Array, Any]], entries: int) -> RepeatedGraph:
        """Return ``work`` as a CUDA graph, if it can be one."""
        return RepeatedGraph(self, work, entries)

    @cached_property
    def _side(self) -> Any:
        return urgent_stream()

    @contextmanager
    def side_stream(self) -> Iterator[SideWork]:
        """Submit the block to a side stream, after the current stream's work so far.

        It has a high priority, so that transfers start before waiting arithmetic.
        """
        before, work = _EventWork(), _EventWork()
        before.done_here()
        with self._side:
            before.wait()
            yield work
            work.done_here()

    def get_rows(
        self, source: SymmetricArray, pe: int, rows: Array | range, out: Array, operation: str = "get"
    ) -> None:
        """Fetch rows of PE ``pe`` with loads from its memory, or with a copy."""
        copy = source.copy_of(pe)
        if isinstance(rows, range):
            out[...] = copy[rows.start : rows.stop]
        elif len(rows):
            self.operators.gather_rows(copy, rows, out)
        if pe != self.rank:
            self.counters.add(operation, out.nbytes)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool = False) -> None:
        """Write rows of PE ``pe`` with a copy into its memory, or send them if its memory has no address here."""
        if len(values) and pe in target.peers:
            target.peers[pe][first : first + len(values)] = values
        elif len(values):
            self._send_rows(target, pe, first, values, alone)
        if pe != self.rank:
            self.counters.add("put", values.nbytes)

    @abstractmethod
    def _send_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool) -> None:
        """Write rows of a PE outside the reach of ``target``."""

    def all_reduce(self, values: Array) -> Array:
        """Sum in rank order, in the memory of ``values``, with the same bits as on CPU ranks (collective)."""
        if not isinstance(values, np.ndarray):
            return self._reduced(values)
        self.recorder.refuse("an all-reduce")
        return self._control.all_reduce(values)

    def _reduced(self, values: Array) -> Array:
        """Sum arrays on the GPU: through the hosts, unless a backend overrides this."""
        return self.upload(self._control.all_reduce(self.download(values)))

    def gather(self, value: Any) -> list[Any]:
        """Return every PE's value without waiting for the streams (collective)."""
        self.recorder.refuse("a gather")
        found: list[Any] = self._control.gather(value)
        return found

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        """Give each PE its value without waiting for the streams (collective)."""
        self.recorder.refuse("an exchange")
        received: list[Any] = self._control.exchange(values)
        return received

    def free_memory(self) -> int:
        """Return the bytes of GPU memory that this PE may still allocate, including memory that CuPy has cached."""
        return self._nobodys() + int(cupy.get_default_memory_pool().free_bytes())

    def measure_memory(self) -> None:
        """Free the allocators' cached memory and restart the measurement of the peak."""
        self.give_back()
        self._most = 0

    def peak_memory(self) -> int:
        """Return the peak bytes of the pools and the symmetric arrays together."""
        self.note_memory()
        return self._most

    def note_memory(self) -> None:
        """Update the peak; called before memory is freed, as pools only grow until then."""
        pools = int(cupy.get_default_memory_pool().total_bytes()) + sum(each.bytes for each in self.recorder.memories)
        self._most = max(self._most, self.symmetric_bytes + pools)

    def give_back(self) -> None:
        """Free the GPU memory that CuPy has cached in this process."""
        self.note_memory()
        give_back()

    def _nobodys(self) -> int:
        """Return this PE's share of its GPU's free bytes."""
        return int(cupy.cuda.runtime.memGetInfo()[0]) // self.sharing

    def finish(self) -> None:
        """Wait until the current stream has finished its work; raises PeError after the time limit."""
        self.recorder.refuse("a wait for the GPU")
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
        self.wait(event)


class _EventWork:
    """Work on the side stream up to an event."""

    def __init__(self) -> None:
        self._event = cupy.cuda.Event(disable_timing=True)

    def done_here(self) -> None:
        """Record that the current stream has been given all of the work."""
        self._event.record(cupy.cuda.get_current_stream())

    def wait(self) -> None:
        """Make the current stream wait for the work."""
        cupy.cuda.get_current_stream().wait_event(self._event)


class _EventClock:
    """Times the work of the current stream with CUDA events."""

    def __init__(self, world: GpuArrays):
        self._world = world
        self._first, self._last = cupy.cuda.Event(), cupy.cuda.Event()

    def start(self) -> None:
        """Start the clock, in the order of the stream."""
        self._first.record(cupy.cuda.get_current_stream())

    def stop(self) -> float:
        """Wait for the stream and return the seconds since ``start``."""
        self._last.record(cupy.cuda.get_current_stream())
        self._world.wait(self._last)
        return float(cupy.cuda.get_elapsed_time(self._first, self._last)) * 1e-3


class _EventTimeline:
    """Phases of the current stream, with an event at each change; ``collect`` waits for the last and reads them."""

    def __init__(self, world: GpuArrays):
        self._world = world
        self._stack = ["other"]
        self._marks: list[tuple[str, Any]] = []  # the phase that begins at each event
        self._mark()

    def enter(self, phase: str) -> None:
        """Enter a phase, in the order of the stream."""
        cupy.cuda.nvtx.RangePush(phase)
        self._stack.append(phase)
        self._mark()

    def leave(self) -> None:
        """Leave the current phase."""
        cupy.cuda.nvtx.RangePop()
        self._stack.pop()
        self._mark()

    def collect(self) -> dict[str, float]:
        """Return the seconds per phase and reset them."""
        self._mark()
        self._world.wait(self._marks[-1][1])
        spent: dict[str, float] = {}
        for (phase, begin), (_, end) in zip(self._marks, self._marks[1:], strict=False):
            spent[phase] = spent.get(phase, 0.0) + float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3
        self._marks = self._marks[-1:]
        return spent

    def _mark(self) -> None:
        event = cupy.cuda.Event()
        event.record(cupy.cuda.get_current_stream())
        self._marks.append((self._stack[-1], event))


def check_symmetric(control: World, size: int, needed: int, free: int) -> None:
    """Check that a symmetric array fits before it is allocated (collective).

    Args:
        control: a World of the PEs, for control data.
        size: bytes of the array on this PE.
        needed: bytes that it takes from the GPU.
        free: bytes of the GPU that are free for this PE.

    Raises:
        InputError: the PEs ask for different sizes.
        MachineError: a GPU has too little free memory.
    """
    everywhere = control.gather((size, needed, free))
    sizes = {asked for asked, _, _ in everywhere}
    if len(sizes) > 1:
        raise InputError(
            f"the PEs ask for symmetric arrays of {min(sizes)} to {max(sizes)} bytes: they have different layouts"
        ).on_every_pe()
    if short := name_short([(more, left) for _, more, left in everywhere]):
        raise MachineError(
            f"a symmetric array of {size} bytes on each PE does not fit: {short}: use more PEs or fewer columns"
        ).on_every_pe()


def check_managed(pe: int, size: int) -> None:
    """Raise MachineError if ``size`` bytes of unified memory do not fit on the current GPU, which is PE ``pe``'s."""
    if size > cupy.cuda.runtime.memGetInfo()[0]:
        give_back()
    free = int(cupy.cuda.runtime.memGetInfo()[0])
    if size > free:
        raise MachineError(
            f"PE {pe}: {size} bytes of unified memory are needed, which may all move to its GPU, and that has {free}"
            " left: use fewer columns or a smaller graph"
        )


def managed_memory(size: int) -> Any:
    """Return a pointer to ``size`` bytes of unified memory without hints: pages migrate on access."""
    return cupy.cuda.malloc_managed(max(size, 1))


def parts(rank: int, size: int, memory: Any, elements: int, device: int, handle: Any = None) -> SymmetricArray:
    """Return a symmetric array in one piece of memory that ``device`` addresses, with the copies in PE order.

    Args:
        rank: this PE.
        size: number of PEs.
        memory: a ``cupy.cuda.MemoryPointer`` to the piece.
        elements: floats per copy.
        device: number of this PE's GPU.
        handle: what the backend needs to free the piece.
    """
    seen = cupy.cuda.UnownedMemory(memory.ptr, max(size * elements * 4, 1), memory, device)
    whole = cupy.ndarray((size * elements,), np.float32, cupy.cuda.MemoryPointer(seen, 0))
    peers = {pe: whole[pe * elements : (pe + 1) * elements] for pe in range(size)}
    return SymmetricArray(rank, peers, handle, whole)


def wheel(library: str) -> str:
    """Return the name of NVIDIA's Python package of a library, for the CUDA version that CuPy is built for."""
    return f"{library}-cu{cupy.cuda.runtime.runtimeGetVersion() // 1000}"


def missing() -> str | None:
    """Return one line on what this process lacks to use a GPU; None if nothing is missing."""
    runtime = cupy.cuda.runtime
    try:
        supported, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        if supported and supported // 1000 < needed // 1000:
            return (
                f"the NVIDIA driver supports CUDA {_version(supported)} and CuPy needs {needed // 1000}.0:"
                " update the driver, or take the extra gpu-cuda12 (docs/guides/gpus.md) or --backend mpi"
            )
        count = runtime.getDeviceCount() if supported else 0
    except (RuntimeError, ImportError, OSError) as error:
        return f"no GPU to use ({' '.join(str(error).split())}): take --backend mpi"
    if not count:
        return "no GPU here: no NVIDIA driver, or CUDA_VISIBLE_DEVICES hides them all; take --backend mpi"
    return None


def device_count() -> int:
    """Return the number of GPUs that this process may use."""
    return int(cupy.cuda.runtime.getDeviceCount())


def bus_ids() -> list[str]:
    """Return the PCI bus id of each GPU that this process may use, which identifies the GPU on its host."""
    return [cupy.cuda.runtime.deviceGetPCIBusId(number) for number in range(device_count())]


def named(device: int) -> tuple[str, str]:
    """Return the model and PCI bus id of a GPU."""
    return properties(device)["name"].decode(), bus_ids()[device]


def give_back() -> None:
    """Free the GPU memory that CuPy has cached in this process, so that other processes can use it."""
    cupy.get_default_memory_pool().free_all_blocks()


def describe() -> list[str]:
    """Return one line per GPU: name, memory, architecture, and the GPUs whose memory it can address."""
    count = device_count()
    lines = []
    for device in range(count):
        facts = properties(device)
        peers = [other for other in range(count) if can_address(device, other)]
        reach = f"addresses GPU {', '.join(map(str, peers))}" if peers else "addresses no other GPU"
        size = f"{facts['totalGlobalMem'] / 2**30:.0f} GiB"
        lines.append(f"{facts['name'].decode()}, {size}, {architecture(device)}, {reach}")
    return lines


def start_profiler() -> None:
    """Start recording in a profiler that runs this process; does nothing without one."""
    cupy.cuda.runtime.profilerStart()


def stop_profiler() -> None:
    """Stop the profiler's recording."""
    cupy.cuda.runtime.profilerStop()


def driver() -> str:
    """Return the newest CUDA version that the driver supports, and CuPy's version."""
    runtime = cupy.cuda.runtime
    return f"CUDA {_version(runtime.driverGetVersion())}; CuPy uses {_version(runtime.runtimeGetVersion())}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def properties(device: int) -> dict[str, Any]:
    """Return CUDA's properties of a GPU."""
    facts: dict[str, Any] = cupy.cuda.runtime.getDeviceProperties(device)
    return facts


def architecture(device: int) -> str:
    """Return nvcc's name of a GPU's architecture, for example ``sm_90``."""
    facts = properties(device)
    return f"sm_{facts['major']}{facts['minor']}"


def can_address(device: int, other: int) -> bool:
    """Return whether GPU ``device`` can address the memory of GPU ``other``."""
    return device != other and bool(cupy.cuda.runtime.deviceCanAccessPeer(device, other))
