"""OGB data sets that are one ``data.npz`` (ogbn-papers100M): members of tens of gigabytes, read in constant memory."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from mgg.errors import InputError
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.npz import Header, Npz
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, FeatureStream, StreamedGraph
from mgg.graph.sources.ogb.csv import MOST_NODES, classes, tasks

#: Numbers per block of features or labels.
BLOCK_NUMBERS = 2**22

_EDGES, _FEATURES, _LABEL = "edge_index", "node_feat", "node_label"


def load_binary(raw: Path) -> StreamedGraph:
    """Read the graph of ``data.npz`` and ``node-label.npz``, without a split.

    Raises:
        InputError: a member is missing, or its shape does not fit the counts.
    """
    file = raw / "data.npz"
    with Npz(file) as archive:
        nodes, arcs = (_count(archive, key) for key in ("num_nodes_list", "num_edges_list"))
        edges = archive.header(_EDGES)
        features = archive.header(_FEATURES) if _FEATURES in archive.keys else None
        left = sorted(archive.keys - {"num_nodes_list", "num_edges_list", _EDGES, _FEATURES})
    if edges.shape != (2, arcs) or edges.dtype.kind not in "iu":
        raise InputError(f"{file}: {_EDGES} is {edges.dtype} {edges.shape}, expected whole numbers (2, {arcs})")
    if not 1 <= nodes <= MOST_NODES:
        raise InputError(f"{file}: num_nodes_list: has {max(nodes, 0) or 'no'} nodes; expected 1..{MOST_NODES}")
    stream = ArcStream(partial(_arcs, file, edges, nodes), nodes)
    labels, multiple = _labels(raw / "node-label.npz", nodes) if (raw / "node-label.npz").is_file() else (None, None)
    columns = what_is_read(members={"ignored": left})
    return StreamedGraph(stream, _features(file, features, nodes), labels, tasks=multiple, columns=columns)


def _count(archive: Npz, key: str) -> int:
    found = archive.array(key).ravel()
    if len(found) != 1 or found.dtype.kind not in "iu":
        raise InputError(f"{archive.path}: {key} holds {len(found)} counts; expected that of one graph")
    return int(found[0])


def _arcs(file: Path, header: Header, nodes: int) -> Iterator[Arcs]:
    first = 0
    for sources, targets in _interleaved(file, header) if header.fortran else _rows(file, header):
        for name, ids in (("source", sources), ("target", targets)):
            bad = np.flatnonzero((ids < 0) | (ids >= nodes))
            if bad.size:
                raise InputError(
                    f"{file}: {_EDGES}: {name} of arc {first + bad[0]} is {ids[bad[0]]}, outside 0..{nodes - 1}"
                )
        first += len(sources)
        yield Arcs(targets, sources)


def _rows(file: Path, header: Header) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Read both rows of the member at once, with two readers.

    A compressed member cannot be read from the middle: the second reader unpacks and drops the first row, so the first
    row is unpacked twice. In return nothing is written to disk and memory stays constant.
    """
    arcs, size = header.shape[1], header.dtype.itemsize
    with _member(file, 2 * arcs * size) as first, _member(file, 2 * arcs * size) as second:
        second.seek(arcs * size, 1)
        for lo in range(0, arcs, CHUNK_ARCS):
            count = min(CHUNK_ARCS, arcs - lo)
            yield _numbers(first, count, header.dtype), _numbers(second, count, header.dtype)


def _interleaved(file: Path, header: Header) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Read both rows of a member that is stored column by column, that is pair by pair."""
    arcs, size = header.shape[1], header.dtype.itemsize
    with _member(file, 2 * arcs * size) as member:
        for lo in range(0, arcs, CHUNK_ARCS):
            pairs = _numbers(member, 2 * min(CHUNK_ARCS, arcs - lo), header.dtype)
            yield np.ascontiguousarray(pairs[::2]), np.ascontiguousarray(pairs[1::2])


@contextmanager
def _member(file: Path, size: int) -> Iterator[IO[bytes]]:
    """Open the edges' member after its header, at its last ``size`` bytes."""
    try:
        with zipfile.ZipFile(file) as archive:
            info = archive.getinfo(f"{_EDGES}.npy")
            with archive.open(info) as member:
                member.seek(info.file_size - size)
                yield member
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise InputError(f"{file}: {_EDGES}: {' '.join(str(error).split())}") from None


def _numbers(member: IO[bytes], count: int, dtype: np.dtype) -> np.ndarray:
    data = member.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise EOFError(f"ends {count * dtype.itemsize - len(data)} bytes too early")
    return np.frombuffer(data, dtype)


def _features(file: Path, header: Header | None, nodes: int) -> FeatureStream | None:
    if header is None:
        return None
    if len(header.shape) != 2 or header.shape[0] != nodes or header.shape[1] < 1 or header.dtype.kind not in "iuf":
        raise InputError(f"{file}: {_FEATURES} is {header.dtype} {header.shape}, expected {nodes} rows of numbers")
    width = header.shape[1]

    def read() -> Iterator[np.ndarray]:
        first = 0
        with Npz(file) as archive:
            for block in archive.blocks(_FEATURES, max(1, BLOCK_NUMBERS // width)):
                with np.errstate(over="ignore"):
                    narrow = block.astype(np.float32, copy=False)
                bad = np.argwhere(~np.isfinite(narrow))
                if bad.size:
                    row, column = (int(i) for i in bad[0])
                    raise InputError(
                        f"{file}: {_FEATURES}: feature {column} of node {first + row} is {block[row, column]}"
                    )
                first += len(block)
                yield narrow

    return FeatureStream(read, width)


def _labels(file: Path, nodes: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return labels int32 [nodes], or tasks uint8 [nodes, tasks] if there are several columns."""
    with Npz(file) as archive:
        header = archive.header(_LABEL)
        shape = header.shape if len(header.shape) == 2 else (*header.shape, 1)
        if len(shape) != 2 or shape[0] != nodes or shape[1] < 1 or header.dtype.kind not in "iuf":
            raise InputError(f"{file}: {_LABEL} is {header.dtype} {header.shape}, expected {nodes} rows of numbers")
        convert = classes if shape[1] == 1 else tasks
        found = np.empty(shape, np.int32 if shape[1] == 1 else np.uint8)
        at = 0
        for block in archive.blocks(_LABEL, max(1, BLOCK_NUMBERS // shape[1])):

            def error(row: int, problem: str, first: int = at) -> InputError:
                return InputError(f"{file}: {_LABEL}: node {first + row}: {problem}")

            found[at : at + len(block)] = convert(block.reshape(len(block), -1).astype(np.float64), error)
            at += len(block)
    return (found[:, 0], None) if shape[1] == 1 else (None, found)
