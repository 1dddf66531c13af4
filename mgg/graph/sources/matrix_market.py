"""Matrix Market files, the text format in which the SuiteSparse collection serves its graphs.

R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR 5935, 1996.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.endings import in_words, packed, plain_name
from mgg.graph.io.text import LineFormat, TextColumn, TextRows, counted, lines, read_rows
from mgg.graph.sources import AS_MATRIX, Arcs, ArcStream, StreamedGraph, loader
from mgg.graph.sources.collection import Unpacked

SUFFIXES = packed(".mtx")
#: Archives that SuiteSparse serves.
ARCHIVES = (".tar.gz", ".tgz")
#: Maximum rows of a matrix.
MOST_NODES = 2**32

#: Some writers leave out one of the two percent signs.
BANNERS = ("%%matrixmarket", "%matrixmarket")
#: Field of the banner -> supported words, in the order of the banner.
_SUPPORTED = {
    "object": ("matrix",),
    "format": ("coordinate", "array"),
    "field": ("real", "double", "integer", "unsigned-integer", "pattern"),
    "symmetry": ("general", "symmetric", "skew-symmetric"),
}


@dataclass(frozen=True)
class _Header:
    """The contents of the banner and the size line (number ``line``); ``entries`` is the number of entry lines.

    ``comments`` is the number of comment lines with text between them.
    """

    nodes: int
    entries: int
    line: int
    dense: bool
    weighted: bool
    symmetry: str
    comments: int

    @property
    def triangle(self) -> bool:
        """Return whether only the lower triangle is listed."""
        return self.symmetry != "general"

    @property
    def skew(self) -> bool:
        """Return whether the entries above the diagonal are the negated ones below it."""
        return self.symmetry == "skew-symmetric"


@loader("matrix_market", *SUFFIXES, *ARCHIVES)
def load(path: Path) -> StreamedGraph:
    """Read a square matrix as a graph: entry (i, j) is row i, column j of the adjacency matrix, an arc j -> i.

    ``path`` is a file, compressed or not, or a folder or archive with one ``.mtx`` in it or in a folder below. Of
    several, the one with its folder's name counts (``NAME/NAME.mtx``, as SuiteSparse packs them); the others
    (right-hand sides, coordinates) and comments are listed as ignored. Values are weights, except in ``pattern``
    matrices. ``symmetric`` matrices list the lower triangle and are undirected. ``skew-symmetric`` ones give the listed
    arcs and their reverses with the opposite sign. An ``array`` file lists all entries, column by column; zeros are no
    arcs. Repeated entries are summed and the diagonal stays, so the graph equals the matrix that SciPy reads.

    Raises:
        InputError: the header is wrong, or its matrix is no graph (complex, Hermitian, not square). The stream's errors
            name the line that is no entry, is outside the matrix or its lower triangle, or is one too many.
    """
    unpacked = Unpacked(path) if path.is_dir() or path.name.lower().endswith(ARCHIVES) else None
    file, others = (path, []) if unpacked is None else _find(unpacked.path, path)
    header = _read_header(file)
    read = partial(_entries, file, header, unpacked)
    undirected = header.symmetry == "symmetric"
    remarks = [f"comments ({header.comments} lines)"] if header.comments else []
    columns = what_is_read(edges={"matrix": file.name if others else "", "ignored": [*others, *remarks]})
    arcs = ArcStream(read, header.nodes, header.weighted, undirected=undirected, **AS_MATRIX)
    return StreamedGraph(arcs, columns=columns)


def _find(folder: Path, source: Path) -> tuple[Path, list[str]]:
    """Return the matrix in a folder and the names of the others; ``source``: the folder or its archive, for errors."""
    files = [file for pattern in ("*", "*/*") for file in sorted(folder.glob(pattern))]
    found = [file for file in files if file.name.lower().endswith(SUFFIXES)]
    named = [file for file in found if plain_name(file) == f"{file.resolve().parent.name}.mtx"]
    chosen = named if len(named) == 1 else found
    if len(chosen) != 1:
        raise InputError(f"{source}: {len(found)} files end in {in_words(SUFFIXES)}; name the one to read")
    return chosen[0], [file.name for file in found if file != chosen[0]]


def _entries(file: Path, header: _Header, _: Unpacked | None) -> Iterator[Arcs]:
    """Yield the arcs of a file; the unused argument keeps an unpacked folder alive meanwhile."""
    yield from (_dense if header.dense else _read)(file, header)


def _read_header(file: Path) -> _Header:
    text = lines(file)
    words = next(text, (1, ""))[1].lower().split()
    if not words or words[0] not in BANNERS or len(words) != 1 + len(_SUPPORTED):
        raise InputError(f"{file}: line 1: not a Matrix Market banner (%%MatrixMarket matrix coordinate ...)")
    for word, (name, supported) in zip(words[1:], _SUPPORTED.items(), strict=True):
        if word not in supported:
            raise InputError(f"{file}: line 1: {name} {word!r} is no graph; supported: {', '.join(supported)}")
    if words[3] == "pattern" and (words[2] == "array" or words[4] == "skew-symmetric"):
        raise InputError(f"{file}: line 1: a pattern has no values: it cannot be {words[2]} {words[4]}")
    comments = 0
    for number, line in text:
        sizes = line.split()
        if sizes and not sizes[0].startswith("%"):
            return _sized(file, number, sizes, comments, *words[2:])
        comments += bool(line.strip("% \t\r"))
    raise InputError(f"{file}: has no size line (rows columns entries)")


def _sized(file: Path, line: int, sizes: list[str], comments: int, form: str, field: str, symmetry: str) -> _Header:
    dense = form == "array"
    whole = all(size.isascii() and size.isdigit() and len(size) < 20 for size in sizes)
    if not whole or len(sizes) != (2 if dense else 3):
        expected = "rows and columns as two" if dense else "rows, columns and entries as three"
        raise InputError(f"{file}: line {line}: expected {expected} whole numbers")
    rows, columns, *counts = map(int, sizes)
    if rows != columns:
        raise InputError(f"{file}: line {line}: the matrix is {rows} x {columns}; that of a graph is square")
    if not 1 <= rows <= MOST_NODES:
        raise InputError(f"{file}: line {line}: {rows} rows, expected 1..{MOST_NODES}")
    below = {"general": rows**2, "symmetric": rows * (rows + 1) // 2, "skew-symmetric": rows * (rows - 1) // 2}
    entries = below[symmetry] if dense else counts[0]
    return _Header(rows, entries, line, dense, field != "pattern", symmetry, comments)


def _read(file: Path, header: _Header) -> Iterator[Arcs]:
    columns = (TextColumn("row"), TextColumn("column"), TextColumn("value", "float64"))
    layout = LineFormat(columns if header.weighted else columns[:2], comments=b"%")
    for part in counted(read_rows(file, layout, header.line), file, header.entries, f"line {header.line}"):
        rows, columns_ = part.ids(0, 1, header.nodes), part.ids(1, 1, header.nodes)
        if header.triangle:
            _check_triangle(part, rows, columns_, header)
        yield from _arcs(rows - 1, columns_ - 1, part.weights(2) if header.weighted else None, header)


def _arcs(rows: np.ndarray, columns: np.ndarray, values: np.ndarray | None, header: _Header) -> Iterator[Arcs]:
    """Yield the arcs of some entries, for a skew-symmetric matrix also their reverses with the opposite sign."""
    yield Arcs(rows, columns, values)
    if header.skew and values is not None:
        yield Arcs(columns, rows, -values)


def _check_triangle(part: TextRows, rows: np.ndarray, columns: np.ndarray, header: _Header) -> None:
    above = np.flatnonzero(rows <= columns if header.skew else rows < columns)
    if above.size:
        at = int(above[0])
        where = "on" if rows[at] == columns[at] else "above"
        raise part.error(
            at,
            f"entry ({rows[at]}, {columns[at]}) is {where} the diagonal;"
            f" a {header.symmetry} matrix lists the lower triangle{' below it' if header.skew else ''}",
        )


def _dense(file: Path, header: _Header) -> Iterator[Arcs]:
    """Yield the nonzero entries of an array file; triangles list each column from (or from below) the diagonal on."""
    layout, n, below = LineFormat((TextColumn("value", "float64"),), comments=b"%"), header.nodes, int(header.skew)
    first, column = 0, 0
    announced = f"the size of line {header.line}"
    for part in counted(read_rows(file, layout, header.line), file, header.entries, announced):
        values = part.weights(0)
        at = np.flatnonzero(values)
        # The columns that this part may reach, and the number of entries before each of them.
        reached = np.arange(column, min(n, column + part.count + 2))
        starts = reached * n - (reached * (reached - 1) // 2 + below * reached if header.triangle else 0)
        columns = column + np.searchsorted(starts, first + at, side="right") - 1
        rows = first + at - starts[columns - column] + (columns + below if header.triangle else 0)
        yield from _arcs(rows, columns, values[at], header)
        first += part.count
        column += int(np.searchsorted(starts, first, side="right")) - 1
