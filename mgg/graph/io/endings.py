"""What files of text are called, compressed or not; how they are compressed their first bytes say (text.py)."""

from __future__ import annotations

from pathlib import Path

from mgg.errors import InputError

#: What compressed text ends in, besides.
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")


def packed(*endings: str) -> tuple[str, ...]:
    """The ``endings`` of text, and those of the same text compressed."""
    return tuple(ending + compression for ending in endings for compression in ("", *COMPRESSIONS))


def plain_name(file: Path) -> str:
    """The name of a file without what says how it is compressed."""
    ending = next((each for each in COMPRESSIONS if file.name.lower().endswith(each)), "")
    return file.name[: len(file.name) - len(ending)]


def told(suffixes: tuple[str, ...]) -> str:
    """The endings in words, those of compressed files left to the last two."""
    return f"{' or '.join(each for each in suffixes if not each.endswith(COMPRESSIONS))}, compressed or not"


def find_file(path: Path, suffixes: tuple[str, ...]) -> Path:
    """``path`` itself, or the only file with one of the suffixes if it is a folder.

    Raises:
        InputError: there is no such file, or more than one.
    """
    if not path.is_dir():
        return path
    found = sorted(file for file in path.iterdir() if file.is_file() and file.name.lower().endswith(suffixes))
    if len(found) != 1:
        raise InputError(f"{path}: {len(found)} files end in {told(suffixes)}; name the one to read")
    return found[0]
