"""Symmetric arrays in MPI's shared windows."""

import math
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from support.devices.strict import StrictArray

from . import types

found = {}  # address -> symmetric array
live = []  # symmetric arrays in the order in which they were made


class Symmetric(StrictArray):
    """An array with an address and a window."""

    def __init__(self, data, window):
        super().__init__(data)
        self.window = window

    def bytes_of(self, pe):
        """The memory of a PE's copy."""
        return np.asarray(self.window.Shared_query(pe)[0], np.uint8)


def array(shape, dtype, except_on_del):
    assert not except_on_del
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > types.heap():
        raise types.NvshmemError(f"Failed to allocate memory of bytes {size}")
    types.meet()
    window = MPI.Win.Allocate_shared(size, 1, comm=types.job.comm)
    window.Lock_all()
    data = np.asarray(window.Shared_query(types.job.comm.rank)[0], np.uint8).view(dtype).reshape(shape)
    made = Symmetric(data, window)
    made.fill(np.dtype(dtype).type(7))  # memory of NVSHMEM is not cleared
    found[made.data.ptr] = made
    live.append(made)
    return made


def get_peer_array(mine, pe):
    assert pe != types.job.comm.rank, "nvshmem4py counts this PE's own array as referenced once more and never frees it"
    if types.host(pe) != types.host(types.job.comm.rank):
        raise types.NvshmemError("nvshmem_ptr returned no address")
    found[mine.data.ptr].window.Sync()
    other = np.asarray(mine.window.Shared_query(pe)[0], np.uint8).view(mine.dtype).reshape(mine.shape)
    return StrictArray(other)


def place_of(buffer):
    """The symmetric array that a buffer lies in, and the offset there, in bytes."""
    for array in live:
        offset = buffer.handle - array.data.ptr
        if 0 <= offset < array.nbytes:
            assert offset + buffer.size <= array.nbytes
            return array, offset
    raise AssertionError("memory that NVSHMEM cannot send from or to on every network")


def array_get_buffer(mine):
    return found[mine.data.ptr], mine.nbytes, str(mine.dtype)


def free_array(mine):
    assert live.pop(live.index(found.pop(mine.data.ptr))) is mine
    types.meet()
    mine.window.Unlock_all()
    mine.window.Free()


cupy = SimpleNamespace(
    array=array, get_peer_array=get_peer_array, array_get_buffer=array_get_buffer, free_array=free_array
)
