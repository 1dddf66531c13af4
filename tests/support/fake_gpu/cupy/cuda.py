"""Streams, events and devices that exist in name."""

import os
import time
from types import SimpleNamespace

#: The stream has come to something that never happens.
state = SimpleNamespace(stuck=False)


class Device:
    def __init__(self, number):
        self.number = number

    def use(self):
        return self


class Event:
    def __init__(self, disable_timing=False):
        self.done = True

    def record(self, stream):
        assert isinstance(stream, Stream)
        self.done = not state.stuck
        self.at = time.perf_counter()


class Stream:
    def __init__(self, non_blocking=False):
        self.non_blocking = non_blocking

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def synchronize(self):
        while state.stuck:
            time.sleep(0.01)


_STREAM = Stream()


def get_current_stream():
    return _STREAM


def get_elapsed_time(first, last):
    return (last.at - first.at) * 1e3


class CUDARuntimeError(RuntimeError):
    pass


def _count():
    count = int(os.environ.get("FAKE_GPUS", "4"))
    if not count:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return count


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    driverGetVersion=lambda: int(os.environ.get("FAKE_DRIVER", "13000")),
    runtimeGetVersion=lambda: 13000,
    getDeviceCount=_count,
    getDeviceProperties=lambda number: {"name": b"Fake H200", "totalGlobalMem": 2**37, "major": 9, "minor": 0},
    deviceCanAccessPeer=lambda device, other: int(os.environ.get("FAKE_P2P", "1")),
    deviceGetPCIBusId=lambda number: f"0000:0{number}:00.0",
    memGetInfo=lambda: (int(os.environ.get("FAKE_FREE", str(2**36))), 2**37),
)
