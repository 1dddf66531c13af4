"""Edge lists as text: SNAP's files, and the comma-separated ones of Julia's SNAPDatasets (``.jlg``).

J. Leskovec, A. Krevl, "SNAP Datasets: Stanford Large Network Dataset Collection", snap.stanford.edu/data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mgg.errors import InputError
from mgg.graph.sources import Arcs, ArcStream, StreamedGraph, loader
from mgg.graph.text import Column, Layout, counted, find_file, lines, read_rows

SUFFIXES = (".txt.gz", ".txt", ".edges", ".jlg")
#: Ids that may occur where the number of nodes is not known.
MOST_IDS = 2**32

_COUNTS = re.compile(r"Nodes:\s*([0-9]+)\s+Edges:\s*([0-9]+)", re.IGNORECASE)
_JULIA = re.compile(r"([0-9]+),([0-9]+),([du])(,.*)?")
#: No count has more digits.
_MOST_DIGITS = 40


@dataclass(frozen=True)
class _Header:
    """What the lines before the first arc say: ``arcs`` and ``nodes`` are None where they do not."""

    skip: int
    layout: Layout
    nodes: int | None = None
    arcs: int | None = None
    line: int = 0
    first_id: int = 0
    undirected: bool = False


@loader("snap", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read an edge list (a file, compressed or not, or a folder with one).

    Two forms, told apart by the first line:

    - SNAP: comments (``#`` or ``%``), then ``u v`` a line, divided by spaces and tabs or by a comma. The ids that occur
      are the nodes. ``# Nodes: N Edges: M`` announces the number of lines; ``# Undirected graph`` that each stands for
      both directions (not so "Directed graph (each unordered pair of nodes is saved once)", which SNAP writes above
      arcs).
    - Julia: ``nodes,edges,d|u,...``, then ``u,v`` a line, counted from 1; ``u`` is undirected.

    More than two fields in a line (times, ratings) are refused: the loader ``table`` reads weights.

    Raises:
        InputError: the header is not one of these. The stream's errors name the line that is no arc, has an id out of
            range, or is one too many.
    """
    file = find_file(path, SUFFIXES)
    header = _read_header(file)
    if header.nodes is not None and not 1 <= header.nodes <= MOST_IDS:
        raise InputError(f"{file}: line {header.line}: {header.nodes} nodes, expected 1..{MOST_IDS}")
    known = header.first_id == 1
    return StreamedGraph(
        ArcStream(
            partial(_read, file, header),
            nodes=header.nodes if known else None,
            undirected=header.undirected,
            stated_nodes=None if known else header.nodes,
            stated_in="" if known or header.nodes is None else f"{file}: line {header.line}",
        )
    )


def _read_header(file: Path) -> _Header:
    """The comments (or Julia's first line) before the first arc, whose delimiter is that of all."""
    counts: tuple[int | None, int | None, int] = (None, None, 0)
    undirected = False
    for number, line in lines(file):
        text = line.strip()
        julia = _JULIA.fullmatch(text)
        if julia and number == 1:
            nodes, arcs = _stated(file, 1, julia)
            return _Header(1, _layout(","), nodes, arcs, line=1, first_id=1, undirected=julia[3] == "u")
        if text and text[0] not in "#%":
            return _Header(0, _layout("," if "," in text else " "), *counts, undirected=undirected)
        found = _COUNTS.search(text)
        counts = (*_stated(file, number, found), number) if found else counts
        undirected |= text.lstrip("#% ").lower().startswith("undirected graph")
    return _Header(0, _layout(" "), *counts, undirected=undirected)


def _stated(file: Path, line: int, found: re.Match[str]) -> tuple[int, int]:
    """Number of nodes and of arcs that a header states."""
    longest = max(len(found[1]), len(found[2]))
    if longest > _MOST_DIGITS:  # int() refuses some thousands
        raise InputError(f"{file}: line {line}: a number of {longest} digits counts neither nodes nor edges")
    return int(found[1]), int(found[2])


def _layout(delimiter: str) -> Layout:
    return Layout((Column("source", "id"), Column("target", "id")), delimiter)


def _read(file: Path, header: _Header) -> Iterator[Arcs]:
    first = header.first_id
    last = header.nodes if first == 1 and header.nodes is not None else MOST_IDS - 1
    rows = read_rows(file, header.layout, header.skip)
    if header.arcs is not None:
        rows = counted(rows, file, header.arcs, f"line {header.line}")
    seen = 0
    for part in rows:
        seen += part.count
        sources, targets = part.ids(0, first, last), part.ids(1, first, last)
        yield Arcs(targets - first, sources - first) if first else Arcs(targets, sources)
    if not seen and first == 0:
        raise InputError(f"{file}: has no arcs, so no nodes")
