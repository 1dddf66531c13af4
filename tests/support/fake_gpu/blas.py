"""cuBLAS on the host: matrices by columns, from addresses and strides alone, as its library's functions take them."""

import ctypes

import numpy as np

from support.devices.device import submit

DONE = 0


def _value(scalar):
    """What an argument made by ``ctypes.byref`` points to, now."""
    return scalar._obj.value


class Library:
    """The functions that are called; the others are none."""

    @property
    def live(self):
        """Handles that are not destroyed."""
        return len(self._workspaces)

    def __init__(self):
        self._workspaces, self._made = {}, 0  # by handle; how many there have been

    def cublasCreate_v2(self, handle):  # noqa: N802 - cuBLAS's names
        self._made += 1
        handle._obj.value = self._made
        self._workspaces[handle._obj.value] = None
        return DONE

    def cublasDestroy_v2(self, handle):  # noqa: N802
        del self._workspaces[handle.value]
        return DONE

    def cublasSetStream_v2(self, handle, stream):  # noqa: N802
        self._workspaces[handle.value] = None
        return DONE

    def cublasSetWorkspace_v2(self, handle, address, size):  # noqa: N802
        assert address and size and handle.value in self._workspaces
        self._workspaces[handle.value] = address
        return DONE

    def cublasSgemm_v2(  # noqa: N802
        self, handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
    ):  # fmt: skip
        return self.cublasSgemmStridedBatched(
            handle, transa, transb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1
        )

    def cublasSgemmStridedBatched(  # noqa: N802
        self, handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,
        batches,
    ):  # fmt: skip
        assert self._workspaces[handle.value]  # a graph needs one of the caller's
        factors = _value(alpha), _value(beta)
        submit(
            lambda: _multiply(
                factors, transa, transb, m, n, k, a, lda, stride_a, b, ldb, stride_b, c, ldc, stride_c, batches
            )
        )
        return DONE


def _multiply(factors, transa, transb, m, n, k, a, lda, stride_a, b, ldb, stride_b, c, ldc, stride_c, batches):
    factor, kept = factors
    for batch in range(batches):
        left = _matrix(a, batch * stride_a, k if transa else m, m if transa else k, lda)
        right = _matrix(b, batch * stride_b, n if transb else k, k if transb else n, ldb)
        out = _matrix(c, batch * stride_c, m, n, ldc)
        product = (left.T if transa else left) @ (right.T if transb else right)
        out[...] = factor * product if kept == 0 else factor * product + kept * out


def _matrix(address, offset, rows, columns, stride):
    """A view [rows, columns] of memory by columns."""
    assert stride >= rows
    entries = stride * (columns - 1) + rows
    memory = np.frombuffer((ctypes.c_float * entries).from_address(address + 4 * offset), np.float32)
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (4, 4 * stride))
