"""What kernels are told of the arrays of a GPU: addresses, strides, widths of loads and tiles of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy as cp
import numpy as np

from mgg.kernel.tiles import WARP, column_tiles, power

NULL = np.uintp(0)


def row_tiles(columns: int, vector: int, widest: int) -> Iterator[tuple[int, int, int]]:
    """``column_tiles`` of row-wise products: where 17 to 24 of a warp's lanes would have work, 16 lanes a row come
    first and the others then, in 0.8 of the time (D = 80, docs/results/gpu.md).
    """
    full, rest = divmod(-(-columns // vector), WARP)
    half = WARP // 2
    if widest < WARP or not half < rest <= half + WARP // 4:
        yield from column_tiles(columns, vector, widest)
        return
    if full:
        yield WARP, 0, full
    yield half, full * WARP * vector, 1
    yield power(rest - half), (full * WARP + half) * vector, 1


def even_lanes(vectors: int, least: int) -> int:
    """Lanes a row of so many ``vectors`` where all tiles are alike, a power of two from ``least`` on: as many as leave
    the fewest lanes without work; short rows take no more than they need.
    """
    most = min(WARP, power(vectors))
    choices = [most >> step for step in range(6) if most >> step >= min(least, most)]
    return min(choices, key=lambda lanes: -(-vectors // lanes) * lanes)


def kernel_name(kernel: str, lanes: int, vector: int, weights: cp.ndarray | None) -> str:
    """What a kernel of so many lanes a row is called, which load ``vector`` elements at once; with weights or none."""
    return f"{kernel}_{lanes}_{vector}" + ("" if weights is None else "_weighted")


def vector_width(*matrices: cp.ndarray) -> int:
    """Elements that can be loaded at once, 16 bytes at most, from every row of the matrices: 8, 4, 2 or 1."""
    widest = max(16 // matrix.itemsize for matrix in matrices)
    starts = [
        (number, matrix.itemsize)
        for matrix in matrices
        for number in (matrix.data.ptr, int(row_stride(matrix)) * matrix.itemsize)
    ]
    return next(
        vector for vector in (8, 4, 2, 1)
        if vector <= widest and all(number % (size * vector) == 0 for number, size in starts)
    )  # fmt: skip


def row_stride(matrix: cp.ndarray) -> np.int32:
    """Elements from row to row; of an empty matrix, its columns, because CuPy gives it strides of 0.

    Raises:
        ValueError: not a float32 or bfloat16 (uint16) matrix whose rows are contiguous.
    """
    known, item = matrix.dtype in (np.float32, np.uint16) and matrix.ndim == 2, matrix.itemsize
    if known and not matrix.size:
        return np.int32(matrix.shape[1])
    if not known or (matrix.shape[1] > 1 and matrix.strides[1] != item):
        raise ValueError(
            f"a row-major float32 or bfloat16 matrix is needed, found {matrix.dtype} with strides {matrix.strides}"
        )
    return np.int32(matrix.strides[0] // item)


def index_bits(ids: cp.ndarray) -> int:
    """32 or 64; raises ValueError where ``ids`` are neither int32 nor int64."""
    if ids.dtype not in (np.int32, np.int64):
        raise ValueError(f"ids must be int32 or int64, found {ids.dtype}")
    return ids.dtype.itemsize * 8


def pointer_to(array: cp.ndarray | None) -> Any:
    """The argument that passes ``array``, or a null pointer."""
    return NULL if array is None else array
