"""GraphML and GML, through NetworkX (extra ``networkx``)."""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mgg.errors import InputError, MachineError
from mgg.graph.check import TOO_SMALL, check_weights, underflows
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.endings import find_file
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader

#: Suffixes of files that NetworkX itself reads and unpacks.
SUFFIXES = tuple(kind + packing for kind in (".graphml", ".gml") for packing in ("", ".gz", ".bz2"))
_NUMBER = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\b"


@loader("networkx", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read a GraphML or GML graph; edges of undirected graphs stand for both directions.

    Nodes are numbered in the order of the file; names that are whole numbers become ids. The edge attribute ``weight``
    is read if every edge has it, itself or by GraphML's default. Other attributes of edges, nodes and the graph, and
    names that are no numbers, are listed as ignored: write them into tables to use them (docs/concepts/data.md). The
    whole graph is in memory as a NetworkX object.

    Raises:
        MachineError: NetworkX is not installed.
        InputError: the file is no such graph, has no nodes, or only some edges have a weight.
    """
    try:
        import networkx
    except ImportError:
        raise MachineError(f"{path}: read by NetworkX, which is missing: pip install 'mgg[networkx]'") from None
    file = find_file(path, SUFFIXES)
    gml = ".gml" in file.name.lower()
    try:
        graph = networkx.read_gml(file, label="id") if gml else networkx.read_graphml(file)
    except Exception as error:  # NetworkX raises exceptions of any kind for broken files
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{file}: not a whole {'GML' if gml else 'GraphML'} file: {words}") from None
    if not len(graph):
        raise InputError(f"{file}: has no nodes")
    number = {node: at for at, node in enumerate(graph)}
    ends = np.array([(number[a], number[b]) for a, b in graph.edges()], np.int64).reshape(-1, 2)
    default = {key: value for key, value in graph.graph.get("edge_default", {}).items() if key == "weight"}
    weights = _weights(file, [default | edge for *_, edge in graph.edges(data=True)])

    def read() -> Iterator[Arcs]:
        for at in range(0, len(ends), CHUNK_ARCS):
            part = slice(at, at + CHUNK_ARCS)
            yield Arcs(ends[part, 1], ends[part, 0], None if weights is None else weights[part])

    stream = ArcStream(read, len(graph), weights is not None, undirected=not graph.is_directed())
    named, ids = _ids(list(graph))
    return StreamedGraph(stream, ids=ids, columns=_columns(graph, weights is not None, named))


def _weights(file: Path, edges: list[dict[str, Any]]) -> np.ndarray | None:
    """Return the weights, numbers [edges]; None if no edge has one."""
    having = sum("weight" in edge for edge in edges)
    if not having:
        return None
    if having < len(edges):
        raise InputError(f"{file}: {having} of {len(edges)} edges have a weight: give all of them one, or none")
    if ".gml" in file.name.lower() and any("e" in edge or "E" in edge for edge in edges):
        # NetworkX parses 1e-5 as the number 1 and an attribute e.
        raise InputError(f"{file}: a number such as 1e-5 is none of GML, which wants a point: write 1.0e-5")
    try:
        values = np.array([float(edge["weight"]) for edge in edges])
    except (TypeError, ValueError):
        raise InputError(f"{file}: a weight is no number") from None
    if not values.all():
        _check_zeros(file)
    return check_weights(values, lambda arc, problem: InputError(f"{file}: weight of edge {arc} {problem}"))


def _check_zeros(file: Path) -> None:
    """Raise InputError for a nonzero number that NetworkX has read as 0."""
    unpack: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix.lower(), open)
    with unpack(file, "rt", encoding="utf-8", errors="replace") as opened:
        text = opened.read()
    for number in (_gml_weights if ".gml" in file.name.lower() else _graphml_weights)(text):
        if float(number) == 0 and underflows(number):
            raise InputError(f"{file}: a weight is {number[:40]}, {TOO_SMALL}")


def _gml_weights(text: str) -> Iterator[str]:
    kind = ""
    for found in re.finditer(rf"\b(node|edge)\s*\[|\bweight\s+\"?{_NUMBER}", text):
        kind = found[1] or kind
        if kind == "edge" and found[2]:
            yield found[2]


def _graphml_weights(text: str) -> Iterator[str]:
    """Yield the numbers of the edge keys called weight, defaults included."""
    for key in re.finditer(r"<key\b[^>]*>", text):
        attributes = dict(re.findall(r"([\w.]+)\s*=\s*[\"']([^\"']*)", key[0]))
        if attributes.get("attr.name") != "weight" or attributes.get("for") not in ("edge", "all"):
            continue
        default = re.compile(rf"\s*(?:<desc>[^<]*</desc>)?\s*<default>{_NUMBER}").match(text, key.end())
        if default and not key[0].endswith("/>"):
            yield default[1]
        name = re.escape(attributes.get("id", ""))
        yield from (
            found[1] for found in re.finditer(rf"<data\b[^>]*\bkey\s*=\s*[\"']{name}[\"'][^>]*>{_NUMBER}", text)
        )


def _columns(graph: Any, weighted: bool, named: bool) -> dict[str, dict[str, Any]]:
    of_edges = {key for *_, edge in graph.edges(data=True) for key in edge} - {"weight"}
    of_nodes = {key for _, node in graph.nodes(data=True) for key in node}
    of_graph = graph.graph.keys() - {"node_default", "edge_default"}
    names = ["the names of nodes, which are numbered in the order of the file"] if named else []
    return what_is_read(
        edges={"weight": "weight" if weighted else "", "ignored": _sorted(of_edges)},
        nodes={"ignored": [*names, *_sorted(of_nodes)]},
        graph={"ignored": _sorted(of_graph)},
    )


def _sorted(keys: Iterable[Any]) -> list[str]:
    return sorted(map(str, keys))


def _ids(names: list[Any]) -> tuple[bool, np.ndarray | None]:
    """Return whether nodes have names that are no whole numbers, and ids int64 [nodes] unless they are 0, 1, ..."""
    try:
        found = np.array([int(str(name)) for name in names], np.int64)
    except (ValueError, OverflowError):
        return True, None
    return False, None if np.array_equal(found, np.arange(len(found))) else found
