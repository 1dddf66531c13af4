"""The adjacency-text format of the GIN release (powerful-gnns), as one block-diagonal graph.

K. Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019. Line 1: number of graphs. For each graph a line
``nodes label``, then for each of its nodes a line ``tag k neighbor_1 ... neighbor_k``, neighbors counted from 0 within
the graph. No library parses such ragged lines, so this module loops over the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np

from mgg.errors import InputError
from mgg.graph.check import split_vector
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.text import LineFormat, TextColumn, read_rows
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader
from mgg.graph.sources.collection import Unpacked, numbered, one_hot

FOLDS = "10fold_idx"
#: Bytes of text parsed at once, unless one graph is longer.
BLOCK = 2**22
_SPACE, _TAB, _LINE, _RETURN, _MINUS, _ZERO = 32, 9, 10, 13, 45, 48
#: Numbers of more digits are refused: they might not fit 64 bits.
_DIGITS = 18

# Error codes, the first field of the parsers' results; 0: no error.
_END, _NOT_WHOLE, _TOO_LONG, _TOO_FEW, _TOO_MANY, _OUTSIDE, _NEGATIVE, _CUT, _REST = range(1, 10)


@loader("gin")
def load(path: Path) -> StreamedGraph:
    """Read ``NAME.txt``, a folder that holds it, or an archive of one.

    Node v's line lists row v of the adjacency matrix. Every node gets the class of its graph (any whole numbers, which
    become 0, 1, ... in ascending order). Features are the tags, one-hot in ascending order. The split is fold 1 of the
    folder ``10fold_idx`` next to the text, if it exists: graphs in ``test_idx-1.txt`` are for testing; graphs in
    ``train_idx-1.txt`` are for validation if they are also in ``test_idx-2.txt``, else for training (the release itself
    validates on the test fold).

    The text is in memory while it is checked; arcs are then read block by block, at every call.

    Raises:
        InputError: names the file and line that is malformed, names a neighbor outside its graph, or lists more or
            fewer neighbors, nodes or graphs than announced. Attributes after the neighbors are not supported.
    """
    single = path.is_file() and path.name.endswith(".txt")
    unpacked = Unpacked(path.parent if single else path)
    text = _Text.scan(path if single else unpacked.only("*.txt", FOLDS), unpacked)
    classes, count = numbered(text.labels)
    graph_of = np.repeat(np.arange(len(text.sizes)), text.sizes)
    splits = _fold(text.file.parent / FOLDS, len(text.sizes))
    return StreamedGraph(
        arcs=ArcStream(text.arcs, len(graph_of)),
        features=one_hot([text.tags]),
        labels=classes[graph_of],
        splits=None if splits is None else splits[graph_of],
        classes=count,
        columns=what_is_read(nodes={"split": "" if splits is None else f"fold 1 of {FOLDS}"}),
    )


@dataclass(frozen=True)
class _Text:
    """The index of a checked file.

    Attributes:
        file: the file; ``unpacked`` keeps its folder alive.
        sizes: int64 [graphs], nodes of each graph.
        labels: int64 [graphs].
        places: int64 [graphs + 1], the byte where each graph begins, and where the last one ends.
        numbers: int64 [graphs + 1], the line of each place.
        tags: int64 [nodes].
    """

    file: Path
    unpacked: Unpacked
    sizes: np.ndarray
    labels: np.ndarray
    places: np.ndarray
    numbers: np.ndarray
    tags: np.ndarray

    @classmethod
    def scan(cls, file: Path, unpacked: Unpacked) -> _Text:
        """Read and check the whole file."""
        try:
            data = np.fromfile(file, np.uint8)
        except OSError as error:
            raise InputError(f"{file}: {error.strerror or error}") from None
        failed, graphs, start, line = _count(data)
        _raise(file, data, failed, line, start, graphs)
        # A graph takes at least four bytes, so a wrong count cannot make this allocate more than the file's size.
        if not 0 < graphs <= len(data) // 4:
            raise InputError(
                f"{file}: line {line}: {graphs} graphs; there must be some, and not more than fit this file"
            )
        failed, line, at, value, sizes, labels, places, numbers = _index(data, graphs, start, line + 1)
        _raise(file, data, failed, line, at, value)
        if not sizes.sum():
            raise InputError(f"{file}: its graphs have no nodes")
        text = cls(file, unpacked, sizes, labels, places, numbers, np.empty(sizes.sum(), np.int64))
        for lo, hi in text.blocks():
            text.parse(data[places[lo] : places[hi]], lo, hi, text.tags)
        return text

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of graphs of about BLOCK bytes."""
        lo = 0
        while lo < len(self.sizes):
            hi = int(np.searchsorted(self.places, self.places[lo] + BLOCK, side="right")) - 1
            hi = max(lo + 1, hi)
            yield lo, hi
            lo = hi

    def parse(self, data: np.ndarray, lo: int, hi: int, tags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return targets and sources of the arcs of graphs ``lo`` to ``hi - 1`` from their bytes; fills ``tags``."""
        ends = np.empty((2, len(data) // 2 + 1), np.int64)
        first = int(self.sizes[:lo].sum())
        failed, line, at, value, arcs = _parse(data, self.sizes[lo:hi], self.numbers[lo], first, tags, ends)
        _raise(self.file, data, failed, line, at, value)
        return ends[0, :arcs], ends[1, :arcs]

    def arcs(self) -> Iterator[Arcs]:
        """Yield all arcs in the order of the text."""
        tags = np.empty_like(self.tags)
        with self.file.open("rb") as file:
            for lo, hi in self.blocks():
                file.seek(self.places[lo])
                data = np.fromfile(file, np.uint8, int(self.places[hi] - self.places[lo]))
                targets, sources = self.parse(data, lo, hi, tags)
                for at in range(0, len(targets), CHUNK_ARCS):
                    yield Arcs(targets[at : at + CHUNK_ARCS], sources[at : at + CHUNK_ARCS])


def _fold(folder: Path, graphs: int) -> np.ndarray | None:
    """Return the split of fold 1, uint8 [graphs], or None if there is no such folder."""
    if not folder.is_dir():
        return None
    train, test = (_graphs(folder / f"{part}_idx-1.txt", graphs) for part in ("train", "test"))
    other = folder / "test_idx-2.txt"
    validation = np.intersect1d(_graphs(other, graphs), train) if other.is_file() else np.empty(0, np.int64)
    train = train[~np.isin(train, validation)]
    return split_vector(graphs, str(folder), train=train, validation=validation, test=test)


def _graphs(file: Path, graphs: int) -> np.ndarray:
    layout = LineFormat((TextColumn("graph"),), comments=b"")
    return np.concatenate([np.empty(0, np.int64), *(rows.ids(0, 0, graphs - 1) for rows in read_rows(file, layout))])


def _raise(file: Path, data: np.ndarray, failed: int, line: int, at: int, value: int) -> None:
    """Raise InputError for a parser's error code ``failed`` at byte ``at`` of ``data``."""
    if not failed:
        return
    words = data[at : at + 40].tobytes().split()
    word = ascii(words[0].decode("latin1")) if words else "nothing"
    problems = {
        _END: "a number is missing",
        _NOT_WHOLE: f"expected a whole number, found {word}",
        _TOO_LONG: f"{word} is beyond 2^63 or nearly so",
        _TOO_FEW: f"the line ends after {value} of the neighbors that it announces",
        _TOO_MANY: f"found {word} where the line should end; attributes after the neighbors are not supported",
        _OUTSIDE: f"neighbor {word} is outside 0..{value - 1}, the nodes of its graph",
        _NEGATIVE: f"{value} cannot be a number of nodes or neighbors",
        _CUT: f"the file ends within graph {value} (from 0): it is cut off or announces too much",
        _REST: f"more text after the {value} graphs that line 1 announces",
    }
    raise InputError(f"{file}: line {line}: {problems[failed]}")


@numba.njit(cache=True, nogil=True)
def _number(data: np.ndarray, at: int) -> tuple[int, int, int, int]:
    """Parse the next number of the line: return the error code, its value, its begin and its end."""
    while at < len(data) and (data[at] == _SPACE or data[at] == _TAB or data[at] == _RETURN):
        at += 1
    begin = at
    if at == len(data) or data[at] == _LINE:
        return _END, 0, begin, at
    negative = data[at] == _MINUS
    at += negative
    first, value = at, 0
    while at < len(data) and _ZERO <= data[at] < _ZERO + 10:
        if at - first < _DIGITS:
            value = value * 10 + (data[at] - _ZERO)
        at += 1
    ended = at == len(data) or data[at] == _SPACE or data[at] == _LINE or data[at] == _TAB or data[at] == _RETURN
    if at == first or not ended:
        return _NOT_WHOLE, 0, begin, at
    if at - first > _DIGITS:
        return _TOO_LONG, 0, begin, at
    return 0, -value if negative else value, begin, at


@numba.njit(cache=True, nogil=True)
def _next_line(data: np.ndarray, at: int, line: int) -> tuple[int, int]:
    """Return the begin and the number of the next line that is not blank; ``at`` is the beginning of a line."""
    begin = at
    while at < len(data) and (data[at] == _SPACE or data[at] == _TAB or data[at] == _RETURN or data[at] == _LINE):
        at += 1
        if data[at - 1] == _LINE:
            begin, line = at, line + 1
    return (at if at == len(data) else begin), line


@numba.njit(cache=True, nogil=True)
def _line_end(data: np.ndarray, at: int) -> int:
    """Return the begin of the next line."""
    while at < len(data) and data[at] != _LINE:
        at += 1
    return min(at + 1, len(data))


@numba.njit(cache=True, nogil=True)
def _count(data: np.ndarray) -> tuple[int, int, int, int]:
    """Parse the first line: error code, number of graphs, place of the next line (or error), the line's number."""
    at, line = _next_line(data, 0, 1)
    failed, graphs, begin, at = _number(data, at)
    if failed:
        return failed, graphs, begin, line
    rest, _, begin, at = _number(data, at)
    if rest != _END:
        return _TOO_MANY, graphs, begin, line
    return 0, graphs, _line_end(data, at), line


@numba.njit(cache=True, nogil=True)
def _index(data, graphs, at, line):  # type: ignore[no-untyped-def]  # numba infers them
    """Find the graphs: error code, its line, place and value; size, label, place and line of each graph."""
    sizes, labels = np.zeros(graphs, np.int64), np.zeros(graphs, np.int64)
    places, lines = np.zeros(graphs + 1, np.int64), np.zeros(graphs + 1, np.int64)
    for graph in range(graphs):
        at, line = _next_line(data, at, line)
        places[graph], lines[graph] = at, line
        if at == len(data):
            return _CUT, line, at, graph, sizes, labels, places, lines
        failed, size, begin, at = _number(data, at)
        if not failed and size < 0:
            return _NEGATIVE, line, begin, size, sizes, labels, places, lines
        if not failed:
            failed, labels[graph], begin, at = _number(data, at)
        if failed:
            return failed, line, begin, 0, sizes, labels, places, lines
        rest, _, begin, at = _number(data, at)
        if rest != _END:
            return _TOO_MANY, line, begin, 0, sizes, labels, places, lines
        at, line, sizes[graph] = _line_end(data, at), line + 1, size
        for _ in range(size):
            at, line = _next_line(data, at, line)
            if at == len(data):
                return _CUT, line, at, graph, sizes, labels, places, lines
            at, line = _line_end(data, at), line + 1
    places[graphs], lines[graphs] = at, line
    at, line = _next_line(data, at, line)
    return (0 if at == len(data) else _REST), line, at, graphs, sizes, labels, places, lines


@numba.njit(cache=True, nogil=True)
def _parse(data, sizes, line, first, tags, ends):  # type: ignore[no-untyped-def]  # numba infers them
    """Parse graphs whose headers are already checked: error code, its line, place and value; number of arcs.

    ``first`` is the first graph's first node, ``line`` the number of its header's line. Writes ``tags[first:]``, and
    the arcs' targets and sources into the two rows of ``ends``: an arc takes at least two bytes of text.
    """
    at, arcs = 0, 0
    for size in sizes:
        at, line = _next_line(data, at, line)
        at, line = _line_end(data, at), line + 1
        for node in range(size):
            at, line = _next_line(data, at, line)
            failed, tags[first + node], begin, at = _number(data, at)
            degree = 0
            if not failed:
                failed, degree, begin, at = _number(data, at)
            if not failed and degree < 0:
                return _NEGATIVE, line, begin, degree, arcs
            if failed:
                return failed, line, begin, 0, arcs
            for seen in range(degree):
                failed, neighbor, begin, at = _number(data, at)
                if failed:
                    return (_TOO_FEW if failed == _END else failed), line, begin, seen, arcs
                if neighbor < 0 or neighbor >= size:
                    return _OUTSIDE, line, begin, size, arcs
                ends[0, arcs], ends[1, arcs] = first + node, first + neighbor
                arcs += 1
            rest, _, begin, at = _number(data, at)
            if rest != _END:
                return _TOO_MANY, line, begin, 0, arcs
            at, line = _line_end(data, at), line + 1
        first += size
    return 0, line, at, 0, arcs
