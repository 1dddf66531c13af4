"""Binary edge lists: one NumPy array of pairs, the fastest form of a large graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from mgg.errors import InputError
from mgg.graph.io.npz import HEADER_ERRORS
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader

#: Upper bound of ids.
MOST_IDS = 2**63


@loader("edges", ".npy")
def load(path: Path) -> StreamedGraph:
    """Read an ``.npy`` file of integers [arcs, 2] (source, target) or [2, arcs] (sources, then targets).

    The nodes are the ids that occur, renumbered in ascending order.

    Raises:
        InputError: the file is no such array, or its size differs from its header. The stream's errors name the byte of
            an id outside 0..2^63 - 1.
    """
    with _open(path) as file:
        shape, dtype, begin, columns = _header(path, file)
    kind = "row" if columns else "column"
    read = {"edges": {"source": f"{kind} 1", "target": f"{kind} 2"}}
    return StreamedGraph(ArcStream(lambda: _read(path, begin, shape, dtype, columns), nodes=None), columns=read)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _header(path: Path, file: BinaryIO) -> tuple[tuple[int, int], np.dtype, int, bool]:
    """Return the shape, dtype, position of the first number, and whether the pairs are columns."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (*HEADER_ERRORS, OSError) as error:
        raise InputError(f"{path}: not an .npy file: {' '.join(str(error).split())}") from None
    if len(shape) != 2 or 2 not in shape or dtype.kind not in "iu" or dtype.itemsize not in (4, 8):
        raise InputError(
            f"{path}: expected 32 or 64-bit integers of shape [arcs, 2] or [2, arcs], found {dtype} {shape}"
        )
    columns = shape[1] != 2
    arcs, begin = shape[1] if columns else shape[0], file.tell()
    expected = begin + 2 * arcs * dtype.itemsize
    if path.stat().st_size != expected:
        raise InputError(f"{path}: has {path.stat().st_size} bytes, its header says {expected}: truncated or altered")
    # Column-major pairs have the same bytes as transposed row-major ones.
    return (arcs, 2), dtype, begin, columns != fortran


def _read(path: Path, begin: int, shape: tuple[int, int], dtype: np.dtype, columns: bool) -> Iterator[Arcs]:
    arcs = shape[0]
    with _open(path) as file:
        for lo in range(0, arcs, CHUNK_ARCS):
            count = min(CHUNK_ARCS, arcs - lo)
            if columns:
                ends = [_numbers(path, file, begin + (k * arcs + lo) * dtype.itemsize, count, dtype) for k in (0, 1)]
            else:
                pairs = _numbers(path, file, begin + 2 * lo * dtype.itemsize, 2 * count, dtype).reshape(-1, 2)
                ends = [np.ascontiguousarray(pairs[:, k]) for k in (0, 1)]
            yield Arcs(targets=ends[1], sources=ends[0])


def _numbers(path: Path, file: BinaryIO, position: int, count: int, dtype: np.dtype) -> np.ndarray:
    file.seek(position)
    values = np.fromfile(file, dtype, count)
    if len(values) != count:
        raise InputError(f"{path}: truncated at byte {position + values.nbytes}")
    if values.min() < 0 or values.max() >= MOST_IDS:
        bad = int(np.flatnonzero((values < 0) | (values >= MOST_IDS))[0])
        place = position + bad * dtype.itemsize
        raise InputError(f"{path}: byte {place}: node id {values[bad]} is outside 0..{MOST_IDS - 1}")
    return values.astype(dtype.newbyteorder("="), copy=False)
