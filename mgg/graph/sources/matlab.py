"""Sparse matrices in MATLAB files up to version 7, for example those of SuiteSparse and Facebook100."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its subpackages load at first use

from mgg.errors import InputError
from mgg.graph.check import check_weights
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.endings import find_file
from mgg.graph.sources import AS_MATRIX, CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader

SUFFIXES = (".mat",)
#: First bytes of files of version 7.3, which are HDF5.
_HDF5 = b"MATLAB 7.3"


@loader("matlab", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read the square sparse matrix of a file as a graph: entry (i, j) is row i, column j of the adjacency matrix.

    The matrix is ``Problem.A`` (SuiteSparse), else the only square sparse matrix. The result records its name, and
    lists the other variables as ignored. The whole matrix is read into memory.

    Raises:
        InputError: the file is no MATLAB file, has version 7.3, or has no such matrix or several.
    """
    file = find_file(path, SUFFIXES)
    found = _variables(file)
    sparse = {name: value for name, value in found.items() if scipy.sparse.issparse(value) and len(value.shape) == 2}
    matrices = {name: value for name, value in sparse.items() if value.shape[0] == value.shape[1] > 0}
    if len(matrices) != 1:
        what = ", ".join(matrices) or "none"
        raise InputError(
            f"{file}: square sparse matrices: {what}; one is expected: save the one to read by scipy.sparse.save_npz"
        )
    name, matrix = next(iter(matrices.items()))
    coo = matrix.tocoo()
    if coo.dtype.kind not in "biuf":
        raise InputError(f"{file}: {name} holds {coo.dtype}; expected real numbers")
    weighted = bool((coo.data != 1).any())

    def read() -> Iterator[Arcs]:
        for at in range(0, coo.nnz, CHUNK_ARCS):
            span = slice(at, at + CHUNK_ARCS)
            values = check_weights(coo.data[span], partial(_wrong, file, at))
            yield Arcs(coo.row[span].astype(np.int64), coo.col[span].astype(np.int64), values if weighted else None)

    columns = what_is_read(edges={"matrix": name, "ignored": sorted(found.keys() - {name})})
    return StreamedGraph(ArcStream(read, matrix.shape[0], weighted, **AS_MATRIX), columns=columns)


def _wrong(file: Path, first: int, arc: int, problem: str) -> InputError:
    return InputError(f"{file}: weight of arc {first + arc} {problem}")


def _variables(file: Path) -> dict[str, Any]:
    """Return the variables by name; fields of SuiteSparse's struct ``Problem`` are called ``Problem.FIELD``."""
    try:
        with file.open("rb") as opened:
            if opened.read(len(_HDF5)) == _HDF5:
                raise InputError(f"{file}: is of MATLAB 7.3: save it there by save(..., '-v7')")
        found = scipy.io.loadmat(str(file), squeeze_me=True, struct_as_record=True)
    except InputError:
        raise
    except Exception as error:  # SciPy raises exceptions of any kind for broken files
        raise InputError(f"{file}: not a whole MATLAB file: {' '.join(str(error).split())[:200]}") from None
    found = {name: value for name, value in found.items() if not name.startswith("__")}
    problem = found.pop("Problem", None)
    if problem is not None and getattr(problem, "dtype", None) is not None and problem.dtype.names:
        found |= {f"Problem.{field}": problem[field].item() for field in problem.dtype.names}
    elif problem is not None:
        found["Problem"] = problem
    return found
