"""Files of the user's own: the names that their graphs may have, where they are, how large the graph will be."""

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
from mgg.graph.described import SOURCE_FILE
from mgg.graph.generators import generators
from mgg.graph.manifest import MANIFEST_FILE, Manifest, load
from mgg.graph.sources import loader_of, loaders


def check_name(name: str) -> None:
    """Raise InputError unless a graph of one's own may be called ``name``.

    It may not if it is no name, or that of a data set or generator, whose graphs it would be taken for.
    """
    if not re.fullmatch(NAME, name):
        raise InputError(
            f"name {name[:40]!r}: only letters, digits, '_', '.' and '-', the first one a letter or a digit"
        )
    if name in generators() or name in catalog():
        kind = "a generator" if name in generators() else "a real data set"
        raise InputError(f"name {name!r}: is that of {kind}; choose one that says what the graph stands for")


def path_of(source: str) -> Path:
    """The file or folder that ``source`` of a data set means, a path or a file:// address.

    Raises:
        InputError: it is an address of another kind, there is nothing, or the working folder lies in it, whose files
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
    """The files that a graph is made of: whoever changes one wants it made anew; raises InputError as ``path_of``."""
    path = path_of(source)
    if not path.is_dir():
        return [str(path)]
    found = sorted(str(each) for each in path.rglob("*") if each.is_file())
    if not found:
        raise InputError(f"source {source!r}: the folder has no files")
    return found


def made(source: str) -> Manifest | None:
    """What a graph folder says of itself, None for files of any other kind; raises InputError as ``path_of``."""
    path = path_of(source)
    return load(path)[0] if (path / MANIFEST_FILE).is_file() else None


class Contents:
    """What is in files of one's own, as hashes. A file is read again only where its size, times or place have changed.

    Args:
        known: what ``known`` of an earlier one was; anything else counts as nothing.
        trust: take what is known without a look at the files: for parts of a run that has looked at them.
    """

    def __init__(self, known: Any = None, *, trust: bool = False):
        told = known if isinstance(known, Mapping) else {}
        sources, files = (told.get(name) for name in ("sources", "files"))
        self._sources: dict[str, str] = dict(sources) if isinstance(sources, Mapping) else {}
        self._files: dict[str, list[Any]] = dict(files) if isinstance(files, Mapping) else {}
        self._trust = trust

    @property
    def known(self) -> dict[str, dict[str, Any]]:
        """By source its hash; by file its size, times and place, and its hash."""
        return {"sources": self._sources, "files": self._files}

    def of(self, source: str) -> str:
        """A hash of the names and contents of the files of ``source``; raises InputError as ``path_of``."""
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
        """The sha256 of one file; raises InputError where it cannot be read."""
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
            told = f"{files[0]}{more}: reading {unread / 2**30:.1f} GiB to tell whether a graph was made of them"
            print(told, file=sys.stderr, flush=True)


def _seen(file: str) -> list[int]:
    """What changes with a file: whoever moves another one here, with an older time too, changes one of them."""
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
    """Whether a file, by its ending, or a folder, by what was put into it, says how it is read."""
    folder = any((path / name).is_file() for name in (MANIFEST_FILE, SOURCE_FILE))
    return folder or loader_of(path) is not None


#: Endings of files that only their library reads.
_OF_LIBRARIES = dict.fromkeys((".pt", ".pth"), "load it with torch.load, and") | {
    ".bin": "if DGL wrote it, load it with dgl.load_graphs, and"
}


def needs_loader(path: Path, field: str) -> str:
    """What to say of ``path``, which does not say how it is read, where ``field`` must."""
    if (ending := path.suffix.lower()) in _OF_LIBRARIES:
        return f"{path}: {_OF_LIBRARIES[ending]} mgg.interop.shards(...) makes a graph folder of it (docs/interop.md)"
    kind = "a folder that neither mgg retrieve nor mgg graph made" if path.is_dir() else "its ending says nothing"
    return (
        f"{path}: {kind}, so {field} must say how to read it: {', '.join(sorted(loaders()))} (docs/data.md);"
        " table reads your own edges.csv and nodes.csv"
    )
