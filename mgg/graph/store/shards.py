"""Reads and writes one Parquet part of a graph folder: fixed options for writing, a hash check for reading.

docs/reference/format.md specifies the files.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mgg.errors import InputError
from mgg.files import write_file
from mgg.graph.io.arrow import to_arrow, to_numpy
from mgg.graph.manifest import ARC_KINDS, Shard

Kind = Literal["offsets", "adjacency", "weights", "arc_types", "features", "labels", "tasks", "splits", "ids"]

#: Vertices per part of offsets, labels, splits and ids.
VERTICES_PER_PART = 2**18
#: Arcs per part of adjacency, weights and arc_types: as many whole rows as fit, but at least one. A part never crosses
#: a multiple of VERTICES_PER_PART, so parts can be cut from there on without knowing the arcs before.
ARCS_PER_PART = 2**22
#: Bytes per part of features or tasks before compression (and never more than VERTICES_PER_PART rows).
FEATURE_BYTES_PER_PART = 2**26

#: Kind -> name of its only column.
COLUMNS: dict[Kind, str] = {
    "offsets": "offset",
    "adjacency": "neighbor",
    "weights": "weight",
    "arc_types": "type",
    "features": "features",
    "labels": "label",
    "tasks": "tasks",
    "splits": "split",
    "ids": "id",
}
#: Kind -> dtype of its numbers; the adjacency has the manifest's index_dtype.
DTYPES: dict[Kind, str] = {
    "offsets": "int64",
    "weights": "float32",
    "arc_types": "int32",
    "features": "float32",
    "labels": "int32",
    "tasks": "uint8",
    "splits": "uint8",
    "ids": "int64",
}
#: Kinds whose values are rows of fixed width.
_ROWS = ("features", "tasks")
#: Fixed, so that the same numbers give the same bytes; no Arrow schema, which readers in other languages lack.
_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
}


def part_name(kind: Kind, number: int) -> str:
    """Return the path of a part, relative to the graph folder."""
    return f"{kind}/part-{number:05d}.parquet"


def write_part(
    folder: Path, kind: Kind, number: int, values: np.ndarray, *, first: int, rows: int
) -> tuple[str, Shard]:
    """Write one part and return its name and manifest entry.

    Args:
        folder: the new graph folder.
        kind: which of the graph's arrays.
        number: the part's number within its kind.
        values: the part's numbers: [rows + 1] offsets, [arcs] neighbors, weights or types, [rows, width] features
            or tasks, [rows] labels, splits or ids.
        first: first vertex of the part.
        rows: number of vertices of the part.
    """
    column, metadata = _column(kind, values)
    table = pa.table([column], schema=pa.schema([pa.field(COLUMNS[kind], column.type, nullable=False)]))
    sink = io.BytesIO()
    # Ascending offsets compress well as differences; the other numbers do not.
    encoding = {COLUMNS[kind]: "DELTA_BINARY_PACKED" if kind == "offsets" else "PLAIN"}
    with pq.ParquetWriter(sink, table.schema, **_OPTIONS, column_encoding=encoding) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(metadata)
    data = sink.getbuffer()
    name = part_name(kind, number)
    write_file(folder / name, data)
    arcs = len(values) if kind in ARC_KINDS else None
    return name, Shard(first=first, rows=rows, arcs=arcs, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def read_part(path: Path, kind: Kind, shard: Shard, dtype: str, width: int = 0, *, verify: bool = True) -> np.ndarray:
    """Read the numbers of one part, in the shape that :func:`write_part` takes.

    Args:
        path: the file.
        kind: which of the graph's arrays.
        shard: the part's manifest entry.
        dtype: dtype of the numbers.
        width: number of columns of features or tasks.
        verify: compare the file's hash with the manifest's.

    Raises:
        InputError: the file is missing, unreadable, or differs from its manifest entry.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; make the graph again") from None
    if len(data) != shard.bytes:
        raise InputError(f"{path}: truncated or altered: {len(data)} bytes, {shard.bytes} in the manifest")
    if verify and hashlib.sha256(data).hexdigest() != shard.sha256:
        raise InputError(f"{path}: altered: its sha256 is not the manifest's; make the graph again")
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            values = _values(file.read(use_threads=False), file.metadata.metadata or {}, kind, dtype, width)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a part of {kind}: {' '.join(str(error).split())}") from None
    expected = shard.arcs if shard.arcs is not None else shard.rows + (kind == "offsets")
    if len(values) != expected:
        raise InputError(f"{path}: holds {len(values)} values, the manifest says {expected}")
    return values


def _column(kind: Kind, values: np.ndarray) -> tuple[pa.Array, dict[str, str]]:
    """Return the part's column and the file's key-value metadata."""
    if kind not in _ROWS:
        return to_arrow(values), {}
    rows, width = values.shape
    block = np.ascontiguousarray(values, dtype=DTYPES[kind])
    size = block.itemsize * width
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, [None, pa.py_buffer(block)])
    return column, {"mgg.dtype": DTYPES[kind], "mgg.width": str(width)}


def _values(table: pa.Table, metadata: dict[bytes, bytes], kind: Kind, dtype: str, width: int) -> np.ndarray:
    if table.column_names != [COLUMNS[kind]] or table.column(0).null_count:
        raise ValueError(f"expected the one column {COLUMNS[kind]!r} without nulls, found {table.column_names}")
    column = table.column(0).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if kind not in _ROWS:
        if column.type != pa.from_numpy_dtype(dtype):
            raise ValueError(f"expected {dtype}, found {column.type}")
        return to_numpy(column)
    found = (metadata.get(b"mgg.dtype"), metadata.get(b"mgg.width"), column.type)
    size = np.dtype(dtype).itemsize * width
    if found != (dtype.encode(), str(width).encode(), pa.binary(size)):
        raise ValueError(f"expected {dtype} rows of width {width}, found {found}")
    block = np.frombuffer(column.buffers()[1], dtype, count=len(column) * width, offset=column.offset * size)
    return block.reshape(len(column), width)
