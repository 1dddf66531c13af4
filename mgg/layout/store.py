"""The layout on disk: ``manifest.yaml`` and a folder of ``.npy`` arrays for each PE (docs/format.md, Layout)."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import fields
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.layout.parts import PeLayout, Product

MANIFEST = "manifest.yaml"
_ARRAYS = [field.name for field in fields(Product) if field.name not in ("local", "remote")]
_LOADING = threading.Lock()
_NODE_DATA = ("features", "labels", "splits")


class Direction(BaseModel):
    """Counts of one direction, one entry a PE."""

    model_config = ConfigDict(extra="forbid")

    arcs: list[int] = Field(description="arcs of the PE's rows")
    remote_arcs: list[int] = Field(description="arcs whose column another PE owns")
    halo_rows: list[int] = Field(description="unique remote columns")


class Shard(BaseModel):
    """One file of the layout."""

    model_config = ConfigDict(extra="forbid")

    bytes: int
    sha256: str


class LayoutManifest(BaseModel):
    """Facts about the graph, the partition and the files."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    graph_hash: str
    nodes: int = Field(ge=0)
    arcs: int = Field(ge=0)
    symmetric: bool
    weighted: bool
    features: int = Field(ge=0, description="feature columns, 0 = none")
    classes: int = Field(ge=0, description="label classes, 0 = none")
    pes: int = Field(ge=1)
    scheme: str
    workgroup: int = Field(ge=1)
    bounds: list[int]
    forward: Direction
    transpose: Direction
    files: dict[str, Shard] = Field(default_factory=dict, description="every array file, relative to the layout")

    def direction(self, name: str) -> Direction:
        """Counts of ``forward`` or ``transpose``."""
        return self.forward if name == "forward" else self.transpose


def pe_folder(pe: int) -> str:
    """Name of the folder of one PE."""
    return f"pe-{pe:04d}"


def save_product(folder: Path, direction: str, product: Product) -> None:
    """Write one PE's product into the PE's folder."""
    for part in ("local", "remote"):
        csr: Csr = getattr(product, part)
        for name, array in (("indptr", csr.indptr), ("indices", csr.indices), ("weights", csr.weights)):
            _save(folder / f"{direction}.{part}.{name}.npy", array)
    for name in _ARRAYS:
        _save(folder / f"{direction}.{name}.npy", getattr(product, name))


def save_node_data(folder: Path, **arrays: np.ndarray | None) -> None:
    """Write features, labels and splits of one PE's rows; None writes nothing."""
    for name in _NODE_DATA:
        _save(folder / f"{name}.npy", arrays[name])


def _save(path: Path, array: np.ndarray | None) -> None:
    if array is not None:
        np.save(path, np.ascontiguousarray(array), allow_pickle=False)


def describe_files(folder: Path) -> dict[str, Shard]:
    """Size and hash of every array under ``folder``."""
    found = sorted(folder.glob("pe-*/*.npy"))
    return {path.relative_to(folder).as_posix(): _shard(path) for path in found}


def _shard(path: Path) -> Shard:
    with path.open("rb") as file:
        return Shard(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def read_manifest(folder: str | Path) -> LayoutManifest:
    """Read a layout's manifest; raises InputError that names it."""
    path = Path(folder) / MANIFEST
    try:
        manifest = LayoutManifest.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file: not a layout folder (make one with mgg layout)") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not a layout's manifest ({reason}): run mgg layout again") from None
    if len(manifest.bounds) != manifest.pes + 1:
        raise InputError(f"{path}: field bounds: {len(manifest.bounds)} entries for {manifest.pes} PEs")
    return manifest


def load(folder: str | Path, rank: int) -> PeLayout:
    """Map the arrays of PE ``rank`` into memory, after checking the hash of each.

    Raises:
        InputError: names the file that is missing, truncated or altered.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if rank >= manifest.pes:
        raise InputError(f"{folder}: a layout for {manifest.pes} PEs has no PE {rank}")
    arrays = _Arrays(folder, manifest, pe_folder(rank))
    return PeLayout(
        manifest=manifest,
        rank=rank,
        forward=_product(arrays, "forward", manifest.bounds[rank + 1] - manifest.bounds[rank]),
        transpose=_product(arrays, "transpose", manifest.bounds[rank + 1] - manifest.bounds[rank]),
        features=arrays.get("features"),
        labels=arrays.get("labels"),
        splits=arrays.get("splits"),
    )


class _Arrays:
    """The verified arrays of one PE's folder."""

    def __init__(self, folder: Path, manifest: LayoutManifest, pe: str):
        self.folder, self.manifest, self.pe = folder, manifest, pe

    def get(self, name: str) -> np.ndarray | None:
        """The array ``name``, mapped; None when the layout does not list it."""
        key = f"{self.pe}/{name}.npy"
        expected = self.manifest.files.get(key)
        if expected is None:
            return None
        path = self.folder / key
        try:
            if _shard(path) != expected:
                raise InputError(f"{path}: truncated or altered since it was written: run mgg layout again")
            # NumPy parses the header with Python's parser, which other PEs' threads can disturb (CPython 3.11).
            with _LOADING:
                return np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not readable ({error}): run mgg layout again") from None

    def __getitem__(self, name: str) -> np.ndarray:
        array = self.get(name)
        if array is None:
            path = self.folder / MANIFEST
            raise InputError(f"{path}: field files: {self.pe}/{name}.npy is missing: run mgg layout again")
        return array


def _product(arrays: _Arrays, direction: str, rows: int) -> Product:
    halo_rows = arrays[f"{direction}.halo_rows"]
    csrs = {
        part: Csr(
            arrays[f"{direction}.{part}.indptr"],
            arrays[f"{direction}.{part}.indices"],
            arrays.get(f"{direction}.{part}.weights"),
            width,
        )
        for part, width in (("local", rows), ("remote", len(halo_rows)))
    }
    return Product(**csrs, **{name: arrays.get(f"{direction}.{name}") for name in _ARRAYS})  # type: ignore[arg-type]
