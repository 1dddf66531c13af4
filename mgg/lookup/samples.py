"""The data set of lookups: a folder with the table sizes and, for every sample, its row of each table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from mgg import hashed
from mgg.errors import InputError, MachineError
from mgg.files import Kind, replace_folder
from mgg.schema import Fixed, parsed

MANIFEST_FILE = "samples.yaml"
ROWS_FILE = "rows.npy"
KIND = Kind(MANIFEST_FILE, (ROWS_FILE,))
#: Most rows of all tables together: row numbers have 32 bits, with room for numbers by owner.
MOST_ROWS = 2**31 - 2**16
_MAKE = "mgg generate criteo-like or mgg criteo"
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SamplesManifest(Fixed):
    """The manifest of a folder of samples."""

    schema_version: Literal[1] = Field(default=1, description="version of docs/reference/format.md")
    name: str = Field(min_length=1, description="name of the data set")
    tables: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="rows of each table")
    samples: int = Field(ge=1, description="number of samples")
    rows: Sha256 = Field(description="sha256 of rows.npy: int32 [samples, tables], each sample's row of each table")
    source: dict[str, Any] = Field(description="where they come from")

    @property
    def origin(self) -> str:
        """Describe the origin of the samples."""
        if "generator" in self.source:
            return "{generator} at scale {scale}, seed {seed}, Zipf's law of exponent {exponent}".format(**self.source)
        part = "" if self.source["all_lines"] else f", the first {self.source['lines']} lines"
        return f"{self.source['file']}{part}, ids by {self.source['ids']}" + (
            " appearance" if self.source["ids"] == "first" else ""
        )

    @model_validator(mode="after")
    def _numbered(self) -> SamplesManifest:
        if sum(self.tables) > MOST_ROWS:
            raise ValueError(f"tables: {sum(self.tables)} rows together, more than {MOST_ROWS}")
        return self


@dataclass(frozen=True)
class Samples:
    """A data set that is read on demand.

    Attributes:
        manifest: the folder's manifest.
        digest: hash of the manifest.
        rows: each sample's row of each table, int32 [samples, tables].
    """

    manifest: SamplesManifest
    digest: str
    rows: np.ndarray

    def batch(self, number: int, size: int, pe: int, pes: int) -> np.ndarray:
        """Return PE ``pe``'s bags of batch ``number`` of ``size`` samples, int32 [bags, tables].

        Row numbers run through all tables, one table after the other. Batches are consecutive samples, and start over
        at the end.
        """
        first = number % self.batches(size) * size
        begin, end = (first + bag for bag in share(size, pe, pes))
        offsets = np.cumsum([0, *self.manifest.tables[:-1]])
        return (self.rows[begin:end] + offsets).astype(np.int32)

    def batches(self, size: int) -> int:
        """Return the number of different batches of ``size``.

        Raises:
            InputError: there are too few samples for one batch.
        """
        count = self.manifest.samples // size
        if not count:
            raise InputError(
                f"--batches {size}: {self.manifest.name} has {self.manifest.samples} samples: take smaller batches"
            )
        return count


def share(size: int, pe: int, pes: int) -> tuple[int, int]:
    """Return the range of PE ``pe``'s bags in a batch of ``size``: its first bag, and the next PE's first bag."""
    return size * pe // pes, size * (pe + 1) // pes


def write(
    out: Path, name: str, tables: Iterable[int] | None, parts: Iterable[np.ndarray], source: dict[str, Any]
) -> SamplesManifest:
    """Write the folder ``out``, or replace an existing one.

    Args:
        tables: rows of each table; None: ``source["tables"]`` holds them after the last of ``parts``.
        parts: int32 [samples, tables] each, in order.
        source: origin of the samples, for the manifest.

    Raises:
        InputError: there are no samples, or too many rows; or ``out`` is not such a folder.
        MachineError: the disk is full or fails.
    """
    with replace_folder(out, KIND) as folder:
        path = folder / ROWS_FILE
        samples, columns = 0, 0
        try:
            with path.open("wb") as file:
                for part in parts:
                    if not samples:
                        columns = part.shape[1]
                        _header(file, 1, columns)
                    file.write(np.ascontiguousarray(part, np.int32).data)
                    samples += len(part)
                file.seek(0)
                # NumPy pads the header so that the shape's first number can grow in place.
                _header(file, samples, columns)
        except OSError as error:
            raise MachineError(f"{out}: cannot be written: {error.strerror or error}") from None
        rows = list(source.pop("tables") if tables is None else tables)
        values = {"name": name, "tables": rows, "samples": samples, "rows": hashed.file_hash(path), "source": source}
        manifest = parsed(SamplesManifest, values, f"{out}: ")
        hashed.save(folder / MANIFEST_FILE, manifest.model_dump())
    return manifest


def _header(file: Any, samples: int, columns: int) -> None:
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(np.dtype(np.int32)), "fortran_order": False,
               "shape": (samples, columns)},
    )  # fmt: skip


def load(folder: Path, *, verify: bool) -> Samples:
    """Read a folder that :func:`write` made; ``verify``: check the hash of its content.

    Raises:
        InputError: the folder is not a data set, or was altered (names the file).
    """
    path = folder / MANIFEST_FILE
    values, digest = hashed.load(path, "samples", _MAKE)
    manifest, file = parsed(SamplesManifest, values, f"{path}: "), folder / ROWS_FILE
    try:
        if verify and hashed.file_hash(file) != manifest.rows:
            raise InputError(f"{file}: truncated or altered since it was written: run {_MAKE} again")
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: not readable ({getattr(error, 'strerror', None) or error})") from None
    if rows.shape != (manifest.samples, len(manifest.tables)) or rows.dtype != np.int32:
        raise InputError(f"{file}: holds {rows.dtype} {rows.shape}, not what {path.name} says: run {_MAKE} again")
    return Samples(manifest, digest, rows)
