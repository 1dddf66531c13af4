"""Kernel arguments that describe arrays on a GPU: addresses, strides, widths of loads and tiles of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy as cp
import numpy as np

from mgg.kernel.column_tiles import WARP, column_tiles, power

NULL = np.uintp(0)


def row_tiles(columns: int, vector: int, widest: int) -> Iterator[tuple[int, int, int]]:
    """Yield ``column_tiles`` for row-wise products. If 17 to 24 of a warp's lanes had work, 16 lanes per row come first
    and the other lanes follow, which takes 0.8 of the time (D = 80, docs/results/gpu.md).
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
    """Return the lanes per row for tiles of equal width, a power of two from ``least`` on, with the fewest idle lanes;
    short rows use no more lanes than they need.
    """
    most = min(WARP, power(vectors))
    choices = [most >> step for step in range(6) if most >> step >= min(least, most)]
    return min(choices, key=lambda lanes: -(-vectors // lanes) * lanes)


def kernel_name(kernel: str, lanes: int, vector: int, weights: cp.ndarray | None) -> str:
    """Return the name of a kernel with ``lanes`` lanes per row that load ``vector`` elements, for these weights."""
    return f"{kernel}_{lanes}_{vector}" + ("" if weights is None else "_weighted")


def vector_width(*matrices: cp.ndarray) -> int:
    """Return how many elements, up to 16 bytes, every row of the matrices can load at once: 8, 4, 2 or 1."""
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
    """Return the elements from row to row; for an empty matrix its columns, because CuPy gives it strides of 0.

    Raises:
        ValueError: the matrix is not float32 or bfloat16 (uint16), or its rows are not contiguous.
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
    """Return 32 or 64; raise ValueError if ``ids`` are neither int32 nor int64."""
    if ids.dtype not in (np.int32, np.int64):
        raise ValueError(f"ids must be int32 or int64, found {ids.dtype}")
    return ids.dtype.itemsize * 8


def pointer_to(array: cp.ndarray | None) -> Any:
    """Return the kernel argument that passes ``array``, or a null pointer."""
    return NULL if array is None else array
