"""NVSHMEM over MPI windows."""

import os
import sys
from types import SimpleNamespace

import numpy as np
from cupy.cuda import Stream, nccl, state, until

from support.devices import device

from . import interop, types
from .types import NvshmemError, host, job, meet

__all__ = ["NvshmemError", "interop"]

SignalOp = SimpleNamespace(SIGNAL_SET="set")
ComparisonType = SimpleNamespace(CMP_GE="at least")
under_way = []  # memory that has been put to, and where what it is to hold lies


def get_version():
    return SimpleNamespace(libnvshmem_version="3.4.5")


def init(device, mpi_comm, initializer_method):
    assert initializer_method == "emulated_mpi" and os.environ["NVSHMEM_DISABLE_NVLS"] == "1"
    one_host = host(mpi_comm.size - 1) == 0
    assert os.environ.get("NVSHMEM_REMOTE_TRANSPORT") == ("none" if one_host else None)
    print("MPI4Py enabled: True", file=sys.stderr)
    mpi_comm.Barrier()
    job.comm = mpi_comm


def finalize():
    meet()
    assert not interop.live, "symmetric memory is left"
    assert not nccl.live, "communicators are left"
    job.comm = None


def barrier_all(stream):
    assert isinstance(stream, Stream)
    device.submit(lambda: _meet(stream))


def _meet(stream):
    stream.collectives += 1
    types.streams.add(stream)
    if not state.stuck:
        _deliver()
        request = job.comm.Ibarrier()
        until(request.Test)


def put(dst, src, remote_pe, stream):
    """What leaves is read before anything that follows; it arrives as with ``put_nbi``: NVSHMEM promises no more."""
    _leave(dst, src, remote_pe, stream, np.copy)


def put_nbi(dst, src, remote_pe, stream):
    """Nothing leaves or arrives before ``quiet``, ``barrier_all``: NVSHMEM promises no more."""
    _leave(dst, src, remote_pe, stream, np.asarray)


def _leave(dst, src, remote_pe, stream, read):
    assert isinstance(stream, Stream) and dst.size == src.size
    (array, offset), (source, start) = interop.place_of(dst), interop.place_of(src)
    if not state.stuck:
        values = read(source.bytes_of(job.comm.rank)[start : start + src.size])
        under_way.append((array.bytes_of(remote_pe)[offset : offset + src.size], values))


def quiet(stream):
    assert isinstance(stream, Stream)
    _deliver()


def _deliver():
    for target, values in under_way if not state.stuck else ():
        target[:] = values
    under_way.clear()


def signal_op(buffer, value, operation, pe, stream):
    assert operation == SignalOp.SIGNAL_SET and isinstance(stream, Stream)
    if not state.stuck:
        np.asarray(buffer.window.Shared_query(pe)[0], np.uint8).view(np.uint64)[0] = value


def signal_wait(buffer, value, comparison, stream):
    assert comparison == ComparisonType.CMP_GE and isinstance(stream, Stream)

    def come():
        buffer.window.Sync()
        return np.asarray(buffer.window.Shared_query(job.comm.rank)[0], np.uint8).view(np.uint64)[0] >= value

    until(come)
