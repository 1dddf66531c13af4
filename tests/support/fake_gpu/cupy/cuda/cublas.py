"""One call of cuBLAS, on the host: matrices by columns, from addresses and strides alone."""

import ctypes

import numpy as np

from support.device import submit

HANDLE = 11
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1


def sgemmStridedBatched(  # noqa: N802 - cuBLAS's name
    handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, batches
):
    assert handle == HANDLE
    factor, kept = (ctypes.c_float.from_address(address).value for address in (alpha, beta))  # those of now
    submit(
        lambda: _multiply(
            (factor, kept), transa, transb, m, n, k, a, lda, stride_a, b, ldb, stride_b, c, ldc, stride_c, batches
        )
    )


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
