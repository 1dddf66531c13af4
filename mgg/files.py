"""Atomic writes of files and folders: temporary name, fsync, rename."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from mgg.errors import InputError, MachineError


def keep_others_out() -> None:
    """Tighten the umask so that files this process creates are never world-writable."""
    os.umask(os.umask(0o077) | 0o002)


@dataclass(frozen=True)
class Kind:
    """A kind of output folder: the marker file it must have, and patterns of the entries it may have."""

    marker: str
    members: tuple[str, ...] = ()

    def owns(self, folder: Path) -> bool:
        """Return whether ``folder`` has the marker and only entries of this kind."""
        names = {entry.name for entry in folder.iterdir()}
        allowed = (self.marker, *self.members)
        return self.marker in names and all(any(fnmatch(name, part) for part in allowed) for name in names)


@contextmanager
def replace_folder(path: str | Path, kind: Kind) -> Iterator[Path]:
    """Yield a new folder next to ``path``; it replaces ``path`` when the block ends without an exception.

    A killed process leaves at most a hidden folder next to ``path``. The next writer of ``path`` on the same host
    removes it.

    Args:
        path: the folder to make or replace.
        kind: kind of the folder; a folder with any other contents is never replaced.

    Raises:
        InputError: ``path`` exists and is neither empty nor a folder of this kind, or its parent cannot be written.
        MachineError: the disk is full or fails.
    """
    path = Path(path).resolve()
    refuse_foreign(path, kind)
    with _unfinished(path) as part:
        with _refused(path):
            make_folder(path.parent)
            _sweep(path)
            part.mkdir()
        try:
            yield part
            _sync_all(part)
            with _undisturbed():
                _swap(part, path)
        except OSError as error:
            raise MachineError(f"{path}: cannot be written: {error.strerror or error}") from None


def refuse_foreign(path: Path, kind: Kind) -> None:
    """Raise InputError when ``path`` is something that :func:`replace_folder` must not replace."""
    if path.is_dir():
        if any(path.iterdir()) and not kind.owns(path):
            raise InputError(f"{path}: exists and is not an output of this command; choose another folder")
    elif path.exists() or path.is_symlink():
        raise InputError(f"{path}: exists and is not a folder; choose another name")


def check_output(path: str | Path, kind: Kind) -> None:
    """Raise the errors of :func:`replace_folder` before hours of work; creates the parent folder of ``path``."""
    path = Path(path).resolve()
    refuse_foreign(path, kind)
    check_writable(path)


def cache_folder(name: str = "") -> Path:
    """Return the user's cache folder for data that can be rebuilt: $XDG_CACHE_HOME/mgg, or ~/.cache/mgg."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mgg" / name


def check_file_output(path: Path, what: str) -> None:
    """Raise, before anything is computed, if the output file ``path`` for ``what`` cannot be written."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; {what} are written to a file")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Create the parent folder of ``path``; raise InputError or MachineError if it is not writable."""
    with _unfinished(path) as probe, _refused(path):
        make_folder(path.parent)
        probe.touch()
        probe.unlink()


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into InputError for ``path``, or MachineError if the disk is full or fails."""
    try:
        yield
    except OSError as error:
        for folder in path.parents:
            if folder.exists() and not folder.is_dir():
                raise InputError(f"{folder}: is not a folder, so {path} cannot be written") from None
        failed = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        raise (MachineError if failed else InputError)(f"{path}: cannot be written: {error.strerror}") from None


def lock(file: IO[Any] | int, *, wait: bool = False) -> bool:
    """Lock the open ``file`` until it is closed; return False if another process has the lock, unless this waits.

    Raises:
        OSError: its file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the folder of ``path`` against other writers, if its file system supports locks."""
    with ExitStack() as opened:
        with suppress(OSError):
            handle = os.open(path.parent, os.O_RDONLY)
            opened.callback(os.close, handle)
            lock(handle, wait=True)
        yield


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write and fsync one file of a folder under construction."""
    make_folder(path.parent)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: str | Path, text: str) -> None:
    """Atomically replace the contents of ``path`` with ``text``; creates its folder.

    Raises:
        MachineError: the disk is full or fails.
    """
    path = Path(path)
    with _unfinished(path) as part:
        try:
            if path.parent.is_dir():
                _sweep(path)
            write_file(part, text.encode())
            part.replace(path)
            sync(path.parent)
        except OSError as error:
            raise MachineError(f"{path}: cannot be written: {error.strerror or error}") from None


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parent folders, and fsync their directory entries."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        with suppress(PermissionError):  # the parent may be writable but not readable
            sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file or folder to its disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: Names made by ``_sibling``. Groups: the part before the process id, and the process id.
_SIBLING = re.compile(r"(\..+)\.(\d+)\.(?:part|old)")


def _sibling(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{kind}")


#: Temporary paths of this process.
_UNFINISHED: set[Path] = set()


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Yield a temporary name next to ``path``; anything left under that name after the block is removed."""
    part = _sibling(path, "part").absolute()
    _UNFINISHED.add(part)
    try:
        yield part
    finally:
        _discard(part)


def _discard(part: Path) -> None:
    with _undisturbed():
        with suppress(OSError):
            _remove(part)
        if not os.path.lexists(part):
            _UNFINISHED.discard(part)


@atexit.register
def _discard_all() -> None:
    """Remove temporary files that a second Ctrl-C or a still-writing thread left; at exit all threads have ended."""
    for part in list(_UNFINISHED):
        if part.name.endswith(f".{os.getpid()}.part"):  # other names belong to the parent process
            _discard(part)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block. Only the main thread receives it."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in heard:
            signal.raise_signal(number)


def _sweep(path: Path) -> None:
    """Remove what killed writers of ``path`` on this host left behind."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{re.escape(socket.gethostname())}\.(\d+)\.(part|old)")
    for entry in path.parent.iterdir():
        match = pattern.fullmatch(entry.name)
        if match and (int(match[1]) == os.getpid() or not _alive(int(match[1]))):
            _remove(entry)


def remove_leftovers(folder: str | Path) -> None:
    """Remove what killed writers on any host left below ``folder``; files of live local processes stay.

    Call it only when no process on another host is writing there.
    """
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            match = _SIBLING.fullmatch(name)
            if match and not (match[1].endswith(f".{socket.gethostname()}") and _alive(int(match[2]))):
                _remove(Path(root, name))
        folders[:] = [name for name in folders if not _SIBLING.fullmatch(name)]


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _swap(part: Path, path: Path) -> None:
    old = _sibling(path, "old")
    if path.exists():
        path.rename(old)
    try:
        part.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)
