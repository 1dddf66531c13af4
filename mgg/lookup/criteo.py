"""Load Criteo's Kaggle challenge: ``train.txt``, whose lines are a label, 13 integers and 26 categories.

Tabs separate the columns. A category is eight hexadecimal digits. Integers and categories may be missing; a missing
category counts as one of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numba
import numpy as np

from mgg.errors import InputError
from mgg.files import check_output
from mgg.lookup.samples import KIND, SamplesManifest, write

Ids = Literal["first", "hash"]
INTEGERS, CATEGORIES, DIGITS = 13, 26, 8
COLUMNS = 1 + INTEGERS + CATEGORIES
_CHUNK = 1 << 26
#: The parser's errors for a line: a wrong number of columns, or a wrong field.
_COUNT, _FIELD = 1, 2
_TAB, _NEWLINE, _RETURN, _MINUS, _ZERO, _NINE = map(ord, "\t\n\r-09")


def load(
    file: Path, out: Path, *, ids: Ids, rows: int | None = None, samples: int | None = None, name: str | None = None,
    chunk: int = _CHUNK,
) -> SamplesManifest:  # fmt: skip
    """Write the folder ``out`` of samples from ``train.txt``.

    Args:
        file: the text file, unpacked.
        out: the folder; an existing one is replaced once the new one is complete.
        ids: numbering of a table's categories. ``first``: by first appearance in the file, one row per category.
            ``hash``: the category's value modulo ``rows`` - 1, plus 1; a missing one is 0.
        rows: rows of every table; only with ``hash``.
        samples: number of lines to read from the start; None: all.
        name: name of the data set; by default the file's.
        chunk: bytes per read.

    Raises:
        InputError: ``rows`` is missing or not allowed, the file cannot be read, or a line does not have this form
            (names file, line and column).
    """
    if (ids == "hash") != (rows is not None):
        raise InputError(
            "--ids hash needs --rows, the rows of every table"
            if ids == "hash"
            else "--rows belongs to --ids hash alone"
        )
    if rows is not None and rows < 2:
        raise InputError(f"--rows {rows}: a table has a row for what is missing and at least one more")
    check_output(out, KIND)
    source: dict[str, Any] = {"file": file.name, "ids": ids}
    try:
        with file.open("rb") as opened:
            return write(out, name or file.stem, None, _numbered(opened, file, source, rows, samples, chunk), source)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None


def _numbered(
    opened: BinaryIO, file: Path, source: dict[str, Any], rows: int | None, samples: int | None, chunk: int
) -> Iterator[np.ndarray]:
    """Yield table rows, int32 [lines, 26], in parts; at the end, add the facts about the whole to ``source``."""
    seen = [_Seen() for _ in range(CATEGORIES)]
    digest, lines, missing = hashlib.sha256(), 0, np.zeros(CATEGORIES, np.int64)
    for text, values in _parts(opened, file, samples, chunk):
        digest.update(text)
        lines += len(values)
        missing += (values == 0).sum(axis=0)
        if rows is not None:
            yield np.where(values == 0, 0, 1 + (values - 1) % (rows - 1)).astype(np.int32)
        else:
            yield np.stack([each.numbers(values[:, column]) for column, each in enumerate(seen)], axis=1)
    if not lines:
        raise InputError(f"{file}: is empty")
    source["tables"] = [len(each.values) for each in seen] if rows is None else [rows] * CATEGORIES
    source |= {"lines": lines, "all_lines": not opened.read(1), "sha256": digest.hexdigest()}
    source["missing"] = missing.tolist()


def _parts(opened: BinaryIO, file: Path, samples: int | None, chunk: int) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yield whole lines, and int64 [lines, 26]: a category's value plus 1, or 0 if it is missing."""
    rest, lines, ended = b"", 0, False
    while not ended and (samples is None or lines < samples):
        read = opened.read(chunk)
        ended = not read
        text = rest + read if read or not rest else rest + b"\n"
        most = text.count(b"\n")
        most = most if samples is None else min(most, samples - lines)
        values = np.empty((most, CATEGORIES), np.int64)
        used, parsed, wrong, column = _parse(np.frombuffer(text, np.uint8), values)
        if wrong:
            raise InputError(f"{file}: line {lines + parsed + 1}: {_reason(wrong, column)}")
        lines, rest = lines + parsed, text[used:]
        if parsed:
            yield text[:used], values
    if rest:  # lines after the last requested one: let the caller see that the file goes on
        opened.seek(-1, 1)


def _reason(wrong: int, column: int) -> str:
    if wrong == _COUNT:
        return (
            f"{column} columns, expected {COLUMNS}: a label, {INTEGERS} integers and {CATEGORIES} categories, separated"
            " by tabs"
        )
    if column == 0:
        return "column 1 is no label, 0 or 1"
    if column <= INTEGERS:
        return f"column {column + 1} is no integer"
    return f"column {column + 1} is no category of {DIGITS} hexadecimal digits"


class _Seen:
    """The categories of a column, numbered by first appearance.

    Attributes:
        values: the categories so far, sorted.
    """

    def __init__(self) -> None:
        self.values, self._numbers = np.empty(0, np.int64), np.empty(0, np.int32)

    def numbers(self, column: np.ndarray) -> np.ndarray:
        """Return the number of each category in ``column`` (int64 [lines]) as int32; new ones get the next numbers."""
        found, first, place = np.unique(column, return_index=True, return_inverse=True)
        at = np.searchsorted(self.values, found)
        known = np.zeros(len(found), bool)
        inside = at < len(self.values)
        known[inside] = self.values[at[inside]] == found[inside]
        new = np.flatnonzero(~known)
        numbers = np.empty(len(found), np.int32)
        numbers[known] = self._numbers[at[known]]
        numbers[new[np.argsort(first[new])]] = len(self.values) + np.arange(len(new))
        self.values = np.insert(self.values, at[new], found[new])
        self._numbers = np.insert(self._numbers, at[new], numbers[new])
        return numbers[place]


@numba.njit(cache=True, nogil=True)
def _hexadecimal(byte):  # type: ignore[no-untyped-def]
    """Return the value of a hexadecimal digit; -1 if it is not one."""
    if _ZERO <= byte <= _NINE:
        return byte - _ZERO
    letter = byte | 32
    return letter - 97 + 10 if 97 <= letter <= 102 else -1


@numba.njit(cache=True, nogil=True)
def _field_value(text, begin, end, column):  # type: ignore[no-untyped-def]
    """Return a category's value plus 1, 0 for a missing one and for other columns, -1 for a wrong field."""
    if column == 0:
        return 0 if end == begin + 1 and text[begin] - _ZERO in (0, 1) else -1
    if begin == end:
        return 0
    if column <= INTEGERS:
        first = begin + 1 if text[begin] == _MINUS else begin
        for i in range(first, end):
            if not _ZERO <= text[i] <= _NINE:
                return -1
        return 0 if first < end else -1
    value = 0
    for i in range(begin, end):
        digit = _hexadecimal(np.int64(text[i]))
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value + 1 if end - begin == DIGITS else -1


@numba.njit(cache=True, nogil=True)
def _parse(text, values):  # type: ignore[no-untyped-def]
    """Parse ``text`` into ``values``; return bytes used, lines, the next line's error (0: none) and column."""
    at, lines = 0, 0
    while lines < values.shape[0]:
        begin, column, position, bad = at, 0, at, -1
        while True:
            byte = text[position]
            if byte > _RETURN:  # most bytes
                position += 1
                continue
            if byte in (_TAB, _NEWLINE):
                end = position
                if byte == _NEWLINE and end > begin and text[end - 1] == _RETURN:
                    end -= 1
                if column < COLUMNS:
                    value = _field_value(text, begin, end, column)
                    if value < 0 and bad < 0:
                        bad = column
                    if column > INTEGERS:
                        values[lines, column - 1 - INTEGERS] = value
                column += 1
                begin = position + 1
                if byte == _NEWLINE:
                    break
            position += 1
        if column != COLUMNS:
            return at, lines, _COUNT, column
        if bad >= 0:
            return at, lines, _FIELD, bad
        at, lines = position + 1, lines + 1
    return at, lines, 0, 0
