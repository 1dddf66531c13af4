"""Stage retrieve: the raw files of a data set, each checked against its sha256."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pooch
import yaml

from mgg.errors import InputError, MachineError
from mgg.files import Kind, refuse_foreign, replace_folder, write_file
from mgg.graph.datasets import Dataset, RawFile, find

SOURCE_FILE = "source.yaml"
MIRROR_VARIABLE = "MGG_DATA_DIR"
RETRIES = 3


def retrieve(name: str, out: str | Path, *, cache: Path | None = None) -> None:
    """Fill the folder ``out`` with the raw files of the data set ``name`` and a ``source.yaml`` that describes them.

    A file bundled with an installed package is copied from there. Others come from the mirror
    ``$MGG_DATA_DIR`` (its folder for the data set, or the mirror itself), else the cache (``cache``, by default
    ``$XDG_CACHE_HOME/mgg`` or ``~/.cache/mgg``), else the network, which fills the cache.

    Raises:
        InputError: unknown data set, a file that does not match its sha256, or an ``out`` that cannot be replaced.
        MachineError: no mirror has the file and it cannot be downloaded.
    """
    dataset = find(name)
    kind = Kind(SOURCE_FILE, tuple(dataset.files))
    refuse_foreign(Path(out), kind)
    files = {file: _content(name, dataset, file, raw, cache) for file, raw in dataset.files.items()}
    with replace_folder(out, kind) as folder:
        for file, data in files.items():
            write_file(folder / file, data)
        source = {"name": name, "loader": dataset.loader, "licence": dataset.licence}
        hashes = {file: raw.sha256 for file, raw in dataset.files.items()}
        write_file(folder / SOURCE_FILE, yaml.safe_dump({**source, "files": hashes}, sort_keys=False).encode())


def check_sha256(path: Path, expected: str) -> bytes:
    """The bytes of ``path``; InputError if it cannot be read or its sha256 is not ``expected``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != expected:
        raise InputError(f"{path}: truncated or altered: its sha256 is not {expected}")
    return data


def _content(name: str, dataset: Dataset, file: str, raw: RawFile, cache: Path | None) -> bytes:
    if raw.package is not None:
        return check_sha256(Path(str(resources.files(raw.package))) / file, raw.sha256)
    for path in _mirrored(dataset, file):
        if path.is_file():
            return check_sha256(path, raw.sha256)
    return check_sha256(_download(file, raw, (cache or _default_cache()) / name), raw.sha256)


def _mirrored(dataset: Dataset, file: str) -> Iterator[Path]:
    mirror = os.environ.get(MIRROR_VARIABLE)
    if not mirror:
        return
    if not Path(mirror).is_dir():
        raise InputError(f"{MIRROR_VARIABLE}={mirror}: no such folder; correct or unset it")
    if dataset.mirror:
        yield Path(mirror) / dataset.mirror / file
    yield Path(mirror) / file


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mgg"


def _download(file: str, raw: RawFile, folder: Path) -> Path:
    """Path of the file in the cache, which keeps a file with the right hash and replaces any other."""
    pooch.get_logger().setLevel(logging.WARNING)
    source = pooch.create(
        path=folder,
        base_url="",
        registry={file: f"sha256:{raw.sha256}"},
        urls={file: raw.url},
        retry_if_failed=RETRIES,
    )
    try:
        return Path(source.fetch(file, downloader=pooch.HTTPDownloader(progressbar=False, timeout=30)))
    except ValueError:
        raise InputError(f"{raw.url}: the file there does not have sha256 {raw.sha256}") from None
    except OSError as error:  # those of HTTP and of the connection too: they have pages of text but no strerror
        reason = error.strerror or type(error).__name__
        raise MachineError(
            f"{raw.url}: cannot be downloaded ({reason}); put {file} into a folder and set {MIRROR_VARIABLE} to it"
        ) from None
