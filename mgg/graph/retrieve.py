"""Stage retrieve: get and verify the raw files of a data set, and unpack archives."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from mgg.errors import InputError, MachineError
from mgg.files import Kind, cache_folder, check_output, replace_folder
from mgg.graph.datasets import Dataset, RawFile, find
from mgg.graph.io.archive import unpack
from mgg.graph.source_description import (
    SOURCE_FILE,
    Described,
    check_files,
    check_sha256,
    describe,
    description,
    expect_sha256,
)

_log = logging.getLogger(__name__)
MIRROR_VARIABLE = "MGG_DATA_DIR"
CHUNK = 2**20


def retrieve(name: str, out: str | Path, *, cache: Path | None = None) -> None:
    """Fill the folder ``out`` with the raw files of the data set ``name`` and a ``source.yaml`` that describes them.

    A file bundled with an installed package is copied from there. Others come from the mirror
    ``$MGG_DATA_DIR`` (its folder for the data set, or the mirror itself), else the cache (``cache``, by default
    ``$XDG_CACHE_HOME/mgg`` or ``~/.cache/mgg``), else the network, which fills the cache. Archives are unpacked.
    Files are copied, not linked, so that edits in ``out`` never alter the cache or the mirror. No file is in memory as
    a whole. If ``out`` already has the unaltered files and one of them would come from the cache or the network, which
    may be unavailable, ``out`` stays as it is; otherwise the files are copied again.

    Raises:
        InputError: the data set is unknown, a file does not match its sha256 or size, an archive is unsafe, or ``out``
            cannot be replaced.
        MachineError: no mirror has the file and it cannot be downloaded, or a disk is full.
    """
    dataset = find(name)
    kind = _kind(Path(out), dataset)
    check_output(out, kind)
    local = {file: _local(dataset, file, raw) for file, raw in dataset.files.items()}
    if None in local.values() and _whole(Path(out), name, dataset):
        _log.warning("%s: has the files of %s already, as they were retrieved; nothing was retrieved", out, name)
        return
    found = [local[file] or _fetched(name, file, raw, cache) for file, raw in dataset.files.items()]
    hashes: dict[str, str] = {}
    with replace_folder(out, kind) as folder:
        for file, (path, raw) in (item for origin in found for item in origin.items()):
            hashes |= _place(path, file, raw, folder)
        describe(folder, Described(name=name, loader=dataset.loader, licence=dataset.licence, files=hashes))


def _kind(out: Path, dataset: Dataset) -> Kind:
    """Return the kind of a replaceable raw folder: it has the files of its own description, or of the data set."""
    try:
        listed = list(yaml.safe_load((out / SOURCE_FILE).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        listed = list(dataset.files)
    return Kind(SOURCE_FILE, tuple({glob.escape(str(file).partition("/")[0]) for file in listed}))


def _whole(out: Path, name: str, dataset: Dataset) -> bool:
    """Return whether ``out`` has exactly the files of the catalogue's data set, all unaltered.

    The catalogue knows at most the names of an archive's members, so a changed archive in it goes unnoticed.
    """
    try:
        made = description(out)
        if (made.name, made.loader, made.licence) != (name, dataset.loader, dataset.licence):
            return False
        present = {path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()}
        if present != {SOURCE_FILE, *made.files}:
            return False
        if not all(_as_stated(out, made.files, file, raw) for file, raw in dataset.files.items()):
            return False
        check_files(out, made)
    except InputError:
        return False
    return True


def _as_stated(out: Path, hashes: dict[str, str], file: str, raw: RawFile) -> bool:
    """Return whether files with these hashes can be the file in the catalogue or, for an archive, its members."""
    if raw.stand_in and raw.stand_in.items() <= hashes.items():
        return True
    if raw.unpack:
        return set((raw.members or {}).values()) <= set(hashes)
    if raw.sha256 is not None:
        return hashes.get(file) == raw.sha256
    return file in hashes and raw.bytes in (None, (out / file).stat().st_size)


#: The paths of a file on this machine, or of its stand-ins, by name.
_Place = dict[str, tuple[Path, RawFile]]


def _local(dataset: Dataset, file: str, raw: RawFile) -> _Place | None:
    """Return a file's place on this machine outside the cache, or None."""
    if raw.package is not None:
        return {file: (Path(str(resources.files(raw.package))) / file, raw)}
    for folder in _mirrors(dataset):
        if (folder / file).is_file():
            return {file: (folder / file, raw)}
        if raw.stand_in and all((folder / other).is_file() for other in raw.stand_in):
            others = {other: RawFile(url=raw.url, sha256=sha256) for other, sha256 in raw.stand_in.items()}
            return {other: (folder / other, described) for other, described in others.items()}
    if raw.url is not None and raw.url.startswith("file://"):
        return {file: (Path(unquote(urlsplit(raw.url).path)), raw)}
    return None


def _fetched(name: str, file: str, raw: RawFile, cache: Path | None) -> _Place:
    """Return a file's place in the cache; downloads it if needed."""
    assert raw.url is not None  # a file that is in no package has a URL
    path = (cache or cache_folder()) / name / file
    # Its HTTP and display libraries take 20 MB, so it is imported only for a download.
    from mgg.graph.io.download import fetch

    try:
        fetch(raw.url, path, sha256=raw.sha256, size=raw.bytes)
    except MachineError as error:
        advice = f"or put {Path(file).name} into a folder and set {MIRROR_VARIABLE} to it"
        raise MachineError(f"{error}; {advice}") from None
    return {file: (path, raw)}


def _mirrors(dataset: Dataset) -> list[Path]:
    mirror = os.environ.get(MIRROR_VARIABLE)
    if not mirror:
        return []
    if not Path(mirror).is_dir():
        raise InputError(f"{MIRROR_VARIABLE}={mirror}: no such folder; correct or unset it")
    return [Path(mirror) / dataset.mirror, Path(mirror)] if dataset.mirror else [Path(mirror)]


def _place(path: Path, file: str, raw: RawFile, folder: Path) -> dict[str, str]:
    """Copy or unpack one published file into ``folder``; return the sha256 of each new file by its name there."""
    if not raw.unpack:
        hashes = {file: _copy(path, folder / file)}
        if raw.sha256 is not None:
            expect_sha256(path, hashes[file], raw.sha256)
    elif raw.sha256 is not None:
        check_sha256(path, raw.sha256)
    if raw.bytes is not None and path.stat().st_size != raw.bytes:
        raise InputError(f"{path}: truncated or altered: it has {path.stat().st_size} bytes, not {raw.bytes}")
    if raw.unpack:
        hashes = _unpack(path, raw, folder)
    if SOURCE_FILE in hashes:
        raise InputError(f"{path}: {SOURCE_FILE}: no data set may have a file of this name")
    return hashes


def _unpack(path: Path, raw: RawFile, folder: Path) -> dict[str, str]:
    try:
        return unpack(path, folder, None if raw.unpack is True else raw.unpack, raw.members)
    except InputError as error:
        if raw.sha256 is not None:  # then this verifies the published file
            raise
        raise InputError(f"{error}; remove it to have it downloaded again") from None


def _copy(path: Path, target: Path) -> str:
    """Copy a file and return its sha256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        source = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    with source, target.open("wb") as file:
        while block := source.read(CHUNK):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()
