"""Files of ``scipy.sparse.save_npz`` in any of its formats, read block by block.

The arcs are the entries of SciPy's ``tocoo()``: explicit zeros are arcs, except the padding in ``dia`` files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import check_ids, check_weights
from mgg.graph.io.npz import Npz
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream

#: Names of members in all formats of ``save_npz``.
MEMBERS = frozenset(("format", "shape", "data", "row", "col", "coords", "indices", "indptr", "offsets", "_is_array"))
#: Rows, columns and values of some entries.
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
#: Reads the entries of an open archive, in blocks.
Reader = Callable[[Npz], Iterator[Entries]]


def has_matrix(file: Npz) -> bool:
    """Return whether a file is one of ``save_npz``; COO files of other programs may lack the member ``format``."""
    return "format" in file.keys or {"row", "col"} <= file.keys


def matrix_arcs(path: Path) -> ArcStream:
    """Return the entries of a file as arcs: entry (i, j) is row i, column j of the adjacency matrix.

    The row pointers of ``csr``, ``csc`` and ``bsr`` and the block columns of ``bsr`` are in memory. Values are read
    once in advance: if all of them are 1, arcs have no weights.

    Raises:
        InputError: names the file and member that is missing, truncated or does not fit the others; the matrix is not
            square, or no matrix (arrays of one dimension, ``lil`` and others). The stream's errors name the arc.
    """
    with Npz(path) as file:
        form = file.text("format") if "format" in file.keys else "coo"
        if form not in _FORMATS:
            raise InputError(f"{path}: format {form[:20]!r}: expected {', '.join(_FORMATS)}: convert it by asformat")
        nodes = _nodes(file, form)
        reader = _FORMATS[form](file, nodes)
        values = (block for _, _, block in reader(file)) if form == "dia" else file.flat("data", CHUNK_ARCS)
        weighted = any((block != 1).any() for block in values)
    return ArcStream(partial(_read, path, nodes, weighted, reader), nodes, weighted)


def _nodes(file: Npz, form: str) -> int:
    shape = file.array("shape")
    if shape.ndim != 1 or shape.dtype.kind not in "iu" or not len(shape):
        raise InputError(f"{file.path}: shape.npy holds {shape.dtype} of shape {shape.shape}; expected two numbers")
    if len(shape) != 2:
        raise InputError(f"{file.path}: a {form} array of {len(shape)} dimensions is no graph; expected a matrix")
    if shape[0] != shape[1] or not shape[0] > 0:
        raise InputError(f"{file.path}: the adjacency matrix has shape {shape.tolist()}; expected a square one")
    return int(shape[0])


def _read(path: Path, nodes: int, weighted: bool, reader: Reader) -> Iterator[Arcs]:
    first = 0
    with Npz(path) as file:
        for rows, columns, values in reader(file):
            for ids in (rows, columns):
                check_ids(ids, nodes, path, first)
            yield Arcs(rows, columns, finite_weights(values, first, path) if weighted else None)
            first += len(rows)


def finite_weights(values: np.ndarray, first: int, path: Path) -> np.ndarray:
    """Return ``values`` as weights; raises InputError that names the arc if float32 cannot hold one."""
    return check_weights(values, lambda arc, problem: InputError(f"{path}: weight of arc {first + arc} {problem}"))


def _coo(file: Npz, nodes: int) -> Reader:
    headers = {key: file.header(key) for key in ("row", "col", "data")}
    lengths = [header.shape for header in headers.values()]
    whole = all(headers[key].dtype.kind in "iu" for key in ("row", "col"))
    if not whole or len(lengths[0]) != 1 or len(set(lengths)) != 1:
        found = ", ".join(f"{key} {header.shape} {header.dtype}" for key, header in headers.items())
        raise InputError(f"{file.path}: expected row and col integers and as many values; found {found}")

    def read(file: Npz) -> Iterator[Entries]:
        blocks = (file.blocks(key, CHUNK_ARCS) for key in ("row", "col", "data"))
        yield from zip(*blocks, strict=True)

    return read


def _compressed(file: Npz, nodes: int, *, by_column: bool) -> Reader:
    pointers = _pointers(file, nodes)
    if file.header("data").shape != file.header("indices").shape:
        raise _unlike(file, "data", f"as many values as indices, {file.header('indices').shape}")

    def read(file: Npz) -> Iterator[Entries]:
        first = 0
        for indices, values in zip(file.blocks("indices", CHUNK_ARCS), file.blocks("data", CHUNK_ARCS), strict=True):
            last = min(first + len(indices), int(pointers[-1]))
            major = np.searchsorted(pointers, np.arange(first, last), side="right") - 1
            minor, kept = indices[: last - first], values[: last - first]
            yield (minor, major, kept) if by_column else (major, minor, kept)
            first = last

    return read


def _blocks(file: Npz, nodes: int) -> Reader:
    data = file.header("data")
    if len(data.shape) != 3 or not all(side and nodes % side == 0 for side in data.shape[1:]):
        raise _unlike(file, "data", f"blocks that divide {nodes} rows and columns")
    count, height, width = data.shape
    pointers, columns = _pointers(file, nodes // height), file.array("indices")
    if len(columns) != count:
        raise _unlike(file, "indices", f"those of {count} blocks")
    rows = np.searchsorted(pointers, np.arange(pointers[-1]), side="right") - 1

    def read(file: Npz) -> Iterator[Entries]:
        for places, values in _placed(file):
            kept = places[0] < len(rows)
            block, row, column = (place[kept] for place in places)
            yield rows[block] * height + row, columns[block].astype(np.int64) * width + column, values[kept]

    return read


def _diagonals(file: Npz, nodes: int) -> Reader:
    offsets, data = file.array("offsets"), file.header("data")
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(data.shape) != 2 or data.shape[0] != len(offsets):
        raise _unlike(file, "data", f"a row for each of the offsets, {offsets.dtype} of shape {offsets.shape}")

    def read(file: Npz) -> Iterator[Entries]:
        for (diagonal, columns), values in _placed(file):
            rows = columns - offsets[diagonal]
            kept = (rows >= 0) & (rows < nodes) & (columns < nodes) & (values != 0)
            yield rows[kept], columns[kept], values[kept]

    return read


_FORMATS: dict[str, Callable[[Npz, int], Reader]] = {
    "coo": _coo,
    "csr": partial(_compressed, by_column=False),
    "csc": partial(_compressed, by_column=True),
    "bsr": _blocks,
    "dia": _diagonals,
}


def _placed(file: Npz) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray]]:
    """Yield the values of the member ``data`` in their stored order, and the place of each in the array."""
    header, first = file.header("data"), 0
    for values in file.flat("data", CHUNK_ARCS):
        at = np.arange(first, first + len(values))
        yield np.unravel_index(at, header.shape, "F" if header.fortran else "C"), values
        first += len(values)


def _pointers(file: Npz, rows: int) -> np.ndarray:
    """Return the begin of each compressed row, integers [rows + 1]; entries after the last row are ignored."""
    indices, pointers = file.header("indices"), file.array("indptr")
    if len(indices.shape) != 1 or indices.dtype.kind not in "iu":
        raise _unlike(file, "indices", "a vector of integers")
    if pointers.shape != (rows + 1,) or pointers.dtype.kind not in "iu":
        raise _unlike(file, "indptr", f"{rows + 1} integers")
    if pointers[0] != 0 or (pointers[1:] < pointers[:-1]).any() or pointers[-1] > indices.shape[0]:
        raise InputError(f"{file.path}: indptr.npy does not ascend from 0 to at most {indices.shape[0]}")
    return pointers


def _unlike(file: Npz, key: str, expected: str) -> InputError:
    header = file.header(key)
    return InputError(f"{file.path}: {key}.npy is {header.dtype} of shape {header.shape}; expected {expected}")
