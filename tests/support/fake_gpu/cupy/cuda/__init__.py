"""Streams, events and devices that exist in name."""

import os
import time
from types import SimpleNamespace

from support.devices import device
from support.devices.device import Pool as MemoryPool
from support.devices.device import using_allocator

from . import memory
from .current import CUDARuntimeError, current
from .memory import Memory, MemoryPointer, UnownedMemory, alloc_pinned_memory, malloc_managed

__all__ = [
    "Memory",
    "MemoryPointer",
    "MemoryPool",
    "UnownedMemory",
    "alloc_pinned_memory",
    "malloc_managed",
    "using_allocator",
]

#: The stream has come to something that never happens.
state = SimpleNamespace(stuck=False)
_PATIENCE = 10.0


def until(happened):
    """Wait; where it does not happen, the stream stands still from here on."""
    limit = time.monotonic() + float(os.environ.get("FAKE_PATIENCE", _PATIENCE))
    while not state.stuck and not happened():
        if time.monotonic() > limit:
            state.stuck = True
        time.sleep(1e-4)


class Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        current.device = self.number
        return self


class Event:
    def __init__(self, disable_timing=False):
        self._done, self.at, self.captured = True, None, False
        self._behind = {}  # collective calls before it: of its stream, and of those that this one has waited for

    @property
    def done(self):
        if self.captured:
            raise CUDARuntimeError("cudaErrorCapturedEvent")
        for stream, calls in self._behind.items() if self._done else ():
            stream.collectives_over = max(stream.collectives_over, calls)
        return self._done

    def record(self, stream):
        assert isinstance(stream, Stream) and stream.device in (None, current.device)
        self._done, self.captured = not state.stuck, device.capturing()
        device.submit(lambda: self._note(stream))
        self.at = time.perf_counter()

    def _note(self, stream):
        self._behind = stream.behind | {stream: stream.collectives}

    def reach(self, stream):
        """Let ``stream`` wait for it."""
        stream.behind |= self._behind


class Stream:
    def __init__(self, non_blocking=False, priority=0):
        self.non_blocking, self.priority = non_blocking, priority
        self.ptr, self.device, self.behind = id(self), current.device, {}
        self.collectives = self.collectives_over = 0  # of NVSHMEM: submitted; those whose end the host has waited for

    def __enter__(self):
        current.streams.append(self)
        return self

    def __exit__(self, *_):
        assert current.streams.pop() is self

    def wait_event(self, event):
        assert event.at, "the event was never recorded"
        if device.capturing() != event.captured:
            raise CUDARuntimeError("cudaErrorStreamCaptureIsolation")
        device.submit(lambda: event.reach(self))

    def begin_capture(self):
        if self is _default:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        device.begin_capture()

    def end_capture(self):
        return Graph(device.end_capture())

    def synchronize(self):
        if device.capturing():
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
        while state.stuck:
            time.sleep(0.01)


class Graph:
    """What was captured, done anew at each launch, on the memory that it was captured with."""

    def __init__(self, actions):
        self._actions = actions

    def launch(self):
        assert not device.capturing()
        launches.append(len(self._actions))
        for action in self._actions:
            action()


#: Work of each graph that was launched.
launches = []
_default = Stream()
_default.device = None  # that of whoever asks


def get_current_stream():
    return current.streams[-1] if current.streams else _default


#: Names of the NVTX ranges: of all so far, and of those that are open.
ranges = SimpleNamespace(pushed=[], open=[])


def _push_range(name):
    ranges.pushed.append(name)
    ranges.open.append(name)


nvtx = SimpleNamespace(RangePush=_push_range, RangePop=ranges.open.pop)


def get_elapsed_time(first, last):
    return (last.at - first.at) * 1e3


def _count():
    count = int(os.environ.get("FAKE_GPUS", "4"))
    if not count:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return count


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    driverGetVersion=lambda: int(os.environ.get("FAKE_DRIVER", "13000")),
    runtimeGetVersion=lambda: 13000,
    getDevice=lambda: current.device,
    getDeviceCount=_count,
    getDeviceProperties=lambda number: {"name": b"Fake H200", "totalGlobalMem": 2**37, "major": 9, "minor": 0},
    deviceEnablePeerAccess=memory.enable_peer,
    hostRegister=memory.register,
    hostUnregister=memory.registered.pop,
    pointerGetAttributes=memory.attributes,
    deviceCanAccessPeer=lambda device, other: int(os.environ.get("FAKE_P2P", "1")),
    deviceGetPCIBusId=lambda number: f"0000:0{number}:00.0",
    memcpyAsync=memory.copy,
    memcpyHostToDevice=1,
    memcpyDeviceToHost=2,
    memGetInfo=lambda: (int(os.environ.get("FAKE_FREE", str(2**36))), 2**37),
)
