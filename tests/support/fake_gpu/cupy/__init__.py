"""As much of CuPy as PEs with GPUs call, on strict arrays."""

import ctypes

import numpy as np

from support.devices.device import capturing
from support.devices.strict import StrictArray, empty, unwrap

from . import cuda
from .kernels import (
    ElementwiseKernel,
    arange,
    argmax,
    ascontiguousarray,
    concatenate,
    dot,
    full,
    searchsorted,
    unique,
)

__all__ = [
    "ElementwiseKernel",
    "arange",
    "argmax",
    "asarray",
    "ascontiguousarray",
    "asnumpy",
    "concatenate",
    "cuda",
    "dot",
    "empty",
    "full",
    "get_default_memory_pool",
    "ndarray",
    "searchsorted",
    "unique",
    "zeros",
]


def asarray(array):
    # A graph would read memory of the host that is something else by then, and CuPy would not say so.
    assert isinstance(array, StrictArray) or not capturing(), "an upload is captured"
    return array if isinstance(array, StrictArray) else StrictArray(array.copy())


def asnumpy(array):
    if capturing():
        raise cuda.runtime.CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
    return unwrap(array).copy()


def zeros(shape, dtype):
    made = empty(shape, dtype)
    made.fill(0)
    return made


def ndarray(shape, dtype, memptr, strides=None):
    """An array at an address of this process."""
    kept = type("Memory", (ctypes.c_char * memptr.mem.size,), {"memory": memptr})  # for as long as any view lives
    data = np.frombuffer(kept.from_address(memptr.mem.ptr), np.uint8) if memptr.mem.size else None
    return StrictArray(np.ndarray(shape, dtype, data, memptr.ptr - memptr.mem.ptr, strides))


class _Pool:
    def free_all_blocks(self):
        pass

    def free_bytes(self):
        return 0

    def total_bytes(self):
        return 2**20


def get_default_memory_pool():
    return _Pool()
