"""Backend ``nvshmem``: one MPI rank and one GPU per PE, with NVSHMEM's symmetric memory addressed over NVLink.

Data moves on the PE's streams. Within an array's reach, gets and puts are loads and stores of peers' memory; outside
it, and so between hosts, puts use NVSHMEM. Barriers and signals use NVSHMEM. Broadcasts, shifts and team collectives
use NCCL (nccl.py). All-reduces go through symmetric memory on one host and through NCCL between hosts. The streams
order all of these. MPI starts the PEs and carries control data, which is in host memory.

Every wait ends. The host polls instead of blocking in CUDA, and raises a PeError after the time limit. A thread also
watches the stream and ends the job if the host blocks after all (full launch queue, synchronizing call). A native
thread watches allocations, frees and the end of NVSHMEM: nvshmem4py holds the interpreter while they wait for all PEs.

PEs may share GPUs if the user allows it (``shares_gpus``). Results do not change, but times do, and NCCL then uses the
network. The processes take turns on a GPU; under CUDA MPS they run at once, and NVSHMEM can wait for signals.
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
from mgg.backend.api import DEFAULT_TIMEOUT, Array, SideWork, SymmetricArray, World, in_rank_order, together
from mgg.backend.choice import enough
from mgg.backend.gpu import GpuArrays, pinned
from mgg.backend.gpu.nccl import NcclTeam, NcclTeams
from mgg.backend.gpu.stream_watch import StreamWatch
from mgg.backend.job import SHARED, shares_gpus
from mgg.backend.machine import cores
from mgg.backend.machine.start_times import start_times
from mgg.backend.mpi import MpiWorld, check_size
from mgg.backend.mpi_start import MPI
from mgg.backend.watchdog import RankStatus
from mgg.errors import InputError, MachineError, MggError
from mgg.kernel import compile as kernels
from mgg.kernel.compile_ahead import ahead
from mgg.kernel.cuda import cublas
from mgg.kernel.operators import Operators

T = TypeVar("T")

_log = logging.getLogger(__name__)
#: Environment set before NVSHMEM starts, unless the user has set it: no NVLink multicast; NCCL connects the PEs when a
#: team is made, not in the first collective, where a late PE would block the other PEs' hosts.
SETTINGS = {
    "NVSHMEM_DISABLE_NVLS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_RUNTIME_CONNECT": "0",
}
#: More of it if all PEs share a host: NVSHMEM looks for no network and starts no thread that serves one.
ONE_HOST_SETTINGS = {"NVSHMEM_REMOTE_TRANSPORT": "none", "NVSHMEM_DISABLE_LOCAL_ONLY_PROXY": "1"}

_ITEM = 4  # bytes of a float32
_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_MIB = 2**20
#: MiB that our advice on the heap size adds for NVSHMEM itself, which does not document how much it uses.
_OWN = 16
_LEAST = 60.0  # minimum limit, in seconds, for NVSHMEM to start, map memory or finalize


class NvshmemWorld(GpuArrays):
    """This rank's view of the job; see ``World`` for the methods.

    Args:
        control: a World of the same ranks over MPI.
        timeout: seconds that a wait may last.

    Attributes:
        device: number of this PE's GPU in this process.
        stream: the CuPy stream that the PE's program runs on.

    Raises:
        MachineError: a package, GPU or feature is missing or disabled (on every PE).
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
        if any(lacks := control.gather(missing())):
            raise MachineError(next(filter(None, lacks))).on_every_pe()
        cores.spread(control, hosts[self.rank])  # before CUDA, NVSHMEM, NCCL and compilers make threads and processes
        self.device, self.sharing = _choose_device(control, hosts)
        # Checked here on all PEs, a missing compiler gives one line; later each PE would report it alone.
        free = control.gather(os.sched_getaffinity(0))
        ahead.share(self._host.index(self.rank), len(self._host), len(set().union(*(free[pe] for pe in self._host))))
        together(control, lambda: _check_compiler(gpu.architecture(self.device)))
        start_times.done("GPUs, first kernel")
        cupy.cuda.Device(self.device).use()
        self.gpu, self.gpu_bus = gpu.named(self.device)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._rank_status = RankStatus(control)
        self._watch = StreamWatch(self.device, self.rank, self._rank_status, timeout, self.recorder)
        self._core = _start(control, self.device, self._watch)
        start_times.done("NVSHMEM")
        self.operators: Operators = _operators(self._core)
        self._arrays: dict[int, Array] = {}  # by address, in order of allocation
        self._sums: dict[bool, SymmetricArray] = {}  # all-reduce buffers: True: for CUDA graphs, False: for the others
        self._turn = 0
        self._peak = 0  # peak bytes of symmetric memory in use
        self._regions: list[pinned.Region] = []
        if self.sharing > 1:  # NCCL refuses a second rank on a GPU of the same host
            os.environ.setdefault("NCCL_HOSTID", f"{platform.node()}-{self.rank}")
        self._teams = NcclTeams(control, self._watch, self._come)
        with self.stream:
            self._slots = [self._slot() for _ in range(self.size)]  # slot q counts the signals from PE q
            self.barrier()
        start_times.done("signals")
        self._sent, self._awaited = [0] * self.size, [0] * self.size
        self._under_way = False  # whether NVSHMEM may not have delivered all puts yet

    def _come(self) -> int:
        """Record that this PE has reached a rendezvous of all PEs; return its number."""
        self.recorder.refuse("what waits for all PEs")
        return self._rank_status.come()

    def wait(self, event: Any) -> None:
        """Wait for the GPU; after the time limit raise PeError, which names the late PE."""
        self._watch.wait(event)

    @property
    def addressable(self) -> Sequence[int]:
        """Return the PEs of this host."""
        return self._host

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective).

        Raises:
            MachineError: a GPU has too little free memory, the symmetric heap is too small, or this PE cannot address
                a GPU in ``reach``.
        """
        size = max(elements, 1) * _ITEM
        self._check_memory(size)
        base = self._allocate((max(elements, 1),), "float32")
        near = range(self.size) if reach is None else reach
        peers = together(self._control, lambda: {pe: base if pe == self.rank else self._peer(base, pe) for pe in near})
        self.barrier()  # no PE may write before the zeros are set
        return SymmetricArray(self.rank, {pe: copy[:elements] for pe, copy in peers.items()}, base)

    def check_shmem(self) -> None:
        """Raise MachineError on every PE if kernels cannot be linked with NVSHMEM's device library (collective)."""
        together(self._control, lambda: kernels.device_library(library_version()))

    def _check_memory(self, size: int) -> None:
        """Raise MachineError before the allocation of an array that does not fit (collective)."""
        # The heap never shrinks, so only growth beyond its peak takes more GPU memory.
        growth = max(0, self.symmetric_bytes + size - self._peak)
        if growth > self._nobodys() or self.sharing > 1:
            self.give_back()
        if self.sharing > 1:  # this PE can use memory that the others have released
            self._control.barrier()
        gpu.check_symmetric(self._control, size, growth, self._nobodys())

    def managed(self, elements: int) -> SymmetricArray:
        """Allocate zeros in unified memory, in a job of one PE.

        Raises:
            InputError: the job has several PEs, which are processes.
            MachineError: the GPU has too little free memory.
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
        self.barrier()  # all ranks have mapped the region
        return array

    def free_memory(self) -> int:
        """Return the bytes of GPU memory that this PE may still allocate, including the heap's unused part."""
        return super().free_memory() + self._peak - self.symmetric_bytes

    def _allocate(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate zeros in symmetric memory (collective)."""

        def check() -> None:
            # A signal kills NVSHMEM when a growing heap reaches its limit.
            if self.symmetric_bytes + nbytes > heap_limit():
                raise self._too_small(nbytes)

        def attempt() -> Array:
            try:
                with self._watch.blocked("the others to allocate symmetric memory", _LEAST):
                    return self._core.interop.cupy.array(shape, dtype, except_on_del=False)
            except self._core.NvshmemError:
                raise self._too_small(nbytes) from None

        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        # NVSHMEM's call runs a barrier on its own stream. All its barriers share one counter: if a barrier were still
        # pending on this PE's stream, the two would count for each other, and one would never end.
        self.finish()
        # Each PE may have another limit, and NVSHMEM's call waits for all PEs.
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
        """Put rows with NVSHMEM; the next signal or barrier waits until they have arrived.

        If ``alone``, the put is a copy on the current stream. Otherwise it runs on NVSHMEM's own streams, whose cost
        does not pay off for a single put. A local symmetric address names the same place in PE ``pe``'s copy.
        """
        self.recorder.refuse("a put of NVSHMEM")
        place, pitch = target.local[first : first + len(values)], values.strides[0]
        if (len(values) > 1 and place.strides[0] != pitch) or not values[0].flags.c_contiguous:
            raise ValueError(f"rows for PE {pe} do not lie as there")
        size = (len(values) - 1) * pitch + values[0].nbytes  # includes the padding between rows
        ends = [_buffer(array.data.ptr, size) for array in (place, values)]
        (self._core.put if alone else self._core.put_nbi)(*ends, pe, stream=cupy.cuda.get_current_stream())
        self._under_way = True  # NVSHMEM does not guarantee arrival even after a blocking put returns

    @contextmanager
    def side_stream(self) -> Iterator[SideWork]:
        """Submit the block to a side stream; its puts have arrived once a wait for the work ends."""
        with super().side_stream() as work:
            yield work
            self._arrived()

    def _arrived(self) -> None:
        """Make the stream wait until all its puts have arrived."""
        if self._under_way:
            self._core.quiet(stream=cupy.cuda.get_current_stream())
            self._under_way = False

    def _slot(self) -> Any:
        """Allocate a symmetric counter of signals in NVSHMEM's format (collective)."""
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
        """Signal PE ``pe`` after the stream's work so far."""
        self.recorder.refuse("a signal")
        self._arrived()  # NVSHMEM does not order signals after earlier puts
        self._sent[pe] += 1
        set_to, slot = self._core.SignalOp.SIGNAL_SET, self._slots[self.rank]
        self._core.signal_op(slot, self._sent[pe], set_to, pe, stream=cupy.cuda.get_current_stream())

    def wait_signal(self, pe: int) -> None:
        """Make the stream wait for PE ``pe``'s signal.

        Raises:
            MachineError: PEs share a GPU without CUDA MPS, where NVSHMEM does not support waits for signals.
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
        """Return whether PEs share a GPU without CUDA MPS."""
        return self.sharing > 1 and self.sharing * _percentage() > 100

    def _reduced(self, values: Array) -> Array:
        """Return the sum over PEs: on one host each PE reads all copies; otherwise NCCL, which needs buffers, sums."""
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
        """Return every PE's buffer of the shape of ``values``, alternating between two buffers (collective).

        A PE that writes to a buffer has passed the barrier of the sum before, so all PEs have read the buffer's last
        contents. The sums of a CUDA graph use the same addresses at every launch, so graphs have two own buffers.
        """
        floats = -(-values.nbytes // (2 * _ITEM)) * 2  # no half of a double
        recorded = self.recorder.active
        if recorded:
            turn = self.recorder.sums % 2
            self.recorder.sums += 1
        else:
            turn = self._turn = 1 - self._turn
            for each in (False, True):  # a capture cannot allocate; the same work has run before, without one
                self._make_room(each, floats)
        room = self._sums[recorded]
        half = room.local.size // 2
        places = [room.copy_of(pe)[turn * half : turn * half + floats].view(values.dtype) for pe in range(self.size)]
        return [place[: values.size].reshape(values.shape) for place in places]

    def _make_room(self, recorded: bool, floats: int) -> None:
        """Make sure that two buffers of ``floats`` elements exist (collective)."""
        room = self._sums.get(recorded)
        if room is not None and room.local.size >= 2 * floats:
            return
        # Graphs keep their buffers until the end; since sizes double, old ones take no more than the last.
        if room is not None and not recorded:
            self.free(room)
        self._sums[recorded] = self.symmetric(2 * max(2, 1 << (floats - 1).bit_length()) if recorded else 2 * floats)

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values everywhere: with NCCL, or with MPI if they are in host memory (collective)."""
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
        """Return a team with its own communicator (collective)."""
        return self._teams.team(pes)

    def end_recording(self) -> None:
        """Add a barrier if the number of sums is odd: the next launch's first sum reuses this launch's last buffer."""
        if self.recorder.sums % 2:
            self.barrier()

    def barrier(self) -> None:
        """Make the stream wait until every PE's stream is here."""
        # PEs that take turns synchronize on the hosts inside NVSHMEM's barrier, which a graph cannot record.
        if self.size > 1 and not self._in_turns and self.recorder.records_collective("a barrier"):
            self._core.barrier_all(stream=cupy.cuda.get_current_stream())
        elif self.size > 1:
            number = self._come()
            self._core.barrier_all(stream=cupy.cuda.get_current_stream())
            self._watch.mark("a barrier", number)

    def set_phase(self, epoch: int, phase: str) -> None:
        """Set this PE's place."""
        self._rank_status.set_phase(epoch, phase)
        self._control.set_phase(epoch, phase)

    def limit_waits(self, seconds: float) -> None:
        """Set the limit of the host's and the GPU's waits."""
        self._watch.limit(seconds)
        self._control.limit_waits(seconds)

    def note_collective(self, what: str) -> None:
        """Watch the launch, or every launch of the CUDA graph that contains it."""
        if self.recorder.records_collective(what):
            return
        self._watch.mark(what, self._rank_status.come())

    def close(self) -> None:
        """Free the remaining memory in order of allocation, and finalize NVSHMEM (collective)."""
        self.finish()
        self._control.barrier()
        self._teams.close()
        for region in self._regions:
            region.close()
        for base in list(self._arrays.values()):
            self._release(base)
        cublas.release()
        self._control.barrier()  # names a late PE, which NVSHMEM does not
        with self._watch.blocked("NVSHMEM to end", _LEAST):
            self._core.finalize()
        self._watch.close()


def _check_compiler(arch: str) -> None:
    """Start compiling the expected kernels in the background, and wait for one that every job needs."""
    ahead.start(arch)
    kernels.check_compiler(arch)


def missing() -> str | None:
    """Return one line on what this process lacks to be a GPU PE; None if nothing is missing."""
    lack = gpu.missing()
    if lack:
        return lack
    if importlib.util.find_spec("nvshmem") is None:
        return f"nvshmem4py is not installed: pip install {gpu.wheel('nvshmem4py')}, or take --backend mpi"
    try:
        library_version()
    except (RuntimeError, ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        return f"no NVSHMEM library ({reason}): pip install {gpu.wheel('nvidia-nvshmem')}, or take --backend mpi"
    return None


def _percentage() -> float:
    """Return the percentage of a GPU's multiprocessors that CUDA MPS gives this process; 100 if not set."""
    try:
        return float(os.environ.get(_PERCENTAGE, ""))
    except ValueError:
        return 100.0


def heap_variable() -> str:
    """Return the variable that limits the symmetric heap, which grows with CUDA's virtual memory (the default)."""
    fixed = os.environ.get("NVSHMEM_DISABLE_CUDA_VMM", "0").lower() not in ("", "0", "false", "no", "n")
    return "NVSHMEM_SYMMETRIC_SIZE" if fixed else "NVSHMEM_MAX_MEMORY_PER_GPU"


def heap_limit() -> float:
    """Return the maximum bytes of a growing symmetric heap; infinite if NVSHMEM itself reports what does not fit."""
    if heap_variable() != "NVSHMEM_MAX_MEMORY_PER_GPU":
        return math.inf
    given = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([kmgt]?)b?", os.environ.get(heap_variable(), "128G").strip().lower())
    return float(given[1]) * 1024.0 ** " kmgt".index(given[2] or " ") if given else math.inf


def library_version() -> str:
    """Return the version of the NVSHMEM library that nvshmem4py finds."""
    return str(_core().get_version().libnvshmem_version)


def _choose_device(control: MpiWorld, hosts: list[str]) -> tuple[int, int]:
    """Choose this rank's GPU and return it with its number of ranks; ``hosts`` has each rank's host (collective).

    Raises:
        MachineError: a host has fewer GPUs than ranks, its GPUs cannot address each other, or GPUs have unequal
            numbers of PEs.
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
    """Return the operators of the current GPU, which register kernels that call NVSHMEM with it."""
    from mgg.kernel.cuda import CudaOperators

    def ready(module: Any) -> None:
        with redirect_stdout(sys.stderr):  # nvshmem4py prints the status of every module
            core.module_init(core.NvshmemKernelObject.from_handle(module.module.ptr))

    return CudaOperators(nvshmem_ready=ready)


def _core() -> ModuleType:
    """Import nvshmem4py without PyTorch, which it would import if installed: that takes 4 s and is not needed."""
    if "torch" in sys.modules:
        return importlib.import_module("nvshmem.core")
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes "import torch" raise ImportError
    try:
        return importlib.import_module("nvshmem.core")
    finally:
        del sys.modules["torch"]


def _buffer(address: int, size: int) -> Any:
    """Return memory as a buffer for NVSHMEM's calls."""
    return importlib.import_module("cuda.core").Buffer.from_handle(int(address), int(size))


def _start(control: MpiWorld, device: int, watch: StreamWatch) -> ModuleType:
    """Start NVSHMEM on ``device`` (collective)."""
    core = _core()
    chosen = importlib.import_module("cuda.core").Device(device)
    chosen.set_current()
    control.barrier()
    try:
        # On every rank, nvshmem4py prints that it has found mpi4py.
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
        InputError: the number of ranks differs from ``pes()``.
        MachineError: a package, GPU or feature is missing or disabled.
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
