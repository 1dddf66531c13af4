"""Backend ``nvshmem``: an MPI rank and a GPU a PE; symmetric memory of NVSHMEM, addressed directly over NVLink.

Data moves on the PE's streams: gets and puts are loads and stores of peers' memory, where an array's reach includes the
peer; beyond it, and so between hosts, puts are NVSHMEM's. Barriers and signals are NVSHMEM's, broadcasts, shifts and
the collectives of teams NCCL's (nccl.py); all-reduces meet in symmetric memory, between hosts by NCCL. All of these are
ordered by the streams. MPI starts the PEs and carries control data: what is in host memory.

Nothing waits for ever. The host polls instead of blocking in CUDA, and gives up with a PeError. A thread watches the
stream meanwhile and ends the job if the host is blocked after all (a full launch queue, a call that synchronizes).
nvshmem4py holds Python while NVSHMEM allocates, frees and ends, which wait for all PEs: a native thread watches these.

Where the user allows it (``shares_gpus``), PEs share the GPUs of their host, as anybody tries several PEs who has one:
all is as with a GPU each, but for times, and for what NCCL moves, which goes over the network. The processes take
turns on it, so kernels may wait for each other; under CUDA MPS they run side by side, and NVSHMEM waits for signals.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import logging
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import ModuleType
from typing import Any, TypeVar

import cupy
import numpy as np

from mgg.backend import gpu
from mgg.backend.api import DEFAULT_TIMEOUT, Array, SymmetricArray, Work, World, in_rank_order, together
from mgg.backend.choice import enough
from mgg.backend.gpu import GpuArrays, pinned
from mgg.backend.gpu.nccl import NcclTeam, NcclTeams
from mgg.backend.job import SHARED, shares_gpus
from mgg.backend.machine import cores
from mgg.backend.machine.start_times import start_times
from mgg.backend.mpi import MpiWorld, check_size
from mgg.backend.mpi_start import MPI
from mgg.backend.watchdog.rank_status import Arrivals
from mgg.backend.watchdog.stream_watch import StreamWatch
from mgg.errors import InputError, MachineError, MggError
from mgg.kernel import compile as kernels
from mgg.kernel.ahead import ahead
from mgg.kernel.cuda import cublas
from mgg.kernel.operators import Operators

T = TypeVar("T")

_log = logging.getLogger(__name__)
#: Set before NVSHMEM starts, unless the user has set them: no NVLink multicast; NCCL connects the PEs when a team is
#: made, not in the first collective, where a late PE would block the others' hosts.
SETTINGS = {
    "NVSHMEM_DISABLE_NVLS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_RUNTIME_CONNECT": "0",
}
#: Likewise where all PEs share a host: no network is looked for, and no thread spins to serve one.
ONE_HOST_SETTINGS = {"NVSHMEM_REMOTE_TRANSPORT": "none", "NVSHMEM_DISABLE_LOCAL_ONLY_PROXY": "1"}

_ITEM = 4  # bytes of a float32
_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_MIB = 2**20
#: MiB of the symmetric heap that our advice leaves NVSHMEM, which takes some of it and says nowhere how much.
_OWN = 16
_LEAST = 60.0  # seconds that NVSHMEM has to start, map memory or end, however short other waits are to be


class NvshmemWorld(GpuArrays):
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
    shmem = True

    def __init__(self, control: MpiWorld, timeout: float = DEFAULT_TIMEOUT):
        self.rank, self.size = control.rank, control.size
        self.counters = control.counters
        self._control = control
        hosts = control.gather(platform.node())
        self._host = [pe for pe, host in enumerate(hosts) if host == hosts[self.rank]]
        for name, value in (SETTINGS if len(self._host) < self.size else SETTINGS | ONE_HOST_SETTINGS).items():
            os.environ.setdefault(name, value)
        together(control, _check_machine)
        cores.spread(control, hosts[self.rank])  # before CUDA, NVSHMEM, NCCL and compilers make threads and processes
        self.device, self.sharing = _choose_device(control, hosts)
        # Said here, what compilation lacks is one line; each PE comes to its first kernel alone.
        free = control.gather(os.sched_getaffinity(0))
        ahead.share(self._host.index(self.rank), len(self._host), len(set().union(*(free[pe] for pe in self._host))))
        together(control, lambda: _check_compiler(gpu.architecture(self.device)))
        start_times.done("GPUs, first kernel")
        cupy.cuda.Device(self.device).use()
        self.gpu, self.gpu_bus = gpu.named(self.device)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._arrivals = Arrivals(control)
        self._watch = StreamWatch(self.device, self.rank, self._arrivals, timeout, self.recorder)
        self._core = _start(control, self.device, self._watch)
        start_times.done("NVSHMEM")
        self.operators: Operators = _operators(self._core)
        self._arrays: dict[int, Array] = {}  # by address, in the order in which they were made
        self._sums: dict[bool, SymmetricArray] = {}  # where all-reduces meet: those of CUDA graphs, and the others
        self._turn = 0
        self._peak = 0  # bytes of symmetric memory that were in use at most so far
        self._regions: list[pinned.Region] = []
        if self.sharing > 1:  # NCCL refuses a second rank on a GPU of the same host
            os.environ.setdefault("NCCL_HOSTID", f"{platform.node()}-{self.rank}")
        self._teams = NcclTeams(control, self._watch, self._come)
        with self.stream:
            self._slots = [self._slot() for _ in range(self.size)]  # slot q counts the signals from PE q
            self.barrier()
        start_times.done("signals")
        self._sent, self._awaited = [0] * self.size, [0] * self.size
        self._under_way = False  # rows that NVSHMEM has been told to put, and perhaps not delivered yet

    def _come(self) -> int:
        """This PE has come to what waits for all."""
        self.recorder.refuse("what waits for all PEs")
        return self._arrivals.come()

    def wait(self, event: Any) -> None:
        """Wait for the GPU, and name the PE that it waits for after the time limit."""
        self._watch.wait(event)

    @property
    def addressable(self) -> Sequence[int]:
        """The PEs of this host."""
        return self._host

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective).

        Raises:
            MachineError: a GPU has too little memory left, the symmetric heap is too small, or a GPU of ``reach``
                cannot be addressed.
        """
        size = max(elements, 1) * _ITEM
        self._check_memory(size)
        base = self._allocate((max(elements, 1),), "float32")
        near = range(self.size) if reach is None else reach
        peers = together(self._control, lambda: {pe: base if pe == self.rank else self._peer(base, pe) for pe in near})
        self.barrier()  # the zeros are there before another PE writes
        return SymmetricArray(self.rank, {pe: copy[:elements] for pe, copy in peers.items()}, base)

    def check_shmem(self) -> None:
        """Raise MachineError on every PE where NVSHMEM's device library cannot be linked with kernels (collective)."""
        together(self._control, lambda: kernels.device_library(library_version()))

    def _check_memory(self, size: int) -> None:
        """Say, before anything is allocated, that an array does not fit (collective)."""
        # What the heap once grew to it keeps; only growth beyond that takes more of the GPU.
        growth = max(0, self.symmetric_bytes + size - self._peak)
        if growth > self._nobodys() or self.sharing > 1:
            self.give_back()
        if self.sharing > 1:  # what the others have given back is free for this PE, too
            self._control.barrier()
        gpu.check_symmetric(self._control, size, growth, self._nobodys())

    def managed(self, elements: int) -> SymmetricArray:
        """Allocate zeros in unified memory, on one PE.

        Raises:
            InputError: several PEs, which are processes.
            MachineError: the GPU has too little memory left.
        """
        if self.size > 1:
            raise InputError(
                f"unified memory belongs to one process, and this job has {self.size}: train on one PE or with another"
                " technique (mgg aggregate runs such techniques in threads of one process)"
            ).on_every_pe()
        size = elements * _ITEM
        gpu.check_managed(self.rank, size)
        array = gpu.parts(0, 1, gpu.managed_memory(size), elements, self.device)
        array.local.fill(0)
        return array

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """Allocate zeros for every PE in one piece of page-locked memory that the ranks share (collective).

        Raises:
            MachineError: too little shared memory.
        """
        size = max(self.size * elements * _ITEM, 1)
        region = pinned.shared(self._control, size)
        self._regions.append(region)
        memory = cupy.cuda.UnownedMemory(region.address(), size, region, self.device)
        array = gpu.parts(self.rank, self.size, cupy.cuda.MemoryPointer(memory, 0), elements, self.device, region)
        self.barrier()  # all of them have mapped it
        return array

    def free_memory(self) -> int:
        """Bytes of its GPU's memory that this PE may still allocate; what the symmetric heap holds unused is free."""
        return super().free_memory() + self._peak - self.symmetric_bytes

    def _allocate(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Zeros in symmetric memory (collective)."""

        def check() -> None:
            # NVSHMEM dies by a signal where a heap that grows comes to its limit.
            if self.symmetric_bytes + nbytes > heap_limit():
                raise self._too_small(nbytes)

        def attempt() -> Array:
            try:
                with self._watch.blocked("the others to allocate symmetric memory", _LEAST):
                    return self._core.interop.cupy.array(shape, dtype, except_on_del=False)
            except self._core.NvshmemError:
                raise self._too_small(nbytes) from None

        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        # NVSHMEM's call has a barrier on a stream of its own. Its barriers share one counter: beside one that this PE's
        # stream has not got past, either would count for the other, and one of them would never end.
        self.finish()
        # Limits are each PE's own, and whoever is in NVSHMEM's call waits for all.
        together(self._control, check)
        array = together(self._control, attempt)
        array.fill(0)
        self._arrays[int(array.data.ptr)] = array
        self.symmetric_bytes += nbytes
        self.note_memory()
        self._peak = max(self._peak, self.symmetric_bytes)
        return array

    def _too_small(self, nbytes: int) -> MachineError:
        variable = heap_variable()
        advised = (-(-(self.symmetric_bytes + nbytes) // _MIB) + _OWN) * _MIB
        return MachineError(
            f"PE {self.rank}: the symmetric heap is too small for {nbytes} bytes beside the {self.symmetric_bytes} in"
            f" use: set {variable} to {advised} or more, {_OWN} MiB of it for NVSHMEM itself"
            f" (now {os.environ.get(variable, 'the default')})"
        )

    def _peer(self, base: Array, pe: int) -> Array:
        try:
            return self._core.interop.cupy.get_peer_array(base, pe)
        except self._core.NvshmemError:
            raise MachineError(
                f"the GPU of PE {self.rank} cannot address that of PE {pe}: P2P is off, or it is another host's"
            ) from None

    def _send_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool) -> None:
        """A put of NVSHMEM: the next signal or barrier waits until it has arrived.

        One that is alone is a copy on the current stream itself; the others go beside it, on streams of NVSHMEM's,
        which cost more than they gain where there is but one. An address here names the same place of PE ``pe``'s copy.
        """
        self.recorder.refuse("a put of NVSHMEM")
        place, pitch = target.local[first : first + len(values)], values.strides[0]
        if (len(values) > 1 and place.strides[0] != pitch) or not values[0].flags.c_contiguous:
            raise ValueError(f"rows for PE {pe} do not lie as there")
        size = (len(values) - 1) * pitch + values[0].nbytes  # with what pads the rows between
        ends = [_buffer(array.data.ptr, size) for array in (place, values)]
        (self._core.put if alone else self._core.put_nbi)(*ends, pe, stream=cupy.cuda.get_current_stream())
        self._under_way = True  # a put that returns, too, has not arrived by NVSHMEM's rules

    @contextmanager
    def aside(self) -> Iterator[Work]:
        """As on every GPU; what is put there has arrived when the work is waited for."""
        with super().aside() as work:
            yield work
            self._arrived()

    def _arrived(self) -> None:
        """Let the stream wait until all that it was given to put has arrived."""
        if self._under_way:
            self._core.quiet(stream=cupy.cuda.get_current_stream())
            self._under_way = False

    def _slot(self) -> Any:
        """A symmetric counter of signals, as NVSHMEM wants it (collective)."""
        return self._core.interop.cupy.array_get_buffer(self._allocate((1,), "uint64"))[0]

    def free(self, array: SymmetricArray) -> None:
        """Free every PE's copy (collective)."""
        self.finish()
        self._control.barrier()
        array.peers, array.whole = {}, None
        if isinstance(array.handle, pinned.Region):
            self._regions.remove(array.handle)
            array.handle.close()
        elif array.handle is not None:
            self._release(array.handle)

    def _release(self, base: Array) -> None:
        del self._arrays[int(base.data.ptr)]
        self.symmetric_bytes -= base.nbytes
        with self._watch.blocked("the others to free symmetric memory", _LEAST):
            self._core.interop.cupy.free_array(base)

    def signal(self, pe: int) -> None:
        """Signal PE ``pe``, behind the stream's work so far."""
        self.recorder.refuse("a signal")
        self._arrived()  # NVSHMEM orders signals with nothing that was put before
        self._sent[pe] += 1
        set_to, slot = self._core.SignalOp.SIGNAL_SET, self._slots[self.rank]
        self._core.signal_op(slot, self._sent[pe], set_to, pe, stream=cupy.cuda.get_current_stream())

    def wait_signal(self, pe: int) -> None:
        """Let the stream wait for PE ``pe``'s signal.

        Raises:
            MachineError: PEs share a GPU without CUDA MPS, where NVSHMEM refuses waits such as this one.
        """
        self.recorder.refuse("a signal")
        if self._in_turns:
            raise MachineError(
                f"PE {self.rank}: NVSHMEM waits for signals between {self.sharing} PEs of one GPU under CUDA MPS alone:"
                f" start nvidia-cuda-mps-control -d, and set {_PERCENTAGE} to {100 // self.sharing} or less"
            )
        self._awaited[pe] += 1
        at_least = self._core.ComparisonType.CMP_GE
        self._core.signal_wait(self._slots[pe], self._awaited[pe], at_least, stream=cupy.cuda.get_current_stream())
        self._watch.mark(f"a signal from PE {pe}")

    @property
    def _in_turns(self) -> bool:
        """Whether PEs share a GPU without CUDA MPS."""
        return self.sharing > 1 and self.sharing * _percentage() > 100

    def _reduced(self, values: Array) -> Array:
        """Every PE reads those of all where it addresses them, else by NCCL, whose buffers take memory of their own."""
        if self.size == 1 or not values.size:
            return values.copy()
        if len(self._host) < self.size:
            return self._teams.everyone().all_reduce(values)
        copies = self._shared(values)
        copies[self.rank][...] = values
        self.barrier()
        self.counters.add("all_reduce", (self.size - 1) * values.nbytes)
        return in_rank_order(copies)

    def _shared(self, values: Array) -> list[Array]:
        """Room like ``values`` on every PE, in two places by turns (collective).

        Whoever writes to one of them has got past the barrier of the sum before, so all have read what was there. The
        sums of a CUDA graph have the same places at every launch, and so two of their own.
        """
        floats = -(-values.nbytes // (2 * _ITEM)) * 2  # no half of a double
        recorded = self.recorder.active
        if recorded:
            turn = self.recorder.sums % 2
            self.recorder.sums += 1
        else:
            turn = self._turn = 1 - self._turn
            for each in (False, True):  # a capture allocates nothing; it is of what has run before
                self._make_room(each, floats)
        room = self._sums[recorded]
        half = room.local.size // 2
        places = [room.copy_of(pe)[turn * half : turn * half + floats].view(values.dtype) for pe in range(self.size)]
        return [place[: values.size].reshape(values.shape) for place in places]

    def _make_room(self, recorded: bool, floats: int) -> None:
        """See that two places of ``floats`` are there (collective)."""
        room = self._sums.get(recorded)
        if room is not None and room.local.size >= 2 * floats:
            return
        # What graphs have stays until the end; sizes that double take no more than twice the last.
        if room is not None and not recorded:
            self.free(room)
        self._sums[recorded] = self.symmetric(2 * max(2, 1 << (floats - 1).bit_length()) if recorded else 2 * floats)

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values everywhere: with NCCL, or through MPI where they are the hosts' (collective)."""
        if self.size > 1:
            self.recorder.refuse("a broadcast")
        if isinstance(values, np.ndarray):
            self._control.broadcast(values, root)
        else:
            self._teams.everyone().broadcast(values, root)

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Send to PE ``rank + step``, receive from PE ``rank - step`` (collective)."""
        if self.size > 1:
            self.recorder.refuse("a shift")
        self._teams.everyone().shift(send, receive, step)

    def team(self, pes: Sequence[int]) -> NcclTeam:
        """A team with a communicator of its own (collective)."""
        return self._teams.team(pes)

    def end_recording(self) -> None:
        """The first sum of the next launch has the place of the last one of this launch, where their number is odd."""
        if self.recorder.sums % 2:
            self.barrier()

    def barrier(self) -> None:
        """Let the stream wait until every PE's stream is here."""
        # PEs that take turns meet on the hosts inside NVSHMEM's barrier, which a graph cannot have.
        if self.size > 1 and not self._in_turns and self.recorder.meets("a barrier"):
            self._core.barrier_all(stream=cupy.cuda.get_current_stream())
        elif self.size > 1:
            number = self._come()
            self._core.barrier_all(stream=cupy.cuda.get_current_stream())
            self._watch.mark("a barrier", number)

    def at(self, epoch: int, phase: str) -> None:
        """Say where this PE is."""
        self._arrivals.at(epoch, phase)
        self._control.at(epoch, phase)

    def limit_waits(self, seconds: float) -> None:
        """Of the host and of the GPU."""
        self._watch.limit(seconds)
        self._control.limit_waits(seconds)

    def met(self, what: str) -> None:
        """See that the launch comes to an end, or each of them where it is part of a CUDA graph."""
        if self.recorder.meets(what):
            return
        self._watch.mark(what, self._arrivals.come())

    def close(self) -> None:
        """Free what is left, in the order in which it was made, and end NVSHMEM (collective)."""
        self.finish()
        self._control.barrier()
        self._teams.close()
        for region in self._regions:
            region.close()
        for base in list(self._arrays.values()):
            self._release(base)
        cublas.release()
        self._control.barrier()  # names who is late, as NVSHMEM does not
        with self._watch.blocked("NVSHMEM to end", _LEAST):
            self._core.finalize()
        self._watch.close()


def _check_compiler(arch: str) -> None:
    """Compile what is expected in the background, and wait for a kernel that every job needs."""
    ahead.start(arch)
    kernels.check_compiler(arch)


def _check_machine() -> None:
    lack = missing()
    if lack:
        raise MachineError(lack)


def missing() -> str | None:
    """What this process lacks to be a PE with a GPU, in one line; None where nothing is missing."""
    lack = gpu.missing()
    if lack:
        return lack
    if importlib.util.find_spec("nvshmem") is None:
        return f"nvshmem4py is not installed: pip install {gpu.wheel('nvshmem4py')}, or take --backend mpi"
    try:
        library_version()
    except (RuntimeError, ImportError, OSError) as error:
        told = " ".join(str(error).split())
        return f"no NVSHMEM library ({told}): pip install {gpu.wheel('nvidia-nvshmem')}, or take --backend mpi"
    return None


def _percentage() -> float:
    """Of a GPU's multiprocessors, what CUDA MPS lets this process have; all where nobody has said."""
    try:
        return float(os.environ.get(_PERCENTAGE, ""))
    except ValueError:
        return 100.0


def heap_variable() -> str:
    """The variable that limits the symmetric heap: with CUDA's virtual memory management, the default, it grows."""
    fixed = os.environ.get("NVSHMEM_DISABLE_CUDA_VMM", "0").lower() not in ("", "0", "false", "no", "n")
    return "NVSHMEM_SYMMETRIC_SIZE" if fixed else "NVSHMEM_MAX_MEMORY_PER_GPU"


def heap_limit() -> float:
    """Bytes to which a symmetric heap that grows can grow; infinite where NVSHMEM itself says what does not fit."""
    if heap_variable() != "NVSHMEM_MAX_MEMORY_PER_GPU":
        return math.inf
    given = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([kmgt]?)b?", os.environ.get(heap_variable(), "128G").strip().lower())
    return float(given[1]) * 1024.0 ** " kmgt".index(given[2] or " ") if given else math.inf


def library_version() -> str:
    """Version of the NVSHMEM library that nvshmem4py finds."""
    return str(_core().get_version().libnvshmem_version)


def _choose_device(control: MpiWorld, hosts: list[str]) -> tuple[int, int]:
    """A GPU for each rank of a host, and the ranks that it has; ``hosts`` names that of each rank (collective).

    Raises:
        MachineError: fewer GPUs on a host than ranks, or GPUs of a host that cannot address each other.
    """
    host = hosts[control.rank]
    buses = gpu.bus_ids()
    device = hosts[: control.rank].count(host) % len(buses)
    everywhere = list(zip(hosts, control.gather(buses[device]), strict=True))
    shared = all(control.gather(shares_gpus()))
    for name in dict.fromkeys(hosts):
        used = [bus for other, bus in everywhere if other == name]
        if not enough(len(set(used)), len(used), shared):
            where = f" on host {name}" if len(set(hosts)) > 1 else ""
            raise MachineError(
                f"{len(used)} PEs and {len(set(used))} GPUs{where}: a PE needs a GPU of its own; start as many ranks as"
                " there are GPUs, or take --backend mpi, or MGG_SHARED_GPUS=1 to try PEs that share them"
            ).on_every_pe()
    used = [bus for other, bus in everywhere if other == host]

    def check() -> None:
        for other, bus in enumerate(buses):
            if other != device and bus in used and not gpu.can_address(device, other):
                raise MachineError(f"GPU {device} cannot address GPU {other}: P2P is off (nvidia-smi topo -p2p r)")

    together(control, check)
    numbers = sorted({everywhere.count(place) for place in everywhere})
    if len(numbers) > 1:
        raise MachineError(
            f"{numbers[0]} PEs on one GPU and {numbers[-1]} on another: NVSHMEM wants as many on each; start a multiple"
            " of the number of GPUs, or hide some (CUDA_VISIBLE_DEVICES)"
        ).on_every_pe()
    if numbers[0] > 1 and control.rank == 0:
        _log.warning(SHARED)
    return device, everywhere.count((host, buses[device]))


def _operators(core: ModuleType) -> Operators:
    """The operators of the current GPU; NVSHMEM learns of the kernels that call it."""
    from mgg.kernel.cuda import CudaOperators

    def ready(module: Any) -> None:
        with redirect_stdout(sys.stderr):  # where nvshmem4py prints the status of every module
            core.module_init(core.NvshmemKernelObject.from_handle(module.module.ptr))

    return CudaOperators(nvshmem_ready=ready)


def _core() -> ModuleType:
    """nvshmem4py, without the PyTorch that it imports where there is one: that takes 4 s, and nothing here needs it."""
    if "torch" in sys.modules:
        return importlib.import_module("nvshmem.core")
    sys.modules["torch"] = None  # type: ignore[assignment]  # an ImportError for whoever asks
    try:
        return importlib.import_module("nvshmem.core")
    finally:
        del sys.modules["torch"]


def _buffer(address: int, size: int) -> Any:
    """Memory as NVSHMEM takes it."""
    return importlib.import_module("cuda.core").Buffer.from_handle(int(address), int(size))


def _start(control: MpiWorld, device: int, watch: StreamWatch) -> ModuleType:
    """Start NVSHMEM on ``device`` (collective)."""
    core = _core()
    chosen = importlib.import_module("cuda.core").Device(device)
    chosen.set_current()
    control.barrier()
    try:
        # nvshmem4py says on every rank that it has found mpi4py.
        with watch.blocked("NVSHMEM to start", _LEAST), redirect_stderr(io.StringIO()):
            core.init(device=chosen, mpi_comm=control.comm, initializer_method="emulated_mpi")
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
    control = MpiWorld(MPI.COMM_WORLD, timeout)
    together(control, lambda: check_size(control.size, pes()))
    start_times.done("MPI, CuPy")
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
