"""Backend ``nvshmem``: a GPU and an MPI rank a PE; symmetric memory of NVSHMEM, addressed directly over NVLink.

Data moves on the PE's stream: gets and puts are loads and stores of peers' memory, barriers and signals are NVSHMEM's,
ordered by the stream. MPI starts the PEs and carries control data alone. The PEs of a job share one host.

Nothing waits for ever. The host polls instead of blocking in CUDA, and gives up with a PeError. A thread watches the
stream meanwhile and ends the job if the host is blocked after all (a full launch queue, a call that synchronizes).
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import platform
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import cupy
import numpy as np
from mpi4py import MPI

from mgg.backend.api import DEFAULT_TIMEOUT, Array, Clock, SymmetricArray, World, name_pes, together
from mgg.backend.mpi import Arrivals, MpiWorld, abort, check_size
from mgg.errors import InputError, MachineError, MggError, PeError
from mgg.kernel.operators import Operators

T = TypeVar("T")

#: Set before NVSHMEM starts, unless the user has set them: no NVLink multicast, no network transport on one host.
SETTINGS = {"NVSHMEM_DISABLE_NVLS": "1", "NCCL_NVLS_ENABLE": "0", "NVSHMEM_REMOTE_TRANSPORT": "none"}

_ITEM = 4  # bytes of a float32
_HEAP = "NVSHMEM_SYMMETRIC_SIZE"
_AHEAD = 16  # barriers and signals that the host submits ahead of the GPU, well below the length of a launch queue
_PATIENCE = 2e-3  # seconds that a wait yields the core between looks; after that it sleeps
_NAP = 20e-6  # seconds of sleep between looks
_GRACE = 5.0  # seconds that the host has to raise its PeError before the watching thread ends the job


@dataclass(frozen=True)
class _Mark:
    """A point of the stream behind something that waits for other PEs: ``number`` of a barrier, or what else."""

    event: Any
    what: str
    number: int | None


class _Watch:
    """Sees that the stream gets past its marks.

    Args:
        device: the PE's GPU.
        rank: the PE.
        arrivals: who has submitted which barrier.
        timeout: seconds that the stream may stay before one mark.
    """

    def __init__(self, device: int, rank: int, arrivals: Arrivals, timeout: float):
        self._device, self._rank, self._arrivals, self._timeout = device, rank, arrivals, timeout
        self._marks: deque[_Mark] = deque()
        self._moved = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def mark(self, what: str, number: int | None = None) -> None:
        """Mark this point of the current stream; waits while the stream is far behind."""
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
        with self._lock:
            if not self._marks:
                self._moved = time.monotonic()
            self._marks.append(_Mark(event, what, number))
            oldest = self._marks[0] if len(self._marks) > _AHEAD else None
        if oldest is not None:
            self.wait(oldest.event)

    def wait(self, event: Any) -> None:
        """Wait until the stream has passed ``event``; raises PeError after the time limit."""
        start = time.monotonic()
        while not event.done:
            now = time.monotonic()
            if now - start < _PATIENCE:
                os.sched_yield()
                continue
            if min(now - start, self._standstill()) > self._timeout:
                raise PeError(self._blame())
            time.sleep(_NAP)
        self._standstill()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()

    def _standstill(self) -> float:
        """Drop the marks that the stream has passed; seconds since it passed the last one."""
        with self._lock:
            while self._marks and self._marks[0].event.done:
                self._marks.popleft()
                self._moved = time.monotonic()
            return time.monotonic() - self._moved

    def _blame(self) -> str:
        mark = self._marks[0] if self._marks else None
        if mark is None:
            return f"PE {self._rank}: its GPU did not finish within {self._timeout:g} s"
        late = [] if mark.number is None else self._arrivals.away(mark.number)
        if late:
            return f"{name_pes(late)} did not reach a barrier within {self._timeout:g} s"
        return f"PE {self._rank}: waited {self._timeout:g} s for {mark.what}"

    def _run(self) -> None:
        cupy.cuda.Device(self._device).use()
        while not self._closed.wait(min(1.0, self._timeout / 10)):
            try:
                stuck = self._standstill() > self._timeout + _GRACE and bool(self._marks)
            except cupy.cuda.runtime.CUDARuntimeError:
                return  # a kernel failed: the host gets the same error from its next call
            if stuck:
                print(f"mgg: PE {self._rank}: {self._blame()}", file=sys.stderr, flush=True)
                abort(PeError.exit_code)


class _EventClock:
    """Times the work of the current stream with CUDA events."""

    def __init__(self, watch: _Watch):
        self._watch = watch
        self._first, self._last = cupy.cuda.Event(), cupy.cuda.Event()

    def start(self) -> None:
        """Begin, in the order of the stream."""
        self._first.record(cupy.cuda.get_current_stream())

    def stop(self) -> float:
        """Wait for the stream; seconds since ``start``."""
        self._last.record(cupy.cuda.get_current_stream())
        self._watch.wait(self._last)
        return float(cupy.cuda.get_elapsed_time(self._first, self._last)) * 1e-3


class NvshmemWorld:
    """This rank's view of the job; see ``World`` for the methods.

    Args:
        control: the same ranks over MPI.
        timeout: seconds that a wait may last.

    Attributes:
        device: number of this PE's GPU in this process.
        stream: the CuPy stream that the PE's program runs on.

    Raises:
        MachineError: something is missing or switched off (on every PE).
    """

    name = "nvshmem"
    xp = cupy

    def __init__(self, control: MpiWorld, timeout: float = DEFAULT_TIMEOUT):
        self.rank, self.size = control.rank, control.size
        self.counters = control.counters
        self._control = control
        together(control, _check_machine)
        self.device = _choose_device(control)
        cupy.cuda.Device(self.device).use()
        self.gpu = _properties(self.device)["name"].decode()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._core = _start(control, self.device)
        self.operators: Operators = _operators(self._core)
        self._arrays: dict[int, Array] = {}  # by address, in the order in which they were made
        self._bytes = self._peak = 0  # of symmetric memory in use now, and at most so far
        self._arrivals = Arrivals(control)
        self._watch = _Watch(self.device, self.rank, self._arrivals, timeout)
        with self.stream:
            self._slots = [self._slot() for _ in range(self.size)]  # slot q counts the signals from PE q
            self.barrier()
        self._sent, self._awaited = [0] * self.size, [0] * self.size

    def upload(self, array: np.ndarray) -> Array:
        """A copy in this PE's GPU."""
        return cupy.asarray(array)

    def download(self, array: Array) -> np.ndarray:
        """A copy in host memory, once the stream has made the array."""
        self._finish()
        return cupy.asnumpy(array)

    def clock(self) -> Clock:
        """A clock of CUDA events."""
        return _EventClock(self._watch)

    def symmetric(self, elements: int) -> SymmetricArray:
        """Allocate zeros on every PE (collective).

        Raises:
            MachineError: a GPU has too little memory left, or the symmetric heap is too small.
        """
        size = max(elements, 1) * _ITEM
        self._check_memory(size)
        base = self._allocate((max(elements, 1),), "float32")
        peers = {pe: base if pe == self.rank else self._peer(base, pe) for pe in range(self.size)}
        self.barrier()  # the zeros are there before another PE writes
        return SymmetricArray(self.rank, {pe: copy[:elements] for pe, copy in peers.items()}, base)

    def _check_memory(self, size: int) -> None:
        """Say, before anything is allocated, that an array does not fit (collective)."""
        # What the heap once grew to it keeps; only growth beyond that takes more of the GPU.
        growth = max(0, self._bytes + size - self._peak)
        if growth > cupy.cuda.runtime.memGetInfo()[0]:
            cupy.get_default_memory_pool().free_all_blocks()
        everywhere = self._control.gather((size, growth, int(cupy.cuda.runtime.memGetInfo()[0])))
        sizes = {asked for asked, _, _ in everywhere}
        if len(sizes) > 1:
            raise InputError(
                f"the PEs ask for symmetric arrays of {min(sizes)} to {max(sizes)} bytes: they have different layouts"
            ).on_every_pe()
        short = [pe for pe, (_, needed, left) in enumerate(everywhere) if needed > left]
        if short:
            _, needed, left = everywhere[short[0]]
            raise MachineError(
                f"{name_pes(short)}: a symmetric array needs {needed} more bytes of GPU memory on each PE and {left}"
                " are left: use more PEs or fewer columns"
            ).on_every_pe()

    def _allocate(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Zeros in symmetric memory (collective)."""

        def attempt() -> Array:
            try:
                return self._core.interop.cupy.array(shape, dtype, except_on_del=False)
            except self._core.NvshmemError:
                held = os.environ.get(_HEAP, "NVSHMEM's default")
                raise MachineError(
                    f"the symmetric heap is too small for {nbytes} bytes beside the {self._bytes} in use:"
                    f" set {_HEAP} to {self._bytes + nbytes} or more (now {held})"
                ) from None

        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        array = together(self._control, attempt)
        array.fill(0)
        self._arrays[int(array.data.ptr)] = array
        self._bytes += nbytes
        self._peak = max(self._peak, self._bytes)
        return array

    def _peer(self, base: Array, pe: int) -> Array:
        try:
            return self._core.interop.cupy.get_peer_array(base, pe)
        except self._core.NvshmemError:
            raise MachineError(f"the GPU of PE {self.rank} cannot address that of PE {pe}: P2P is off") from None

    def _slot(self) -> Any:
        """A symmetric counter of signals, as NVSHMEM wants it (collective)."""
        return self._core.interop.cupy.array_get_buffer(self._allocate((1,), "uint64"))[0]

    def free(self, array: SymmetricArray) -> None:
        """Free every PE's copy (collective)."""
        self._finish()
        self._control.barrier()
        array.peers = {}
        self._release(array.handle)

    def _release(self, base: Array) -> None:
        del self._arrays[int(base.data.ptr)]
        self._bytes -= base.nbytes
        self._core.interop.cupy.free_array(base)

    def get_rows(self, source: SymmetricArray, pe: int, rows: Array, out: Array) -> None:
        """Fetch rows of PE ``pe`` with loads of its memory."""
        if len(rows):
            self.operators.gather_rows(source.peers[pe], rows, out)
        if pe != self.rank:
            self.counters.add("get", out.nbytes)

    def put_rows(self, target: SymmetricArray, pe: int, first: int, values: Array) -> None:
        """Write rows of PE ``pe`` with a copy into its memory."""
        if len(values):
            target.peers[pe][first : first + len(values)] = values
        if pe != self.rank:
            self.counters.add("put", values.nbytes)

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``, behind the stream's work so far."""
        self._sent[pe] += 1
        set_to, slot = self._core.SignalOp.SIGNAL_SET, self._slots[self.rank]
        self._core.signal_op(slot, self._sent[pe], set_to, pe, stream=cupy.cuda.get_current_stream())

    def wait_signal(self, pe: int) -> None:
        """Let the stream wait for PE ``pe``'s signal."""
        self._awaited[pe] += 1
        at_least = self._core.ComparisonType.CMP_GE
        self._core.signal_wait(self._slots[pe], self._awaited[pe], at_least, stream=cupy.cuda.get_current_stream())
        self._watch.mark(f"a signal from PE {pe}")

    def broadcast(self, values: Array, root: int, source: SymmetricArray | None = None) -> None:
        """Copy PE ``root``'s values everywhere: out of its memory with ``source``, through the hosts without."""
        if isinstance(values, np.ndarray):
            self._control.broadcast(values, root)
        elif source is None:
            held = self.download(values)
            self._control.broadcast(held, root)
            values[...] = self.upload(held)
        elif self.rank == root:
            for step in range(1, self.size):
                self.signal((root + step) % self.size)
        else:
            self.wait_signal(root)
            values[...] = source.peers[root][: len(values)]
            self.counters.add("broadcast", values.nbytes)

    def barrier(self) -> None:
        """Let the stream wait until every PE's stream is here."""
        number = self._arrivals.come()
        if self.size > 1:
            self._core.barrier_all(stream=cupy.cuda.get_current_stream())
            self._watch.mark("the others at a barrier", number)

    def all_reduce(self, values: Array) -> Array:
        """Sum in rank order, on the hosts: the same bits as on CPU ranks (collective)."""
        if isinstance(values, np.ndarray):
            return self._control.all_reduce(values)
        return self.upload(self._control.all_reduce(self.download(values)))

    def gather(self, value: Any) -> list[Any]:
        """Every PE's value; the streams go on (collective)."""
        return self._control.gather(value)

    def close(self) -> None:
        """Free what is left, in the order in which it was made, and end NVSHMEM (collective)."""
        self._finish()
        self._control.barrier()
        for base in list(self._arrays.values()):
            self._release(base)
        self._watch.close()
        self._core.finalize()

    def _finish(self) -> None:
        """Wait until the current stream has done its work; raises PeError after the time limit."""
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
        self._watch.wait(event)


def _check_machine() -> None:
    lack = missing()
    if lack:
        raise MachineError(lack)


def missing() -> str | None:
    """What this process lacks to be a PE with a GPU, in one line; None where nothing is missing."""
    runtime = cupy.cuda.runtime
    try:
        driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        if driver and driver // 1000 < needed // 1000:
            return (
                f"the NVIDIA driver supports CUDA {_version(driver)} and CuPy needs {needed // 1000}.0:"
                " update the driver, or take --backend mpi"
            )
        count = runtime.getDeviceCount() if driver else 0
    except (RuntimeError, ImportError, OSError) as error:
        return f"no GPU to use ({' '.join(str(error).split())}): take --backend mpi"
    if not count:
        return "no GPU here: no NVIDIA driver, or CUDA_VISIBLE_DEVICES hides them all; take --backend mpi"
    if importlib.util.find_spec("nvshmem") is None:
        return "nvshmem4py is not installed: pip install nvshmem4py-cu13, or take --backend mpi"
    try:
        library_version()
    except (RuntimeError, ImportError, OSError) as error:
        return f"no NVSHMEM library ({' '.join(str(error).split())}): pip install nvidia-nvshmem-cu13"
    return None


def device_count() -> int:
    """GPUs that this process may use."""
    return int(cupy.cuda.runtime.getDeviceCount())


def library_version() -> str:
    """Version of the NVSHMEM library that nvshmem4py finds."""
    return str(_core().get_version().libnvshmem_version)


def describe() -> list[str]:
    """A line a GPU: name, memory, architecture, and the GPUs whose memory it can address."""
    count = device_count()
    lines = []
    for device in range(count):
        facts = _properties(device)
        peers = [other for other in range(count) if _can_address(device, other)]
        reach = f"addresses GPU {', '.join(map(str, peers))}" if peers else "addresses no other GPU"
        arch = f"sm_{facts['major']}{facts['minor']}"
        lines.append(f"{facts['name'].decode()}, {facts['totalGlobalMem'] / 2**30:.0f} GiB, {arch}, {reach}")
    return lines


def driver() -> str:
    """The newest CUDA that the driver supports, and CuPy's."""
    runtime = cupy.cuda.runtime
    return f"CUDA {_version(runtime.driverGetVersion())}; CuPy uses {_version(runtime.runtimeGetVersion())}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _properties(device: int) -> dict[str, Any]:
    facts: dict[str, Any] = cupy.cuda.runtime.getDeviceProperties(device)
    return facts


def _can_address(device: int, other: int) -> bool:
    return device != other and bool(cupy.cuda.runtime.deviceCanAccessPeer(device, other))


def _choose_device(control: MpiWorld) -> int:
    """A GPU for each rank of the host (collective).

    Raises:
        MachineError: several hosts, fewer GPUs than ranks, or GPUs that cannot address each other.
    """
    hosts = set(control.gather(platform.node()))
    if len(hosts) > 1:
        raise MachineError(
            f"backend nvshmem runs on the GPUs of one host, and the job has {len(hosts)}: start all ranks on one"
        ).on_every_pe()
    count = device_count()
    device = control.rank % count
    buses = [cupy.cuda.runtime.deviceGetPCIBusId(number) for number in range(count)]
    used = control.gather(buses[device])
    if len(set(used)) < len(used):
        raise MachineError(
            f"{len(used)} PEs and {len(set(used))} GPUs: a PE needs a GPU of its own; start as many ranks as there are"
            " GPUs, or take --backend mpi"
        ).on_every_pe()

    def check() -> None:
        for other, bus in enumerate(buses):
            if other != device and bus in used and not _can_address(device, other):
                raise MachineError(f"GPU {device} cannot address GPU {other}: P2P is off (nvidia-smi topo -p2p r)")

    together(control, check)
    return device


def _operators(core: ModuleType) -> Operators:
    """The operators of the current GPU; NVSHMEM learns of the kernels that call it."""
    from mgg.kernel.cuda import CudaOperators

    def ready(module: Any) -> None:
        core.module_init(core.NvshmemKernelObject.from_handle(module.module.ptr))

    return CudaOperators(nvshmem_ready=ready)


def _core() -> ModuleType:
    return importlib.import_module("nvshmem.core")


def _start(control: MpiWorld, device: int) -> ModuleType:
    """Start NVSHMEM on ``device`` (collective)."""
    core = _core()
    gpu = importlib.import_module("cuda.core").Device(device)
    gpu.set_current()
    control.barrier()
    try:
        with redirect_stderr(io.StringIO()):  # where nvshmem4py says on every rank that it has found mpi4py
            core.init(device=gpu, mpi_comm=control.comm, initializer_method="emulated_mpi")
    except Exception as error:
        raise MachineError(
            f"NVSHMEM {library_version()} did not start: {error} (NVSHMEM_DEBUG=INFO says more)"
        ) from None
    return core


def run(pes: Callable[[], int], program: Callable[[World], T], timeout: float = DEFAULT_TIMEOUT) -> list[T]:
    """Run ``program`` on this rank's GPU and return its result in a list of one.

    Raises:
        InputError: the job has another number of ranks than ``pes()``.
        MachineError: something is missing or switched off.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    control = MpiWorld(MPI.COMM_WORLD, timeout)
    together(control, lambda: check_size(control.size, pes()))
    world = NvshmemWorld(control, timeout)
    with world.stream:
        try:
            result = program(world)
        except MggError as error:
            if error.everywhere:
                world.close()
            raise
        world.close()
    control.close()
    return [result]
