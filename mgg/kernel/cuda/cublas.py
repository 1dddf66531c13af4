"""Products of row-major float32 matrices by cuBLAS, on CuPy's current stream.

CuPy's cuBLAS calls refuse a stream that is being captured into a CUDA graph. cuBLAS itself allows it with a permanent
workspace (its manual, section 2.1.9, "CUDA graphs support"), so this module calls it directly.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import cupy
import numpy as np
from cuda import pathfinder

#: Bytes of cuBLAS's workspace: its manual recommends this size from Hopper on.
WORKSPACE = 32 << 20
_ONE, _ZERO = (ctypes.byref(ctypes.c_float(value)) for value in (1.0, 0.0))
_mine = threading.local()


@cache
def _library() -> Any:
    """Load the shared library and declare the types of the arguments that are not C ints."""
    library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    address, wide = ctypes.c_void_p, ctypes.c_longlong
    number, scalar = ctypes.c_int, ctypes.c_void_p
    library.cublasDestroy_v2.argtypes = [address]
    library.cublasSetStream_v2.argtypes = [address, address]
    library.cublasSetWorkspace_v2.argtypes = [address, address, ctypes.c_size_t]
    library.cublasSgemm_v2.argtypes = [
        address, *[number] * 5, scalar, address, number, address, number, scalar, address, number
    ]  # fmt: skip
    library.cublasSgemmStridedBatched.argtypes = [
        address, *[number] * 5, scalar, address, number, wide, address, number, wide, scalar, address, number, wide,
        number,
    ]  # fmt: skip
    return library


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS ended with status {status}")


class _Handle:
    """A cuBLAS handle for one thread on one GPU."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        _check(_library().cublasCreate_v2(ctypes.byref(self._handle)))
        self._workspace = cupy.cuda.Memory(WORKSPACE)
        self._stream: int | None = None

    def on_current_stream(self) -> ctypes.c_void_p:
        """Return the handle, for calls on CuPy's current stream."""
        stream = cupy.cuda.get_current_stream().ptr
        if stream != self._stream:
            _check(_library().cublasSetStream_v2(self._handle, stream))
            # Changing the stream resets cuBLAS to its own workspace.
            _check(_library().cublasSetWorkspace_v2(self._handle, self._workspace.ptr, WORKSPACE))
            self._stream = stream
        return self._handle

    def destroy(self) -> None:
        """Free cuBLAS's resources; waits for the GPU."""
        _check(_library().cublasDestroy_v2(self._handle))


def release() -> None:
    """Destroy this thread's handles; the next product creates new ones. Graphs that use the handles must be gone."""
    handles = _mine.__dict__.pop("handles", {})
    current = cupy.cuda.runtime.getDevice()
    for device, handle in handles.items():
        cupy.cuda.Device(device).use()
        handle.destroy()
    if handles:
        cupy.cuda.Device(current).use()


def _handle() -> ctypes.c_void_p:
    handles = _mine.__dict__.setdefault("handles", {})
    device = cupy.cuda.runtime.getDevice()
    if device not in handles:
        handles[device] = _Handle()
    return handles[device].on_current_stream()


def product(x: cupy.ndarray, y: cupy.ndarray, out: cupy.ndarray | None = None) -> cupy.ndarray:
    """Compute X Y, float32 [m, n], for float32 X [m, k] and Y [k, n], each contiguous or transposed.

    Rows of ``out`` may be padded.
    """
    rows, inner, columns = x.shape[0], x.shape[1], y.shape[1]
    if out is None:
        out = cupy.empty((rows, columns), np.float32)
    if not inner:
        out.fill(0)
    elif out.size:
        # cuBLAS is column-major, so it sees Y^T, X^T and (X Y)^T.
        (y_turned, y_stride), (x_turned, x_stride) = _read(y), _read(x)
        _check(
            _library().cublasSgemm_v2(
                _handle(), y_turned, x_turned, columns, rows, inner, _ONE, y.data.ptr, y_stride, x.data.ptr, x_stride,
                _ZERO, out.data.ptr, out.strides[0] // out.itemsize if rows > 1 else columns,
            )
        )  # fmt: skip
    return out


def _read(matrix: cupy.ndarray) -> tuple[int, int]:
    """Return whether cuBLAS must transpose its column-major view of a matrix (0 or 1), and its column stride."""
    if matrix.flags.c_contiguous:
        return 0, matrix.shape[1]
    if matrix.flags.f_contiguous:
        return 1, matrix.shape[0]
    raise ValueError(f"a matrix with strides {matrix.strides}")


def transposed_products(x: cupy.ndarray, y: cupy.ndarray, pieces: int, out: cupy.ndarray) -> None:
    """Compute X_p^T Y_p for ``pieces`` pieces with the same number of rows.

    Args:
        x, y: contiguous, float32 [pieces * rows, m] and [pieces * rows, n].
        pieces: number of pieces.
        out: the results, float32 [pieces, m, n].
    """
    rows, inputs, outputs = len(x) // pieces, x.shape[1], y.shape[1]
    if not out.size:
        return
    _check(
        _library().cublasSgemmStridedBatched(
            _handle(), 0, 1, outputs, inputs, rows, _ONE, y.data.ptr, outputs, rows * outputs, x.data.ptr, inputs,
            rows * inputs, _ZERO, out.data.ptr, outputs, inputs * outputs, pieces,
        )
    )  # fmt: skip
