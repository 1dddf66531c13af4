"""Matrix Market coordinate files, the text format in which the SuiteSparse collection serves its graphs.

R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR 5935, 1996.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.sources import Arcs, ArcStream, StreamedGraph, loader
from mgg.graph.text import Column, Layout, Rows, counted, lines, read_rows

SUFFIXES = (".mtx", ".mtx.gz")
#: Most rows of a matrix.
MOST_NODES = 2**32

#: Some writers leave out one of the two percent signs.
_BANNERS = ("%%matrixmarket", "%matrixmarket")
#: Word of the banner -> what is supported; the order is that of the banner.
_SUPPORTED = {
    "object": ("matrix",),
    "format": ("coordinate",),
    "field": ("real", "integer", "pattern"),
    "symmetry": ("general", "symmetric"),
}


@dataclass(frozen=True)
class _Header:
    nodes: int
    entries: int
    line: int
    weighted: bool
    symmetric: bool


@loader("matrix_market", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read a square matrix as a graph: entry (i, j) is row i, column j of the adjacency matrix, an arc j -> i.

    ``path`` is a file, compressed or not, or a folder with one ``.mtx``, in itself or in a folder below; of several
    the one counts that is called like its folder (``NAME/NAME.mtx``, as SuiteSparse packs them). Values of ``real`` and
    ``integer`` matrices are weights; ``symmetric`` ones list the lower triangle and are undirected.

    Raises:
        InputError: the header is wrong or announces a matrix that is no such graph (complex, array, skew-symmetric,
            Hermitian, not square). The stream's errors name the line that is no entry, is outside the matrix or its
            lower triangle, or is one too many.
    """
    file = _find(path) if path.is_dir() else path
    header = _read_header(file)
    return StreamedGraph(
        ArcStream(partial(_read, file, header), header.nodes, weighted=header.weighted, undirected=header.symmetric)
    )


def _find(folder: Path) -> Path:
    found = [file for pattern in ("*", "*/*") for file in sorted(folder.glob(pattern)) if file.name.endswith(SUFFIXES)]
    named = [file for file in found if file.name.removesuffix(".gz") == f"{file.resolve().parent.name}.mtx"]
    chosen = named if len(named) == 1 else found
    if len(chosen) != 1:
        raise InputError(f"{folder}: {len(found)} files end in .mtx or .mtx.gz; name the one to read")
    return chosen[0]


def _read_header(file: Path) -> _Header:
    """The banner and the first line after it that is neither blank nor a comment."""
    text = lines(file)
    words = next(text, (1, ""))[1].lower().split()
    if not words or words[0] not in _BANNERS or len(words) != 1 + len(_SUPPORTED):
        raise InputError(f"{file}: line 1: not a Matrix Market banner (%%MatrixMarket matrix coordinate ...)")
    for word, (name, supported) in zip(words[1:], _SUPPORTED.items(), strict=True):
        if word not in supported:
            raise InputError(f"{file}: line 1: {name} {word!r} is no graph; supported: {', '.join(supported)}")
    for number, line in text:
        sizes = line.split()
        if sizes and not sizes[0].startswith("%"):
            return _sized(file, number, sizes, weighted=words[3] != "pattern", symmetric=words[4] == "symmetric")
    raise InputError(f"{file}: has no size line (rows columns entries)")


def _sized(file: Path, line: int, sizes: list[str], *, weighted: bool, symmetric: bool) -> _Header:
    if len(sizes) != 3 or not all(size.isascii() and size.isdigit() and len(size) < 20 for size in sizes):
        raise InputError(f"{file}: line {line}: expected rows, columns and entries as three whole numbers")
    rows, columns, entries = map(int, sizes)
    if rows != columns:
        raise InputError(f"{file}: line {line}: the matrix is {rows} x {columns}; that of a graph is square")
    if not 1 <= rows <= MOST_NODES:
        raise InputError(f"{file}: line {line}: {rows} rows, expected 1..{MOST_NODES}")
    return _Header(rows, entries, line, weighted, symmetric)


def _read(file: Path, header: _Header) -> Iterator[Arcs]:
    columns = (Column("row"), Column("column"), Column("value", "float64"))
    layout = Layout(columns if header.weighted else columns[:2], comments=b"%")
    for part in counted(read_rows(file, layout, header.line), file, header.entries, f"line {header.line}"):
        rows, columns_ = part.ids(0, 1, header.nodes), part.ids(1, 1, header.nodes)
        if header.symmetric:
            _check_triangle(part, rows, columns_)
        yield Arcs(rows - 1, columns_ - 1, part.weights(2) if header.weighted else None)


def _check_triangle(part: Rows, rows: np.ndarray, columns: np.ndarray) -> None:
    above = np.flatnonzero(rows < columns)
    if above.size:
        at = int(above[0])
        raise part.error(
            at, f"entry ({rows[at]}, {columns[at]}) is above the diagonal; a symmetric matrix lists the lower triangle"
        )
