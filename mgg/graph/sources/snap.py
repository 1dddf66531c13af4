"""Edge lists as text: SNAP's files, and the comma-separated ones of Julia's SNAPDatasets (``.jlg``).

J. Leskovec, A. Krevl, "SNAP Datasets: Stanford Large Network Dataset Collection", snap.stanford.edu/data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.budget import fit
from mgg.graph.io.columns import ColumnChoice, known_edges, what_is_read
from mgg.graph.io.endings import find_file, packed
from mgg.graph.io.text import LineFormat, TextColumn, counted, lines, read_rows
from mgg.graph.sources import Arcs, ArcStream, StreamedGraph, loader, matrix_market, table

SUFFIXES = packed(".txt", ".edges", ".edgelist", ".jlg")
#: Upper bound of ids if the number of nodes is not known; maximum number of nodes that a header may announce.
MOST_IDS, MOST_NODES = 2**63, 2**32

_COUNTS = re.compile(r"Nodes:\s*([0-9]+)\s+Edges:\s*([0-9]+)", re.IGNORECASE)
_JULIA = re.compile(r"([0-9]+),([0-9]+),([du])(,.*)?")
#: The banner of a KONECT network (J. Kunegis, "Handbook of Network Analysis: The KONECT Project"), and the optional
#: next line: lines, nodes, and nodes again for networks with a single set of nodes.
_KONECT = re.compile(
    r"%\s*(sym|asym|bip)(\s+(un|pos|multi|multipos)?(weighted|positive|signed|dynamic))?", re.IGNORECASE
)
_KONECT_COUNTS = re.compile(r"%\s*([0-9]+)\s+([0-9]+)(?:\s+\2)?")
#: No count has more digits.
_MOST_DIGITS = 40


@dataclass(frozen=True)
class _Header:
    """The contents of the lines before the first arc; ``arcs`` and ``nodes`` are None if these do not state them."""

    skip: int
    layout: LineFormat
    nodes: int | None = None
    arcs: int | None = None
    line: int = 0
    first_id: int = 0
    undirected: bool = False
    konect: bool = False
    table: bool = False
    ignored: Sequence[str] = ()


@loader("snap", *SUFFIXES, columns=True)
def load(path: Path, said: ColumnChoice = ColumnChoice()) -> StreamedGraph:  # noqa: B008  # it is frozen
    """Read an edge list (a file, compressed or not, or a folder with one).

    The first lines decide between these forms:

    - SNAP: comments (``#`` or ``%``), then one ``u v`` per line, divided by spaces and tabs or by a comma. The ids that
      occur are the nodes. ``# Nodes: N Edges: M`` announces the number of lines. ``# Undirected graph`` means that each
      line stands for both directions ("Directed graph (each unordered pair of nodes is saved once)", which SNAP writes
      above arcs, does not).
    - KONECT: ``% sym ...`` (each line stands for both directions) or ``% asym ...``, and optionally ``% LINES NODES
      NODES``: then the nodes are 1 to NODES. A third field is a weight. ``% bip ...``, which numbers two sets of nodes
      from 1 each, and lines with times are refused.
    - Matrix Market's banner: the loader ``matrix_market`` reads the file.
    - Julia: ``nodes,edges,d|u,...``, then one ``u,v`` per line, counted from 1; ``u`` in the first line: undirected.
    - A table: a line of names, more than two fields, semicolons, or NetworkX's ``0 1 {}``: the loader ``table`` reads
      the file, with the columns in ``said``.

    Raises:
        InputError: the header is not one of these. The stream's errors name the line that is no arc, has an id out of
            range, or is one too many.
    """
    file = find_file(path, SUFFIXES)
    if next(lines(file), (1, ""))[1].lower().startswith(matrix_market.BANNERS):
        return replace(matrix_market.load(file), loader="matrix_market")
    header = _read_header(file)
    if header.table or said:
        graph = table.load(file, said)
        undirected = header.undirected or graph.arcs.undirected
        return replace(graph, arcs=replace(graph.arcs, undirected=undirected), loader="table")
    if header.nodes is not None and not 1 <= header.nodes <= MOST_NODES:
        raise InputError(f"{file}: line {header.line}: {header.nodes} nodes, expected 1..{MOST_NODES}")
    known, ids = header.first_id == 1, None
    if header.konect and header.nodes:
        fit(8 * header.nodes, f"{file}: line {header.line}: {header.nodes} nodes")
        ids = np.arange(1, header.nodes + 1)
    places = {column.name: f"column {at}" for at, column in enumerate(header.layout.columns, 1)}
    return StreamedGraph(
        ArcStream(
            partial(_read, file, header),
            nodes=header.nodes if known else None,
            weighted=len(header.layout.columns) > 2,
            undirected=header.undirected,
            stated_nodes=None if known else header.nodes,
            stated_in="" if known or header.nodes is None else f"{file}: line {header.line}",
        ),
        ids=ids,
        columns=what_is_read(edges={**places, "ignored": header.ignored}),
    )


def _read_header(file: Path) -> _Header:
    """Read the comments (or Julia's first line) before the first arc, and the delimiter of that arc's line."""
    counts: tuple[int | None, int | None, int] = (None, None, 0)
    undirected, konect, remark = False, "", ""
    for number, line in lines(file):
        text = line.strip()
        julia = _JULIA.fullmatch(text)
        if julia and number == 1:
            nodes, arcs = _stated(file, 1, julia)
            more = [f"of line 1 {julia[4].strip(',')}"] if (julia[4] or "").strip(", ") else []
            undirected = julia[3] == "u"
            return _Header(1, _layout(","), nodes, arcs, line=1, first_id=1, undirected=undirected, ignored=more)
        if text and text[0] not in "#%" and konect:
            return _konect(file, number, text, konect, counts)
        if text and text[0] not in "#%":
            fields = re.split(r"[\s,;]+", text)
            layout = _layout("," if "," in text else " ", turned=_turned(remark))
            numbers = all(field[:1].isdigit() for field in fields[:2])
            tabular = "{" in text or ";" in text or known_edges(fields) or (numbers and len(fields) > 2)
            return _Header(0, layout, *counts, undirected=undirected, table=tabular)
        banner = _KONECT.fullmatch(text)
        if banner and banner[1].lower() == "bip":
            raise InputError(
                f"{file}: line {number}: a bipartite network numbers both sets of nodes from 1: add the number of nodes"
                " of the first set to the second column, and write asym in the place of bip"
            )
        konect = banner[1].lower() if banner else konect
        found = _KONECT_COUNTS.fullmatch(text) if konect else None
        if found:
            arcs, nodes = _stated(file, number, found)
            counts = nodes, arcs, number
            continue
        found = _COUNTS.search(text)
        counts = (*_stated(file, number, found), number) if found else counts
        remark = text or remark
        undirected |= text.lstrip("#% ").lower().startswith("undirected graph")
    return _Header(0, _layout(" "), *counts, undirected=undirected)


def _konect(file: Path, number: int, text: str, kind: str, counts: tuple[int | None, int | None, int]) -> _Header:
    """Return the header of a KONECT network whose first arc is line ``number``."""
    layout = _layout("," if "," in text else " ")
    fields = len(layout.fields(text.encode()))
    if fields > 3:
        return _Header(0, layout, undirected=kind == "sym", konect=True, table=True)  # which asks what they are
    if fields == 3:
        layout = replace(layout, columns=(*layout.columns, TextColumn("weight", "float64")))
    nodes, arcs, line = counts
    first = 0 if nodes is None else 1
    return _Header(0, layout, nodes, arcs, line, first, undirected=kind == "sym", konect=True)


def _stated(file: Path, line: int, found: re.Match[str]) -> tuple[int, int]:
    longest = max(len(found[1]), len(found[2]))
    if longest > _MOST_DIGITS:  # int() refuses some thousands
        raise InputError(f"{file}: line {line}: a number of {longest} digits counts neither nodes nor edges")
    return int(found[1]), int(found[2])


def _turned(remark: str) -> bool:
    """Return whether the last comment names the columns with the target first."""
    names = re.split(r"[\s,;]+", remark.lstrip("#% "))
    return len(names) == 2 and known_edges(names) and known_edges([names[0], "source"])


def _layout(delimiter: str, *, turned: bool = False) -> LineFormat:
    ends = (TextColumn("source", "id"), TextColumn("target", "id"))
    return LineFormat(ends[::-1] if turned else ends, delimiter)


def _read(file: Path, header: _Header) -> Iterator[Arcs]:
    first = header.first_id
    last = header.nodes if first == 1 and header.nodes is not None else MOST_IDS - 1
    rows = read_rows(file, header.layout, header.skip)
    if header.arcs is not None:
        rows = counted(rows, file, header.arcs, f"line {header.line}")
    seen = 0
    for part in rows:
        seen += part.count
        ends = part.ids(0, first, last), part.ids(1, first, last)
        sources, targets = ends if part.name(0) == "source" else ends[::-1]
        weights = part.weights(2) if len(header.layout.columns) > 2 else None
        yield Arcs(targets - first, sources - first, weights) if first else Arcs(targets, sources, weights)
    if not seen and first == 0:
        raise InputError(f"{file}: has no arcs, so no nodes")
