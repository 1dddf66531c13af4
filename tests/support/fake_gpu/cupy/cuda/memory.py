"""Memory of this process under the names that CuPy gives to device, unified and page-locked memory."""

import ctypes
import os
from types import SimpleNamespace

import numpy as np

from support.devices import device
from support.devices.device import submit

from .current import CUDARuntimeError, current

registered = {}  # page-locked memory: address -> bytes
_pinned = []
_peers = set()  # pairs of devices


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id):
        self.ptr, self.size, self.owner = ptr, size, owner
        assert device_id == current.device, "CuPy would see another device's memory"


class Memory:
    def __init__(self, size):
        if device.capturing() and size > int(os.environ.get("FAKE_LEFT", str(2**36))):
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory", 2)
        self.owner, self.size = np.empty(size, np.uint8), size
        self.ptr = self.owner.ctypes.data


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


def malloc_managed(size):
    held = np.full(size, 255, np.uint8)  # as floats, no numbers
    return MemoryPointer(SimpleNamespace(ptr=held.ctypes.data, size=size, owner=held), 0)


def register(ptr, size, flags):
    assert flags == 3 and ptr not in registered
    if size > int(os.environ.get("FAKE_LOCKABLE", str(2**36))):
        raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory", 2)
    registered[ptr] = size


def alloc_pinned_memory(size):
    held = np.full(size, 255, np.uint8)
    _pinned.append(held)
    return held


def copy(dst, src, size, kind, stream):
    """Between a device and page-locked memory."""
    host = src if kind == 1 else dst
    pieces = {**registered, **{held.ctypes.data: held.size for held in _pinned}}
    assert any(first <= host and host + size <= first + length for first, length in pieces.items())
    submit(lambda: ctypes.memmove(dst, src, size))


def attributes(ptr):
    assert ptr in registered
    return SimpleNamespace(devicePointer=ptr)


def enable_peer(other):
    pair = (current.device, other)
    assert other != current.device
    if pair in _peers:
        raise CUDARuntimeError("cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled", 704)
    _peers.add(pair)
