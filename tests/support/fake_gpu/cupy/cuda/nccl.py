"""NCCL over MPI: communicators, and float32 or bytes in memory that is given by its address."""

import ctypes
import os
import pickle
import platform
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from . import current, get_current_stream, state, until

available = os.environ.get("FAKE_NCCL", "1") != "0"
NCCL_FLOAT32, NCCL_INT8, NCCL_SUM = ctypes.c_float, ctypes.c_int8, "sum"
live = []  # communicators that are not destroyed
_KEY, _MEMBERS, _DATA = 101, 102, 103
_state = SimpleNamespace(group=None, made=0)  # requests of the group that is open; keys that this rank has made


class NcclError(RuntimeError):
    pass


def get_version():
    return 22907


def get_unique_id():
    """128 bytes that lead to this rank."""
    _state.made += 1
    return pickle.dumps((MPI.COMM_WORLD.rank, _state.made)).ljust(128, b"\0")


def _members(size, key, place):
    """World ranks in the order of their places: each rank tells the one that made the key."""
    world, (root, number) = MPI.COMM_WORLD, pickle.loads(key)
    if world.rank != root:
        world.send((number, place, world.rank), root, _KEY)
        return world.recv(source=root, tag=_MEMBERS)
    joined = [(number, place, root)] + [world.recv(tag=_KEY) for _ in range(size - 1)]
    assert len({key for key, _, _ in joined}) == 1
    members = [rank for _, _, rank in sorted(joined)]
    for rank in set(members) - {root}:
        world.send(members, rank, _MEMBERS)
    return members


def _at(pointer, count, kind=NCCL_FLOAT32):
    return np.ctypeslib.as_array((kind * count).from_address(pointer)) if count else np.empty(0, kind)


def groupStart():  # noqa: N802
    assert _state.group is None
    _state.group = []


def groupEnd():  # noqa: N802
    requests, _state.group = _state.group, None
    until(lambda: MPI.Request.Testall(requests))


class NcclCommunicator:
    def __init__(self, size, key, place):
        assert os.environ["NCCL_NVLS_ENABLE"] == "0" and isinstance(key, bytes) and len(key) == 128 and size > 1
        members = _members(size, key, place)
        self._comm = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.group.Incl(members))
        assert (self._comm.size, self._comm.rank) == (size, place)
        places = self._comm.allgather((os.environ.get("NCCL_HOSTID", platform.node()), current.device))
        if len(set(places)) < size:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected")
        live.append(self)

    def _submit(self, begin, kind, stream):
        """Run one operation, unless the stream stands still."""
        assert kind in (NCCL_FLOAT32, NCCL_INT8) and stream == get_current_stream().ptr
        if not state.stuck:
            request = begin()
            until(request.Test) if _state.group is None else _state.group.append(request)

    def broadcast(self, source, target, count, kind, root, stream):
        assert source == target
        self._submit(lambda: self._comm.Ibcast(_at(target, count), root), kind, stream)
        self._submit(self._comm.Ibarrier, kind, stream)  # NCCL's ends nowhere before it has begun everywhere

    def send(self, source, count, kind, peer, stream):
        assert _state.group is not None
        self._submit(lambda: self._comm.Isend(_at(source, count, kind), peer, _DATA), kind, stream)

    def recv(self, target, count, kind, peer, stream):
        assert _state.group is not None
        self._submit(lambda: self._comm.Irecv(_at(target, count, kind), peer, _DATA), kind, stream)

    def allGather(self, source, target, count, kind, stream):  # noqa: N802
        to = _at(target, count * self._comm.size, kind)
        self._submit(lambda: self._comm.Iallgather(_at(source, count, kind), to), kind, stream)

    def reduceScatter(self, source, target, count, kind, operation, stream):  # noqa: N802
        assert operation == NCCL_SUM
        values, parts = _at(source, count * self._comm.size), np.empty(count * self._comm.size, np.float32)
        self._submit(lambda: self._comm.Ialltoall(values, parts), kind, stream)
        # As the CPU backends do, so that results compare by the bit.
        _at(target, count)[:] = parts.reshape(self._comm.size, count).sum(axis=0, dtype=np.float64)

    def check_async_error(self):
        if os.environ.get("FAKE_NCCL_ERROR"):
            raise NcclError("NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error")

    def destroy(self):
        live.remove(self)
        self._comm.Free()
