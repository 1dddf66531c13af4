"""Converts between NumPy and Arrow arrays without copies and without pandas.

Arrow's own conversions import pandas if it is installed, which takes 50 MB and half a second.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def to_arrow(values: np.ndarray, known: np.ndarray | None = None) -> pa.Array:
    """Return a vector as an Arrow array over the same memory; null where ``known``, bool [values], is False."""
    values = np.ascontiguousarray(values)
    bits = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)])


def to_numpy(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers without nulls as a NumPy vector, over the same memory if it has a single chunk."""
    if isinstance(values, pa.ChunkedArray):
        chunks = values.chunks
        values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.nulls(0, values.type)
    dtype = np.dtype(values.type.to_pandas_dtype())
    if not len(values):
        return np.empty(0, dtype)
    data = values.buffers()[1]
    return np.frombuffer(data, dtype, count=len(values), offset=values.offset * dtype.itemsize)
