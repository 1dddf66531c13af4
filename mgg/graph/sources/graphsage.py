"""GraphSAGE's JSON format: the protein-protein interactions (PPI) of its release.

W. Hamilton, R. Ying, J. Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017
(snap.stanford.edu/graphsage).
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from mgg.errors import InputError
from mgg.graph.check import finite_rows
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.endings import find_file
from mgg.graph.io.npz import HEADER_ERRORS, read_header
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, FeatureStream, StreamedGraph, loader

SUFFIX = "-G.json"
FEATURE_ROWS = 2**16
#: pyarrow parses a document as one block, whose length is an int32.
MOST_BYTES = 2**31 - 2

#: A JSON string, and the colon after it if it is a field's name.
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(\s*:)?', re.DOTALL)
_READ = {"directed", "nodes", "links", "id", "test", "val", "source", "target"}
_BESIDE = ("-feats.npy", "-class_map.json", "-id_map.json")
_NODE = pa.struct([("id", pa.int64()), ("test", pa.bool_()), ("val", pa.bool_())])
_LINK = pa.struct([("source", pa.int64()), ("target", pa.int64())])
_GRAPH = pa.schema([("directed", pa.bool_()), ("nodes", pa.list_(_NODE)), ("links", pa.list_(_LINK))])


@loader("graphsage", SUFFIX)
def load(path: Path) -> StreamedGraph:
    """Read ``PREFIX-G.json`` and, from its folder if present, ``PREFIX-feats.npy`` and ``PREFIX-class_map.json``.

    ``path`` is the first of these files or a folder with one. Nodes have the ids 0, 1, ... in this order. ``val`` and
    ``test`` give the split; nodes with neither are for training. Each link stands for both directions unless the file
    says ``directed``. The class map has a list of 0 and 1 per node: its tasks. ``PREFIX-id_map.json`` must map node v
    to row v of the features. Other fields and other files ``PREFIX-...`` are listed as ignored. The links are in
    memory, 16 bytes each.

    Raises:
        InputError: names the file and the malformed node or link; the stream of features names values not finite.
    """
    file = find_file(path, (SUFFIX.lower(),))
    directed, nodes, links = _read_graph(file)
    count = len(nodes)
    splits = _splits(file, nodes)
    ends = [_ends(file, links, name, count) for name in ("source", "target")]

    def read() -> Iterator[Arcs]:
        for lo in range(0, len(ends[0]), CHUNK_ARCS):
            yield Arcs(ends[1][lo : lo + CHUNK_ARCS], ends[0][lo : lo + CHUNK_ARCS])

    beside = {name: file.with_name(file.name[: -len(SUFFIX)] + name) for name in _BESIDE}
    features = _features(beside["-feats.npy"], count) if beside["-feats.npy"].exists() else None
    tasks = _tasks(beside["-class_map.json"], count) if beside["-class_map.json"].exists() else None
    if beside["-id_map.json"].exists():
        _check_rows(beside["-id_map.json"], count)
    arcs = ArcStream(read, count, undirected=not directed)
    return StreamedGraph(arcs, features, splits=splits, tasks=tasks, columns=_ignored(file, set(beside.values())))


def _ignored(file: Path, read: set[Path]) -> dict[str, dict[str, Any]]:
    """Return the ignored fields of the graph, its nodes and links, and the ignored files in its folder."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        names = {found[1] for found in _STRING.finditer(text) if found[2]}
    fields = {name.decode("utf-8", "replace") for name in names}
    others = [other.name for other in file.parent.glob(f"{escape(file.name[: -len(SUFFIX)])}-*")]
    read_names = {file.name, *(path.name for path in read)}
    return what_is_read(
        nodes={"split": ["val", "test"]},
        fields={"ignored": sorted(fields - _READ)},
        files={"ignored": sorted(name for name in others if name not in read_names)},
    )


def _check_rows(file: Path, count: int) -> None:
    """Raise InputError unless the id map, by which GraphSAGE finds a node's features, maps each id to itself."""
    rows = _json(file)
    if not isinstance(rows, dict) or len(rows) != count:
        raise InputError(f"{file}: expected an object with the rows of {count} nodes")
    bad = next((node for node in range(count) if rows.get(str(node)) != node), None)
    if bad is not None:
        raise InputError(
            f"{file}: node {bad} has row {rows.get(str(bad))} of the features: sort them, so that row v is node v"
        )


def _read_graph(file: Path) -> tuple[bool, pa.StructArray, pa.StructArray]:
    try:
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{file}: {size} bytes; JSON graphs of 2 GiB and more cannot be read")
        table = arrow_json.read_json(
            file,
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=_GRAPH, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{file}: no graph in JSON: {' '.join(str(error).split())}") from None
    if len(table) != 1 or any(table[name][0].as_py() is None for name in ("nodes", "links")):
        raise InputError(f"{file}: expected one JSON object with nodes and links")
    nodes, links = (table[name].combine_chunks().flatten() for name in ("nodes", "links"))
    if not len(nodes):
        raise InputError(f"{file}: has no nodes")
    return bool(table["directed"][0].as_py()), nodes, links


def _field(file: Path, values: pa.StructArray, name: str, what: str) -> np.ndarray:
    column = values.field(name)
    missing = values.null_count or column.null_count
    if missing:
        where = np.flatnonzero(np.asarray(values.is_null()) | np.asarray(column.is_null()))[0]
        raise InputError(f"{file}: {what} {where} (from 0) has no {name}")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _ends(file: Path, links: pa.StructArray, name: str, count: int) -> np.ndarray:
    ids = _field(file, links, name, "link")
    bad = np.flatnonzero((ids < 0) | (ids >= count))
    if bad.size:
        raise InputError(f"{file}: link {bad[0]} (from 0): {name} {ids[bad[0]]}; nodes are 0..{count - 1}")
    return ids


def _splits(file: Path, nodes: pa.StructArray) -> np.ndarray:
    ids, test, validation = (_field(file, nodes, name, "node") for name in ("id", "test", "val"))
    bad = np.flatnonzero(ids != np.arange(len(ids)))
    if bad.size:
        raise InputError(f"{file}: node {bad[0]} (from 0) has id {ids[bad[0]]}; expected 0, 1, ... in this order")
    both = np.flatnonzero(test & validation)
    if both.size:
        raise InputError(f"{file}: node {both[0]} is in the validation and the test split")
    return np.select([test, validation], [np.uint8(3), np.uint8(2)], np.uint8(1)).astype(np.uint8)


def _features(file: Path, count: int) -> FeatureStream:
    try:
        with file.open("rb") as opened:
            header, begin = read_header(opened, file.stat().st_size), opened.tell()
    except (*HEADER_ERRORS, OSError) as error:
        raise InputError(f"{file}: no array: {' '.join(str(error).split())}") from None
    shape, dtype = header.shape, header.dtype
    if len(shape) != 2 or shape[0] != count or not shape[1] or dtype.kind not in "fiu":
        raise InputError(f"{file}: {dtype} of shape {shape}; expected numbers [{count}, columns]")
    values = np.memmap(file, dtype, "r", begin, shape, "F" if header.fortran else "C")

    def read() -> Iterator[np.ndarray]:
        for lo in range(0, count, FEATURE_ROWS):
            yield finite_rows(values[lo : lo + FEATURE_ROWS], lo, file)

    return FeatureStream(read, shape[1])


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: not readable as JSON: {' '.join(str(error).split())}") from None


def _tasks(file: Path, count: int) -> np.ndarray:
    classes = _json(file)
    if not isinstance(classes, dict) or len(classes) != count:
        raise InputError(f"{file}: expected an object with the classes of {count} nodes")
    width = None
    for node in range(count):
        row = classes.get(str(node))
        width = len(row) if width is None and isinstance(row, list) else width
        if not isinstance(row, list) or not row or len(row) != width or any(value not in (0, 1) for value in row):
            raise InputError(f"{file}: node {node}: expected a list of {width or 'some'} numbers, each 0 or 1")
    return np.array([classes[str(node)] for node in range(count)], np.uint8)
