"""The layout on disk: ``layout.yaml`` and a folder of ``.npy`` arrays per PE (docs/reference/format.md, Layout)."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike
from pydantic import Field, model_validator

from mgg import hashed
from mgg.errors import InputError, MggError
from mgg.files import Kind, write_text
from mgg.graph.csr import Csr
from mgg.layout.parts import PeLayout, Product
from mgg.schema import Closed, parsed

MANIFEST = "layout.yaml"
KIND = Kind(MANIFEST, ("pe-*",))
#: Elements of an array read at a time.
PIECE = 2**20
_LOADING = threading.Lock()


class Direction(Closed):
    """Counts of one direction, one entry per PE."""

    arcs: list[int] = Field(description="arcs of the PE's rows")
    remote_arcs: list[int] = Field(description="arcs whose column another PE owns")
    halo_rows: list[int] = Field(description="unique remote columns")


class LayoutFile(Closed):
    """One file of the layout."""

    bytes: int
    sha256: str


class LayoutManifest(Closed):
    """Facts about the graph, the partition and the files."""

    schema_version: Literal[4] = 4
    name: str
    graph_hash: str
    nodes: int = Field(ge=0)
    arcs: int = Field(ge=0)
    symmetric: bool
    weighted: bool
    features: int = Field(ge=0, description="feature columns, 0 = none")
    classes: int = Field(ge=0, description="label classes, 0 = none")
    tasks: int = Field(0, ge=0, description="yes-or-no labels a node, 0 = none")
    relations: int = Field(0, ge=0, description="arc types, 0 = none")
    splits: bool = Field(description="nodes have a split")
    ids: bool = Field(description="nodes have ids of their source")
    permuted: bool = Field(description="positions differ from the graph's nodes, which are stored")
    pes: int = Field(ge=1)
    scheme: str
    workgroup: int = Field(ge=1)
    bounds: list[int]
    forward: Direction
    transpose: Direction
    files: dict[str, LayoutFile] = Field(default_factory=dict, description="every array file, relative to the layout")

    @model_validator(mode="after")
    def _consistent(self) -> LayoutManifest:
        bounds = self.bounds
        if len(bounds) != self.pes + 1 or bounds[0] != 0 or bounds[-1] != self.nodes or bounds != sorted(bounds):
            raise ValueError(f"bounds: they do not cut {self.nodes} nodes into {self.pes} ranges")
        for direction in (self.forward, self.transpose):
            counts = (direction.arcs, direction.remote_arcs, direction.halo_rows)
            if any(len(each) != self.pes for each in counts) or sum(direction.arcs) != self.arcs:
                raise ValueError(f"counts of arcs and halo rows do not fit {self.pes} PEs and {self.arcs} arcs")
        return self

    def digest(self) -> str:
        """Return the SHA-256 of these facts, which include the hash of every array file; it identifies the layout."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def direction(self, name: str) -> Direction:
        """Return the counts of ``forward`` or ``transpose``."""
        return self.forward if name == "forward" else self.transpose


def pe_folder(pe: int) -> str:
    """Return the name of a PE's folder."""
    return f"pe-{pe:04d}"


class Growing:
    """An array [rows, ...] on disk that grows at its end; ``end`` writes the number of rows into its header.

    Attributes:
        path: the file.
        rows: number of rows so far.
    """

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...] = ()) -> None:
        self.path, self.rows = path, 0
        self._dtype, self._row = np.dtype(dtype), row
        self._begin = self._write_header("wb")

    def add(self, rows: np.ndarray) -> None:
        """Append rows."""
        with self.path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, self._dtype).data)
        self.rows += len(rows)

    def end(self) -> None:
        """Complete the array: write its final header."""
        # NumPy pads the header, so that any number of rows fits in.
        assert self._write_header("r+b") == self._begin

    def pieces(self, first: int, last: int) -> Iterator[np.ndarray]:
        """Yield elements first..last-1 of a vector in pieces."""
        for lo in range(first, last, PIECE):
            offset, count = self._begin + lo * self._dtype.itemsize, min(PIECE, last - lo)
            yield np.fromfile(self.path, self._dtype, count, offset=offset)

    def change(self, change: Callable[[np.ndarray], None]) -> None:
        """Apply ``change`` in place to the values of a vector, piece by piece."""
        with self.path.open("r+b") as file:
            for number, values in enumerate(self.pieces(0, self.rows)):
                change(values)
                file.seek(self._begin + number * PIECE * self._dtype.itemsize)
                file.write(values.data)

    def _write_header(self, mode: str) -> int:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.rows, *self._row)}
        with self.path.open(mode) as file:
            np.lib.format.write_array_header_1_0(file, header)
            return file.tell()


def save(path: Path, array: np.ndarray) -> None:
    """Write an array from memory."""
    made = Growing(path, array.dtype, array.shape[1:])
    made.add(array)
    made.end()


def describe_files(folder: Path, workers: int) -> dict[str, LayoutFile]:
    """Return size and hash of every array under ``folder``, reading ``workers`` files at once."""
    found = sorted(folder.glob("pe-*/*.npy"))
    with ThreadPoolExecutor(workers) as pool:
        return {
            path.relative_to(folder).as_posix(): made for path, made in zip(found, pool.map(_shard, found), strict=True)
        }


def _shard(path: Path) -> LayoutFile:
    with path.open("rb") as file:
        return LayoutFile(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def write_manifest(folder: Path, manifest: LayoutManifest) -> None:
    """Write the manifest, with its own hash, into a new layout."""
    hashed.save(folder / MANIFEST, manifest.model_dump())


def read_manifest(folder: str | Path) -> LayoutManifest:
    """Read a layout's manifest; raise InputError, which names the file and the field."""
    path = Path(folder) / MANIFEST
    values, _ = hashed.load(path, "layout", "mgg layout")
    return parsed(LayoutManifest, values, f"{path}: ", ": run mgg layout again")


def load(folder: str | Path, rank: int, manifest: LayoutManifest | None = None) -> PeLayout:
    """Check the hashes of PE ``rank``'s arrays and map them into memory.

    Args:
        folder: the layout.
        rank: the PE.
        manifest: the result of ``read_manifest``. Pass it if one process loads many PEs: it lists the files of all PEs
            and takes time to read.

    Raises:
        InputError: a file is missing, truncated or altered, or its shape is not the manifest's (names the file).
    """
    folder = Path(folder)
    manifest = manifest or read_manifest(folder)
    if rank >= manifest.pes:
        raise InputError(f"{folder}: a layout for {manifest.pes} PEs has no PE {rank}")
    array = partial(_array, folder, manifest, pe_folder(rank))
    rows = manifest.bounds[rank + 1] - manifest.bounds[rank]
    return PeLayout(
        manifest=manifest,
        rank=rank,
        forward=_product(array, manifest, "forward", rows, rank),
        transpose=_product(array, manifest, "transpose", rows, rank),
        features=array("features", (rows, manifest.features)) if manifest.features else None,
        labels=array("labels", (rows,)) if manifest.classes else None,
        tasks=array("tasks", (rows, manifest.tasks)) if manifest.tasks else None,
        splits=array("splits", (rows,)) if manifest.splits else None,
        graph_nodes=array("nodes", (rows,)) if manifest.permuted else None,
        ids=array("ids", (rows,)) if manifest.ids else None,
        folder=folder / pe_folder(rank),
    )


def marked(folder: Path | None, worked_out: Callable[..., np.ndarray], *given: np.ndarray, count: int) -> np.ndarray:
    """Return ``worked_out(*given, count)``, bool [count], from a cache in the ``folder`` of a PE.

    A hash of the function's name and inputs names the file. A damaged file is replaced; if the file cannot be written,
    the next call computes the result again. Without a ``folder`` there is no cache.
    """
    if folder is None:
        return worked_out(*given, count)
    digest = hashlib.sha256(f"{worked_out.__name__} {count}".encode())
    for array in given:
        digest.update(f"{array.dtype.str} {len(array)}".encode() + np.ascontiguousarray(array).tobytes())
    path = folder / f"{worked_out.__name__}-{digest.hexdigest()[:24]}.json"
    with suppress(OSError, UnicodeDecodeError, InputError):
        kept = hashed.unsealed(path.read_text(encoding="utf-8"), str(path), "")
        return np.unpackbits(np.frombuffer(base64.b64decode(kept["bits"]), np.uint8), count=count).astype(bool)
    found = worked_out(*given, count)
    with suppress(OSError, MggError):
        bits = base64.b64encode(np.packbits(found).tobytes()).decode()
        write_text(path, json.dumps(hashed.sealed({"bits": bits})) + "\n")
    return found


def _array(folder: Path, manifest: LayoutManifest, pe: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Map and return the array ``name``; raise InputError if it is damaged or does not have this ``shape``."""
    key = f"{pe}/{name}.npy"
    path, expected = folder / key, manifest.files.get(key)
    if expected is None:
        raise InputError(f"{folder / MANIFEST}: field files: {key} is missing: run mgg layout again")
    try:
        if _shard(path) != expected:
            raise InputError(f"{path}: truncated or altered since it was written: run mgg layout again")
        # NumPy parses the header with Python's parser, which other PEs' threads can disturb (CPython 3.11).
        with _LOADING:
            # Threads that work at once on np.memmap, a subclass, may fail: numba looks up its type in shared tables.
            array = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable ({error}): run mgg layout again") from None
    if array.shape != shape:
        raise InputError(f"{path}: has shape {array.shape}, expected {shape}: run mgg layout again")
    return array


def _product(
    array: Callable[..., np.ndarray], manifest: LayoutManifest, direction: str, rows: int, rank: int
) -> Product:
    counts = manifest.direction(direction)
    all_arcs, remote, halo = counts.arcs[rank], counts.remote_arcs[rank], counts.halo_rows[rank]
    csrs = {
        part: Csr(
            array(f"{direction}.{part}.indptr", (rows + 1,)),
            array(f"{direction}.{part}.indices", (arcs,)),
            array(f"{direction}.{part}.weights", (arcs,)) if manifest.weighted else None,
            width,
            array(f"{direction}.{part}.types", (arcs,)) if manifest.relations else None,
        )
        for part, arcs, width in (("local", all_arcs - remote, rows), ("remote", remote, halo))
    }
    send_ptr = array(f"{direction}.send_ptr", (manifest.pes + 1,))
    return Product(
        local=csrs["local"],
        remote=csrs["remote"],
        halo_ptr=array(f"{direction}.halo_ptr", (manifest.pes + 1,)),
        halo_rows=array(f"{direction}.halo_rows", (halo,)),
        send_ptr=send_ptr,
        send_rows=array(f"{direction}.send_rows", (int(send_ptr[-1]),)),
        send_first=array(f"{direction}.send_first", (manifest.pes,)),
    )
