"""``source.yaml``: the description that ``mgg retrieve`` writes into a raw folder, and the check of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mgg import hashed
from mgg.errors import InputError
from mgg.graph.datasets import FileName
from mgg.graph.manifest import Sha256
from mgg.schema import Closed, parsed

SOURCE_FILE = "source.yaml"


class Described(Closed):
    """The contents of ``source.yaml``; ``files`` are all other files of the folder."""

    name: str
    loader: str
    licence: str
    files: dict[FileName, Sha256]


def description(folder: Path) -> Described:
    """Read ``source.yaml`` of a folder; raises InputError that names the file and the error."""
    path = folder / SOURCE_FILE
    values, _ = hashed.load(path, "raw data", "mgg retrieve")
    return parsed(Described, values, f"{path}: ", "; run mgg retrieve again")


def describe(folder: Path, described: Described) -> None:
    """Write ``source.yaml``."""
    hashed.save(folder / SOURCE_FILE, described.model_dump())


def check_files(folder: Path, described: Described) -> None:
    """Raise InputError for the first file that is missing or altered."""
    for file, sha256 in described.files.items():
        check_sha256(folder / file, sha256)


def check_sha256(path: Path, expected: str) -> None:
    """Read ``path``; InputError if it cannot be read or its sha256 is not ``expected``."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    expect_sha256(path, found, expected)


def expect_sha256(path: Path, found: str, expected: str) -> None:
    """Raise InputError unless the sha256 ``found`` for ``path`` is the expected one."""
    if found != expected:
        raise InputError(f"{path}: truncated or altered: its sha256 is not {expected}")
