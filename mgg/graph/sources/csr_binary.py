"""CSR graphs in raw binary files: ``NAME_beg_pos.bin`` and ``NAME_csr.bin``, which MGG's artifact (OSDI'23) reads.

The CSR generator of H. Liu's graph_project_start writes them, and other programs that adopted it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import check_ids
from mgg.graph.io.columns import what_is_read
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader

_POINTERS, _COLUMNS, _WEIGHTS = SUFFIXES = ("_beg_pos.bin", "_csr.bin", "_weight.bin")


@loader("csr_binary", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read a graph's row pointers (int64 [nodes + 1]) and columns; ``path`` is one of its files or their folder.

    Columns are int32 or int64, depending on their file's size. The columns of row i are its neighbours: entries of row
    i of the adjacency matrix. Weights are listed as ignored, as their file does not state their type.

    Raises:
        InputError: names the file that is missing, has a wrong size, does not begin at 0 or descends; the stream's
            errors name the arc that is out of range.
    """
    pointers_file = _find(path)
    stem = pointers_file.name.removesuffix(_POINTERS)
    columns_file = pointers_file.with_name(stem + _COLUMNS)
    pointers, arcs = _mapped(pointers_file, 8), 0
    nodes = len(pointers) - 1
    if nodes < 1 or pointers[0] != 0 or (np.diff(pointers) < 0).any():
        raise InputError(f"{pointers_file}: not the row pointers of a graph: int64, ascending from 0")
    arcs = int(pointers[-1])
    size = columns_file.stat().st_size if columns_file.is_file() else -1
    width = next((each for each in (4, 8) if size == each * arcs), None)
    if width is None:
        found = f"has {size} bytes" if size >= 0 else "is missing"
        raise InputError(f"{columns_file}: {found}; {arcs} columns of 4 or 8 bytes each are expected")
    weights = [f"{stem}{_WEIGHTS}, which does not say of which type weights are"]
    read_columns = what_is_read(edges={"ignored": weights if pointers_file.with_name(stem + _WEIGHTS).exists() else []})

    def read() -> Iterator[Arcs]:
        columns = _mapped(columns_file, width) if arcs else np.empty(0, np.int32)
        for first in range(0, arcs, CHUNK_ARCS):
            chunk = np.array(columns[first : first + CHUNK_ARCS], np.int64)
            check_ids(chunk, nodes, columns_file, first)
            rows = np.searchsorted(pointers, np.arange(first, first + len(chunk)), side="right") - 1
            yield Arcs(rows, chunk)

    return StreamedGraph(ArcStream(read, nodes), columns=read_columns)


def _find(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob(f"*{_POINTERS}"))
        if len(found) != 1:
            raise InputError(f"{path}: {len(found)} files end in {_POINTERS}; name the one to read")
        return found[0]
    ending = next((each for each in SUFFIXES if path.name.lower().endswith(each)), "")
    return path.with_name(path.name[: len(path.name) - len(ending)] + _POINTERS)


def _mapped(file: Path, width: int) -> np.ndarray:
    try:
        return np.memmap(file, f"<i{width}", "r")
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as numbers of {width} bytes: {error}") from None
