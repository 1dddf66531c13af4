"""GPU PEs as threads of one process: one GPU per thread, or several PEs on one GPU, each with its own memory.

Unified memory needs this, because it belongs to one process; it also lets a machine with one GPU test several PEs. The
PEs address each other's memory directly. Data moves on each PE's stream. The host threads meet first and then make
their streams wait for each other's events, so no stream waits for work that has not been submitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import cupy
import numpy as np

from mgg.backend import gpu, simulated
from mgg.backend.api import DEFAULT_TIMEOUT, Array, SymmetricArray, World, shaped_as, together
from mgg.backend.gpu import GpuArrays, pinned
from mgg.backend.simulated import SimulatedTeam, SimulatedWorld
from mgg.backend.watchdog import poll
from mgg.errors import MachineError, PeError
from mgg.kernel.cuda import cublas
from mgg.kernel.operators import Operators

T = TypeVar("T")

_ITEM = 4  # bytes of a float32
_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


class ThreadsTeam:
    """One PE's view of a team; see ``Team`` for the methods. Copies and sums read the peers' memory."""

    def __init__(self, control: SimulatedTeam, world: ThreadsWorld):
        self.pes = control.pes
        self._control, self._world = control, world
        self._place = self.pes.index(world.rank)

    def meet(self) -> None:
        """Make the stream wait until the streams of all PEs are here (collective)."""
        if len(self.pes) == 1:
            return
        self._world.recorder.refuse("a meeting of threads")
        stream = cupy.cuda.get_current_stream()
        for event in self._control.gather(_recorded()):
            stream.wait_event(event)

    def show(self, values: Array) -> list[Array]:
        """Return every PE's ``values`` once computed; they stay valid until the next ``meet`` (collective)."""
        self._world.recorder.refuse("a meeting of threads")
        stream = cupy.cuda.get_current_stream()
        shown = self._control.gather((values, _recorded()))
        for _, event in shown:
            stream.wait_event(event)
        return [self._world.here(theirs) for theirs, _ in shown]

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values (collective)."""
        shown = self.show(values)
        if self._world.rank != root:
            values[...] = shown[self.pes.index(root)]
            self._world.counters.add("broadcast", values.nbytes)
        self.meet()

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Receive from the PE ``step`` places earlier in the team (collective)."""
        source = (self._place - step) % len(self.pes)
        receive[...] = self.show(send)[source]
        if source != self._place:
            self._world.counters.add("shift", receive.nbytes)
        self.meet()

    def all_gather(self, values: Array, out: Array) -> None:
        """Collect the values of all PEs (collective)."""
        for place, theirs in enumerate(self.show(values)):
            out[place] = theirs
        self._world.counters.add("all_gather", out.nbytes - values.nbytes)
        self.meet()

    def reduce_scatter(self, values: Array, out: Array) -> None:
        """Sum in the team's order (collective)."""
        shown = self.show(values)
        total = shown[0][self._place].astype(np.float64)
        for theirs in shown[1:]:
            total += theirs[self._place]
        out[...] = total
        self._world.counters.add("reduce_scatter", values.nbytes - out.nbytes)
        self.meet()


class ThreadsWorld(GpuArrays):
    """One thread's view of the job; see ``World`` for the methods.

    Args:
        control: a World of the same threads from the backend ``simulated``.
        devices: numbers of GPUs; PE q takes ``devices[q % len(devices)]``.
        timeout: seconds that a wait may last.

    Attributes:
        device: number of this PE's GPU in this process.
        stream: the CuPy stream that the PE's program runs on.

    Raises:
        MachineError: GPUs cannot address each other (on every PE).
    """

    name = "simulated"
    shmem = False

    def __init__(self, control: SimulatedWorld, devices: Sequence[int], timeout: float = DEFAULT_TIMEOUT):
        self.rank, self.size, self.counters = control.rank, control.size, control.counters
        self._control, self._timeout = control, timeout
        self._devices = [devices[pe % len(devices)] for pe in range(control.size)]
        self.device = self._devices[control.rank]
        cupy.cuda.Device(self.device).use()
        self.gpu, self.gpu_bus = gpu.named(self.device)
        together(control, self._reach)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.operators: Operators = _operators()
        self._regions: list[pinned.Region] = []  # the regions that this PE has allocated
        self._inboxes: list[list[deque[Any]]] = control.gather([deque() for _ in range(control.size)])
        self._everyone = ThreadsTeam(control.team(range(control.size)), self)

    def _reach(self) -> None:
        """Make the memory of the other PEs' GPUs addressable from this GPU."""
        for other in sorted({*self._devices} - {self.device}):
            if not gpu.can_address(self.device, other):
                raise MachineError(f"GPU {self.device} cannot address GPU {other}: P2P is off (nvidia-smi topo -p2p r)")
            try:
                cupy.cuda.runtime.deviceEnablePeerAccess(other)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                if error.status != _ALREADY_ENABLED:
                    raise

    def here(self, array: Array) -> Array:
        """Return any PE's ``array`` as an array of this PE's GPU: CuPy must not see arrays of another device."""
        memory = cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, array, self.device)
        return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0), array.strides)

    def wait(self, event: Any) -> None:
        """Wait for the GPU; also ends when another PE fails."""

        def look(waited: float) -> None:
            self._control.check_others()
            if waited >= self._timeout:
                raise PeError(f"{self._control.named([self.rank])}: its GPU did not finish within {self._timeout:g} s")

        poll(lambda: event.done, look)

    def free_memory(self) -> int:
        """Return the bytes of GPU memory that this PE may still allocate: its share of the GPU's free memory."""
        return super().free_memory() // self._devices.count(self.device)

    @property
    def addressable(self) -> Sequence[int]:
        """Return all PEs."""
        return range(self.size)

    def symmetric(self, elements: int, reach: Collection[int] | None = None) -> SymmetricArray:
        """Allocate zeros on every PE (collective); ``handle`` has the copies beyond ``reach``.

        Raises:
            MachineError: a GPU has too little free memory.
        """
        self._check_memory(elements * _ITEM)
        made = cupy.zeros(elements, np.float32)
        copies = self._control.gather(made)
        self.barrier()  # no PE may write before the zeros are set
        seen = {pe: made if pe == self.rank else self.here(copy) for pe, copy in enumerate(copies)}
        beyond = {} if reach is None else {pe: seen.pop(pe) for pe in range(self.size) if pe not in reach}
        return SymmetricArray(self.rank, seen, beyond)

    def _send_rows(self, target: SymmetricArray, pe: int, first: int, values: Array, alone: bool) -> None:
        """Copy the rows: threads address all memory of the process."""
        shaped_as(target.local, target.handle[pe])[first : first + len(values)] = values

    def _check_memory(self, size: int) -> None:
        if size > self.free_memory():
            self.give_back()
        gpu.check_symmetric(self._control, size, size, self.free_memory())

    def managed(self, elements: int) -> SymmetricArray:
        """Allocate zeros for every PE in one piece of unified memory (collective).

        Raises:
            MachineError: a GPU has less free memory than the whole piece takes, as all pages may move there.
        """
        size = self.size * elements * _ITEM
        together(self._control, lambda: gpu.check_managed(self.rank, size))
        made = gpu.managed_memory(size) if self.rank == 0 else None
        memory = self._control.gather(made)[0]
        array = gpu.parts(self.rank, self.size, memory, elements, self.device)
        array.local.fill(0)
        self.barrier()  # no PE may write before the zeros are set
        return array

    def host_symmetric(self, elements: int) -> SymmetricArray:
        """Allocate zeros for every PE in one piece of page-locked host memory (collective)."""
        size = max(self.size * elements * _ITEM, 1)
        made = together(self._control, lambda: pinned.anonymous(size) if self.rank == 0 else None)
        if made is not None:
            self._regions.append(made)
        region = self._control.gather(made)[0]
        memory = cupy.cuda.UnownedMemory(region.address(), size, region, self.device)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return gpu.parts(self.rank, self.size, pointer, elements, self.device, region)

    def free(self, array: SymmetricArray) -> None:
        """Drop every PE's copy (collective)."""
        self.finish()
        self._control.barrier()
        array.peers, array.whole = {}, None
        if isinstance(array.handle, dict):
            array.handle.clear()
        elif array.handle in self._regions:
            self._regions.remove(array.handle)
            array.handle.close()

    def signal(self, pe: int) -> None:
        """Signal PE ``pe`` after the stream's work so far."""
        self.recorder.refuse("a signal")
        self._inboxes[pe][self.rank].append(_recorded())
        self._control.signal(pe)

    def wait_signal(self, pe: int) -> None:
        """Make the stream wait for PE ``pe``'s signal."""
        self.recorder.refuse("a signal")
        self._control.wait_signal(pe)
        cupy.cuda.get_current_stream().wait_event(self._inboxes[self.rank][pe].popleft())

    def broadcast(self, values: Array, root: int) -> None:
        """Copy PE ``root``'s values everywhere (collective)."""
        self._of(values).broadcast(values, root)

    def _of(self, values: Array) -> SimulatedWorld | ThreadsTeam:
        """Return who moves ``values``: the host threads for host memory, else the streams."""
        return self._control if isinstance(values, np.ndarray) else self._everyone

    def shift(self, send: Array, receive: Array, step: int) -> None:
        """Receive the values of PE ``rank - step`` (collective)."""
        self._everyone.shift(send, receive, step)

    def team(self, pes: Sequence[int]) -> ThreadsTeam:
        """Return a team (collective)."""
        return ThreadsTeam(self._control.team(pes), self)

    def barrier(self) -> None:
        """Make the stream wait until every PE's stream is here."""
        self._everyone.meet()

    def set_phase(self, epoch: int, phase: str) -> None:
        """Set this PE's place."""
        self._control.set_phase(epoch, phase)

    def limit_waits(self, seconds: float) -> None:
        """Set the limit of the host threads' and the GPU's waits."""
        self._timeout = seconds
        self._control.limit_waits(seconds)

    def note_collective(self, what: str) -> None:
        """Do nothing: launches of threads, which may share a GPU, do not wait for each other."""

    def close(self) -> None:
        """Wait for every PE's stream and free the remaining memory (collective)."""
        self.finish()
        self._control.barrier()
        for region in self._regions:
            region.close()
        self._regions.clear()
        cublas.release()


def _recorded() -> Any:
    """Return an event recorded after the current stream's work so far."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(cupy.cuda.get_current_stream())
    return event


def _operators() -> Operators:
    """Return the operators of the current GPU."""
    from mgg.kernel.cuda import CudaOperators

    return CudaOperators()


def run(
    size: int, program: Callable[[World], T], devices: Sequence[int] | None = None, timeout: float = DEFAULT_TIMEOUT
) -> list[T]:
    """Run ``program`` on ``size`` PEs, threads of this process, and return their results in rank order.

    Args:
        size: number of PEs.
        program: what each PE runs.
        devices: numbers of GPUs, by default all GPUs; PE q takes ``devices[q % len(devices)]``.
        timeout: seconds that a wait may last.

    Raises:
        MachineError: there is no GPU.
        Exception: the first failure of any PE, after all PEs have ended.
    """
    lack = gpu.missing()
    if lack:
        raise MachineError(lack).on_every_pe()
    chosen = list(range(gpu.device_count())) if devices is None else list(devices)

    def pe(control: World) -> T:
        assert isinstance(control, SimulatedWorld)
        world = ThreadsWorld(control, chosen, timeout)
        with world.stream:
            result = program(world)
            world.close()
        return result

    return simulated.run(size, pe, timeout)
