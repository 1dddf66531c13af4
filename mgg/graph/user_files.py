"""The user's own files: the allowed names of their graphs, their paths and the hashes of their contents."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mgg.config import NAME
from mgg.errors import InputError
from mgg.graph.datasets import catalog
from mgg.graph.generators import generators
from mgg.graph.manifest import MANIFEST_FILE, Manifest, load
from mgg.graph.source_description import SOURCE_FILE
from mgg.graph.sources import loader_of, loaders


def check_name(name: str) -> None:
    """Raise InputError unless a graph of the user's own files may have ``name``.

    It must be a valid name, and no data set's or generator's, whose graphs it would be confused with.
    """
    if not re.fullmatch(NAME, name):
        raise InputError(
            f"name {name[:40]!r}: only letters, digits, '_', '.' and '-', the first one a letter or a digit"
        )
    if name in generators() or name in catalog():
        kind = "a generator" if name in generators() else "a real data set"
        raise InputError(f"name {name!r}: is that of {kind}; choose one that says what the graph stands for")


def path_of(source: str) -> Path:
    """Return the file or folder of a data set's ``source``, a path or a file:// address.

    Raises:
        InputError: it is another kind of address, it does not exist, or it contains the working folder, whose files
            change with every run.
    """
    if "://" in source:
        address = urlsplit(source)
        if address.scheme.lower() != "file" or address.netloc not in ("", "localhost"):
            raise InputError(
                f"source {source!r}: is taken from this machine alone: download it and give its path, or file:///PATH"
            )
        path = Path(unquote(address.path))
    else:
        path = Path(source).expanduser()
    if not path.exists():
        seen_from = "" if path.is_absolute() else f", seen from {Path.cwd()}"
        raise InputError(f"source {source!r}: no such file or folder{seen_from}")
    if path.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise InputError(f"source {source!r}: the working folder lies in it: put the files into a folder of their own")
    return path


def files_of(source: str) -> list[str]:
    """Return the files of a source, whose changes make its graph outdated; raises InputError, see ``path_of``."""
    path = path_of(source)
    if not path.is_dir():
        return [str(path)]
    found = sorted(str(each) for each in path.rglob("*") if each.is_file())
    if not found:
        raise InputError(f"source {source!r}: the folder has no files")
    return found


def made(source: str) -> Manifest | None:
    """Return the manifest if ``source`` is a graph folder, else None; raises InputError, see ``path_of``."""
    path = path_of(source)
    return load(path)[0] if (path / MANIFEST_FILE).is_file() else None


class Contents:
    """Hashes of the user's own files; a file is read again only if its size, times or place have changed.

    Args:
        known: the value of ``known`` of an earlier object; anything else counts as empty.
        trust: use known hashes without checking the files, for parts of a run that has checked them.
    """

    def __init__(self, known: Any = None, *, trust: bool = False):
        noted = known if isinstance(known, Mapping) else {}
        sources, files = (noted.get(name) for name in ("sources", "files"))
        self._sources: dict[str, str] = dict(sources) if isinstance(sources, Mapping) else {}
        self._files: dict[str, list[Any]] = dict(files) if isinstance(files, Mapping) else {}
        self._trust = trust

    @property
    def known(self) -> dict[str, dict[str, Any]]:
        """Return source -> its hash, and file -> its size, times, place and hash."""
        return {"sources": self._sources, "files": self._files}

    def of(self, source: str) -> str:
        """Return a hash of the names and contents of a source's files; raises InputError, see ``path_of``."""
        if self._trust and source in self._sources:
            return self._sources[source]
        root = path_of(source)
        manifest = root / MANIFEST_FILE  # it has the hashes of a graph folder's shards
        files = [str(manifest)] if manifest.is_file() else files_of(source)
        self._tell(files)
        base = root if root.is_dir() else root.parent
        hashes = [[str(Path(file).relative_to(base)), self._file(file)] for file in files]
        self._sources[source] = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()
        return self._sources[source]

    def of_file(self, file: str) -> str:
        """Return the sha256 of one file; raises InputError if it cannot be read."""
        path = str(Path(file).expanduser())
        return str(self._files[path][-1]) if self._trust and path in self._files else self._file(path)

    def _file(self, file: str) -> str:
        seen = _seen(file)
        if self._files.get(file, [])[:-1] != seen:
            with _readable(file), Path(file).open("rb") as opened:
                self._files[file] = [*seen, hashlib.file_digest(opened, "sha256").hexdigest()]
        return str(self._files[file][-1])

    def _tell(self, files: list[str]) -> None:
        unread = sum(seen[0] for file in files if (seen := _seen(file)) != self._files.get(file, [])[:-1])
        if unread > 2**30:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            text = f"{files[0]}{more}: reading {unread / 2**30:.1f} GiB to tell whether a graph was made of them"
            print(text, file=sys.stderr, flush=True)


def _seen(file: str) -> list[int]:
    """Return numbers that change with a file, even if another file with an older time replaces it."""
    with _readable(file):
        facts = Path(file).stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


@contextmanager
def _readable(file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def says_loader(path: Path) -> bool:
    """Return whether a file's suffix or a folder's contents determine its loader."""
    folder = any((path / name).is_file() for name in (MANIFEST_FILE, SOURCE_FILE))
    return folder or loader_of(path) is not None


#: Suffixes of files that only their own library reads -> advice.
_OF_LIBRARIES = dict.fromkeys((".pt", ".pth"), "load it with torch.load, and") | {
    ".bin": "if DGL wrote it, load it with dgl.load_graphs, and"
}


def needs_loader(path: Path, field: str) -> str:
    """Return the message for ``path``, whose loader is not known and must be given in ``field``."""
    if (ending := path.suffix.lower()) in _OF_LIBRARIES:
        way = "mgg.interop.shards(...) makes a graph folder of it (docs/guides/interop.md)"
        return f"{path}: {_OF_LIBRARIES[ending]} {way}"
    kind = "a folder that neither mgg retrieve nor mgg graph made" if path.is_dir() else "its ending says nothing"
    return (
        f"{path}: {kind}, so {field} must say how to read it: {', '.join(sorted(loaders()))} (docs/concepts/data.md);"
        " table reads your own edges.csv and nodes.csv"
    )
