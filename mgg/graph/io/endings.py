"""Suffixes of text files, compressed or not; their first bytes decide how they are decompressed (text.py)."""

from __future__ import annotations

from pathlib import Path

from mgg.errors import InputError

#: Additional suffixes of compressed text.
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")


def packed(*endings: str) -> tuple[str, ...]:
    """Return the ``endings`` of text, and the endings of the same text compressed."""
    return tuple(ending + compression for ending in endings for compression in ("", *COMPRESSIONS))


def plain_name(file: Path) -> str:
    """Return the name of a file without the suffix of its compression."""
    ending = next((each for each in COMPRESSIONS if file.name.lower().endswith(each)), "")
    return file.name[: len(file.name) - len(ending)]


def in_words(suffixes: tuple[str, ...]) -> str:
    """Return the endings in words, with those of compressed files abbreviated."""
    return f"{' or '.join(each for each in suffixes if not each.endswith(COMPRESSIONS))}, compressed or not"


def find_file(path: Path, suffixes: tuple[str, ...]) -> Path:
    """Return ``path`` itself or, if it is a folder, its only file with one of the suffixes.

    Raises:
        InputError: the folder has no such file, or several.
    """
    if not path.is_dir():
        return path
    found = sorted(file for file in path.iterdir() if file.is_file() and file.name.lower().endswith(suffixes))
    if len(found) != 1:
        raise InputError(f"{path}: {len(found)} files end in {in_words(suffixes)}; name the one to read")
    return found[0]
