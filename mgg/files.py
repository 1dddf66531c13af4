"""Files and folders that appear only when they are whole: temporary name, fsync, rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Replace ``path`` by ``text``, whole or not at all; makes its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it replaces ``path`` when the block ends well, and vanishes otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        yield part
        for file in part.rglob("*"):
            sync(file)
        sync(part)
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        if path.exists():
            path.rename(old)
        part.rename(path)
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def sync(path: Path) -> None:
    """Flush a file or folder to its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Remove what killed processes left beside ``path``; a process that still runs keeps its part."""
    for left in path.parent.glob(f".{path.name}.*.*"):
        fields = left.name.rsplit(".", 2)
        if fields[-1] in ("part", "old") and fields[-2].isdigit() and not Path(f"/proc/{fields[-2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
