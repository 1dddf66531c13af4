"""cuSPARSE's products of a CSR matrix through its own API, every algorithm of it: what torch.sparse.mm leaves out.

torch.sparse.mm takes the default algorithm. Which one is fastest depends on graph and width, so ``Products.fastest``
tries all of them, each after its own preprocessing, and keeps the best.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

#: ``cusparseSpMMAlg_t`` of CSR matrices.
ALGORITHMS = {"default": 0, "ALG1": 4, "ALG2": 6, "ALG3": 12}
_INT32, _FLOAT32, _ROW_MAJOR, _AS_IT_IS, _FROM_ZERO = 2, 0, 2, 0, 0
#: ``cudaDataType`` of what arrays hold: float32, and bfloat16 as its 16 bits.
_TYPES = {"float32": _FLOAT32, "uint16": 14}
BF16_ONE = 0x3F80


def _library() -> ctypes.CDLL:
    import torch  # noqa: F401  brings libcusparse along, and has it loaded

    return ctypes.CDLL("libcusparse.so.12")


class Products:
    """Products of one matrix; sums are float32. Raises RuntimeError with cuSPARSE's status.

    Args:
        indptr, indices, weights: int32 [rows + 1], int32 [arcs], float32 or bfloat16 (uint16) [arcs] on the device.
            B is of the weights' type.
        columns: of the matrix.
        result: type of C, the weights' without it.
    """

    def __init__(
        self, indptr: cp.ndarray, indices: cp.ndarray, weights: cp.ndarray, columns: int, result: str | None = None
    ) -> None:
        self._library, self._rows, self._columns = _library(), len(indptr) - 1, columns
        self.types = weights.dtype.name, result or weights.dtype.name
        #: Seconds of the last preprocessing, and bytes of its buffer.
        self.prepared: tuple[float, int] = 0.0, 0
        self._kept = (indptr, indices, weights)
        self._handle = self._made("cusparseCreate")
        self._matrix = self._made(
            "cusparseCreateCsr", _long(self._rows), _long(columns), _long(len(indices)), _address(indptr),
            _address(indices), _address(weights), _INT32, _INT32, _FROM_ZERO, _TYPES[self.types[0]],
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: cuSPARSE's status {status}")

    def _made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made), *arguments)
        return made

    def _dense(self, array: cp.ndarray) -> ctypes.c_void_p:
        rows, dim = array.shape
        return self._made(
            "cusparseCreateDnMat", _long(rows), _long(dim), _long(dim), _address(array), _TYPES[array.dtype.name],
            _ROW_MAJOR,
        )  # fmt: skip

    def operands(self, dim: int) -> tuple[cp.ndarray, cp.ndarray]:
        """B and C of the right shapes and types; what they hold is not defined."""
        b_type, c_type = self.types
        return cp.empty((self._columns, dim), b_type), cp.empty((self._rows, dim), c_type)

    def launch(self, algorithm: str, dim: int) -> Callable[[int, int, int], None]:
        """``run(b, c, stream)`` computes c = A b by one algorithm, preprocessed, of row-major addresses."""
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        scratch = self.operands(dim)
        dense = [self._dense(each) for each in scratch]

        def arguments(b: ctypes.c_void_p, c: ctypes.c_void_p) -> tuple[Any, ...]:
            return (
                self._handle, _AS_IT_IS, _AS_IT_IS, ctypes.byref(one), self._matrix, b, ctypes.byref(zero), c,
                _FLOAT32, ALGORITHMS[algorithm],
            )  # fmt: skip

        started, size = time.perf_counter(), ctypes.c_size_t()
        self._call("cusparseSpMM_bufferSize", *arguments(*dense), ctypes.byref(size))
        buffer = cp.empty(max(1, size.value), cp.uint8)
        self._call("cusparseSpMM_preprocess", *arguments(*dense), _address(buffer))
        cp.cuda.get_current_stream().synchronize()
        self.prepared = time.perf_counter() - started, size.value

        def run(b: int, c: int, stream: int) -> None:
            self._call("cusparseSetStream", self._handle, ctypes.c_void_p(stream))
            for descriptor, address in zip(dense, (b, c), strict=True):
                self._call("cusparseDnMatSetValues", descriptor, ctypes.c_void_p(address))
            self._call("cusparseSpMM", *arguments(*dense), _address(buffer))

        return run

    def fastest(
        self, dim: int, milliseconds: Callable[[Callable[[], object]], float]
    ) -> tuple[dict[str, float], Callable[[int, int, int], None]]:
        """Milliseconds by algorithm, nan where it refuses, and the fastest one."""
        b, c = self.operands(dim)
        b.fill(1 if b.dtype == np.float32 else BF16_ONE)
        taken, runs = {}, {}
        for name in ALGORITHMS:
            try:
                run = runs[name] = self.launch(name, dim)
                stream = cp.cuda.get_current_stream().ptr
                taken[name] = milliseconds(lambda run=run, stream=stream: run(b.data.ptr, c.data.ptr, stream))
            except RuntimeError:
                taken[name] = float("nan")
        best = min((name for name in taken if not np.isnan(taken[name])), key=taken.__getitem__)
        return taken, runs[best]


def _long(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _address(array: cp.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data.ptr)
