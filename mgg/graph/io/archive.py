"""Unpacks untrusted archives: files stay in the folder and within a size limit, and an error leaves no files."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from mgg.errors import InputError, MachineError

MAX_MEMBERS = 1_000_000
#: Default limit of unpacked bytes, in addition to 100 times the archive's size.
MIN_LIMIT = 64 * 2**20
CHUNK = 2**20
#: Maximum bytes per read of a tar archive: headers that claim to be longer would fill the memory.
MAX_HEADER = 2**24

_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
#: Errors of the libraries for truncated or altered archives. zipfile raises NotImplementedError for later versions of
#: zip, which an altered byte can claim.
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
)


def unpack(
    archive: Path, folder: Path, limit: int | None = None, members: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Unpack a zip or tar archive (plain, gzip, bzip2, xz) into ``folder``, which may have other files; hash each file.

    Only regular files are unpacked, with the folders in their names; modes, owners and times are dropped. Additions of
    macOS (``__MACOSX``, ``.DS_Store``) are skipped.

    Args:
        archive: the file; its first bytes decide its type.
        folder: the target folder; made if it does not exist.
        limit: maximum bytes of all members together, counted as they are written, whatever the archive's headers
            claim; None: 64 MiB + 100 times the archive's size.
        members: required members -> their new names; None: all members with their own names.

    Returns:
        The sha256 of each file by its name relative to ``folder``, sorted by name.

    Raises:
        InputError: the archive is truncated, altered, encrypted or too large, has a link, a device, a name that is
            repeated or leaves the folder, lacks one of ``members``, or has a file that already exists; names archive
            and member.
        MachineError: the disk is full or fails.
    """
    if limit is None:
        limit = MIN_LIMIT + 100 * _size(archive)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as scratch:
            hashes = _write_members(archive, Path(scratch), limit, members)
            _move(archive, Path(scratch), folder)
    except OSError as error:
        raise MachineError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return dict(sorted(hashes.items()))


def relative_name(name: str) -> str | None:
    """Return ``name`` without ``.`` steps, or None if it is no plain relative path (absolute, ``..``, unprintable)."""
    steps = [step for step in name.split("/") if step not in ("", ".")]
    if not steps or name.startswith("/") or ".." in steps or "\\" in name or not name.isprintable():
        return None
    if len(name.encode()) > 1024 or max(len(step.encode()) for step in steps) > 255:
        return None
    return "/".join(steps)


def _size(archive: Path) -> int:
    try:
        return archive.stat().st_size
    except OSError as error:
        raise InputError(f"{archive}: {error.strerror}") from None


def _write_members(archive: Path, folder: Path, limit: int, members: Mapping[str, str] | None) -> dict[str, str]:
    hashes: dict[str, str] = {}
    names: set[str] = set()
    parents: set[str] = set()
    left = limit
    for listed, content in _members(archive):
        name = _checked(archive, listed, names, parents)
        if members is not None and name not in members:
            continue
        target = folder / (name if members is None else members[name])
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with target.open("wb") as file:
            for block in _blocks(archive, listed, content):
                left -= len(block)
                if left < 0:
                    raise InputError(f"{archive}: {listed}: the archive unpacks to more than {limit} bytes")
                digest.update(block)
                file.write(block)
        hashes[str(target.relative_to(folder))] = digest.hexdigest()
    for name in members or ():
        if name not in names:
            raise InputError(f"{archive}: {name}: the archive has no such member")
    return hashes


def _checked(archive: Path, listed: str, names: set[str], parents: set[str]) -> str:
    """Return a member's name as a relative path; raises InputError if it collides with an earlier member."""
    name = relative_name(listed)
    if name is None:
        raise InputError(f"{archive}: {listed!r}: not a name inside the folder that it is unpacked into")
    above = [str(parent) for parent in Path(name).parents][:-1]
    if name in names or name in parents or not names.isdisjoint(above):
        raise InputError(f"{archive}: {listed}: the archive has this name twice")
    names.add(name)
    parents.update(above)
    return name


def _blocks(archive: Path, member: str, content: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            block = content.read(CHUNK)
        except _BROKEN as error:
            raise _damaged(archive, member, error) from None
        if not block:
            return
        yield block


def _damaged(archive: Path, member: str, error: Exception) -> InputError:
    return InputError(f"{archive}: {member}: cut off or altered ({' '.join(str(error).split()) or 'it ends early'})")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each regular file in the archive's order; read each before the next."""
    with archive.open("rb") as file:
        head = file.read(8)
    members = _zip_members(archive) if head[:2] == b"PK" else _tar_members(archive, head)
    for number, (name, content) in enumerate(members):
        if number >= MAX_MEMBERS:
            raise InputError(f"{archive}: {name}: the archive has more than {MAX_MEMBERS} members")
        if content is not None and "__MACOSX" not in name.split("/") and name.rpartition("/")[2] != ".DS_Store":
            yield name, content


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    try:
        opened = zipfile.ZipFile(archive)
    except _BROKEN as error:
        raise _damaged(archive, "the list of its members", error) from None
    with opened:
        for member in opened.infolist():
            name = member.filename
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise InputError(f"{archive}: {name}: a link or device, not a file")
            if member.flag_bits & 1:
                raise InputError(f"{archive}: {name}: encrypted")
            # The decoders of other methods cannot stop after a given number of bytes.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{archive}: {name}: compressed in a way other than deflate; pack the archive again")
            try:
                content = None if member.is_dir() else opened.open(member)
            except _BROKEN as error:
                raise _damaged(archive, name, error) from None
            yield name, content


class _BoundedReads:
    """A file that refuses reads of more than MAX_HEADER bytes; tarfile reads extended headers whole."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)


def _tar_members(archive: Path, head: bytes) -> Iterator[tuple[str, IO[bytes] | None]]:
    opener: Callable[..., Any] = next((o for magic, o in _OPENERS.items() if head.startswith(magic)), open)
    name = ""
    with opener(archive, "rb") as file:
        try:
            with tarfile.open(fileobj=cast(Any, _BoundedReads(file)), mode="r:") as opened:
                while (member := opened.next()) is not None:
                    name = member.name
                    if not (member.isreg() or member.isdir()):
                        raise InputError(f"{archive}: {name}: a link or device, not a file")
                    yield name, opened.extractfile(member) if member.isreg() else None
                    opened.members.clear()  # type: ignore[attr-defined]  # else it remembers each
                _check_end(file, opened.offset)
        except _BROKEN as error:
            raise _damaged(archive, f"after {name}" if name else "its first member", error) from None


def _check_end(file: IO[bytes], offset: int) -> None:
    """Raise tarfile.ReadError unless the archive ends properly: tarfile itself takes any bad header for the end."""
    file.seek(offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it ends early")
    while file.read(CHUNK):  # read to the end, where a compressed file has its checksum
        if file.tell() > offset + MAX_HEADER:
            raise tarfile.ReadError("data after its end")


def _move(archive: Path, scratch: Path, folder: Path) -> None:
    entries = sorted(scratch.iterdir())
    for entry in entries:
        if (folder / entry.name).exists():
            raise InputError(f"{archive}: {entry.name}: is already in {folder}")
    for entry in entries:
        shutil.move(entry, folder / entry.name)
