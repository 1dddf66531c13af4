"""Graphs in the text format of METIS, which Chaco and KaHIP also read.

G. Karypis, "METIS: A Software Package for Partitioning Unstructured Graphs", manual of version 5.1, section 4.1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import TOO_SMALL, check_weights, underflows
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.endings import find_file, packed
from mgg.graph.io.text import lines
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader

SUFFIXES = packed(".graph", ".metis")
MOST_NODES = 2**32


@dataclass(frozen=True)
class _Header:
    """The first line: nodes, edges, and which numbers come before a line's neighbours and after each of them."""

    nodes: int
    edges: int
    sizes: int
    constraints: int
    weighted: bool
    line: int

    @property
    def before(self) -> int:
        return self.sizes + self.constraints

    @property
    def ignored(self) -> list[str]:
        """Return the names of these numbers, which are ignored."""
        weights = [f"weights ({self.constraints} of each node)"] if self.constraints else []
        return ["sizes", *weights] if self.sizes else weights


@loader("metis", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read a graph whose line i (from 1) lists the neighbours of node i: the entries of row i.

    The file lists both directions of an edge, and each becomes an arc. Weights of edges are read; sizes and weights of
    nodes are listed as ignored. Lines that begin with ``%`` are comments.

    Raises:
        InputError: the header is malformed. The stream's errors name the line with an invalid neighbour, and report
            more or fewer lines or neighbours than the header states.
    """
    file = find_file(path, SUFFIXES)
    header = _read_header(file)
    columns = what_is_read(nodes={"ignored": header.ignored})
    return StreamedGraph(ArcStream(lambda: _arcs(file, header), header.nodes, header.weighted), columns=columns)


def _content(file: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in lines(file) if not line.lstrip().startswith("%"))


def _read_header(file: Path) -> _Header:
    number, first = next(_content(file), (1, ""))
    words = first.split()
    whole = all(word.isascii() and word.isdigit() and len(word) < 20 for word in words)
    form = words[2].zfill(3) if len(words) > 2 else "000"
    if not whole or not 2 <= len(words) <= 4 or len(form) != 3 or set(form) - {"0", "1"}:
        raise InputError(f"{file}: line {number}: expected nodes, edges[, format of 0s and 1s[, weights of a node]]")
    nodes, edges = int(words[0]), int(words[1])
    if not 1 <= nodes <= MOST_NODES:
        raise InputError(f"{file}: line {number}: {nodes} nodes; expected 1 to 2^32")
    constraints = int(words[3]) if len(words) > 3 else 1
    return _Header(nodes, edges, int(form[0]), constraints if form[1] == "1" else 0, form[2] == "1", number)


def _arcs(file: Path, header: _Header) -> Iterator[Arcs]:
    rows: list[int] = []
    found: list[np.ndarray] = []
    values: list[np.ndarray] = []
    node = held = total = 0
    content = _content(file)
    next(content)
    for number, line in content:
        if node == header.nodes:
            if line.strip():
                raise InputError(f"{file}: line {number}: is beyond the {header.nodes} nodes of line {header.line}")
            continue
        ids, weights = _line(file, number, line, header)
        rows.append(node)
        found.append(ids)
        values.append(weights)
        node, held, total = node + 1, held + len(ids), total + len(ids)
        if held >= CHUNK_ARCS:
            yield _part(rows, found, values, header)
            rows, found, values, held = [], [], [], 0
    if node < header.nodes:
        raise InputError(f"{file}: ends after {node} nodes; line {header.line} promises {header.nodes}")
    if total != 2 * header.edges:
        raise InputError(
            f"{file}: lists {total} neighbours; line {header.line} promises {header.edges} edges, each listed twice"
        )
    if rows:
        yield _part(rows, found, values, header)


def _part(rows: list[int], found: list[np.ndarray], values: list[np.ndarray], header: _Header) -> Arcs:
    targets = np.repeat(np.array(rows, np.int64), [len(ids) for ids in found])
    return Arcs(targets, np.concatenate(found), np.concatenate(values) if header.weighted else None)


def _line(file: Path, number: int, line: str, header: _Header) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbours in a line, counted from 0, and the weights of their edges."""

    def error(problem: str) -> InputError:
        return InputError(f"{file}: line {number}: {problem}")

    try:
        numbers = np.array(line.split(), np.float64)
    except ValueError:
        raise error("holds something that is no number") from None
    each = 1 + header.weighted
    if len(numbers) < header.before or (len(numbers) - header.before) % each:
        raise error(
            f"has {len(numbers)} numbers: {header.before} of the node and {each} for each neighbour are expected"
        )
    pairs = numbers[header.before :].reshape(-1, each)
    bad = np.flatnonzero((pairs[:, 0] != np.floor(pairs[:, 0])) | (pairs[:, 0] < 1) | (pairs[:, 0] > header.nodes))
    if bad.size:
        raise error(f"neighbour {pairs[bad[0], 0]:g} is outside 1..{header.nodes}")
    weights = pairs[:, each - 1] if header.weighted else np.empty(0)
    words = line.split() if not weights.all() else []
    for at in np.flatnonzero(weights == 0):
        if underflows(word := words[header.before + each * at + 1]):
            raise error(f"a weight is {word[:40]}, {TOO_SMALL}")
    return pairs[:, 0].astype(np.int64) - 1, check_weights(weights, lambda _, problem: error(f"a weight {problem}"))
