"""What the tests of text sources share: files in many disguises and streams read to their end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mgg.errors import InputError
from mgg.graph.sources import ArcStream, StreamedGraph, find_loader


def gz(data: bytes) -> bytes:
    """A gzip file without its time, so that it is the same in every process that collects the tests."""
    return gzip.compress(data, mtime=0)


PACK = {
    "": lambda data: data,
    ".gz": gz,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def zipped(path: Path, text: str) -> Path:
    """Write a gzip file and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def load(loader: str, path: Path) -> StreamedGraph:
    """What a loader makes of a path."""
    graph = find_loader(loader)(path)
    assert isinstance(graph, StreamedGraph)
    return graph


def arcs_of(stream: ArcStream) -> list[tuple]:
    """All arcs in order: source, target and, where there are any, weight and type."""
    found: list[tuple] = []
    for part in stream.read():
        columns = [part.sources, part.targets]
        columns += [values for values in (part.weights, part.types) if values is not None]
        assert (part.weights is not None) == stream.weighted
        assert (part.types is not None) == bool(stream.relations)
        found += zip(*(column.tolist() for column in columns), strict=True)
    return found


def features_of(graph: StreamedGraph) -> np.ndarray:
    """All feature rows."""
    assert graph.features is not None
    blocks = list(graph.features.read())
    assert all(block.dtype == np.float32 and block.shape[1] == graph.features.width for block in blocks)
    return np.concatenate(blocks)


def exhaust(loader: str, path: Path) -> None:
    """Load and read everything, which is when errors are raised."""
    graph = load(loader, path)
    arcs_of(graph.arcs)
    if graph.features is not None:
        features_of(graph)


def refused(loader: str, path: Path, message: str) -> None:
    """Reading raises InputError with this message, which is one line and names the file."""
    with pytest.raises(InputError, match=message) as caught:
        exhaust(loader, path)
    assert "\n" not in str(caught.value) and (path.is_dir() or str(path) in str(caught.value))
