"""Reads text files of numbers of any size: decompresses them, and parses blocks of whole lines in parallel with Arrow.

UTF-16 and UTF-32 with a byte order mark become UTF-8, and lines may end in LF, CR LF or CR.

Arrow parses well-formed blocks. A block that it rejects is tidied (comments, blank lines, irregular spaces) and parsed
again. If that fails, the block is read line by line to name the first bad line. Memory is a few blocks, whatever the
size of the unpacked file.
"""

from __future__ import annotations

import codecs
import csv
import lzma
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from isal import igzip, isal_zlib

from mgg.errors import InputError
from mgg.graph.check import TOO_SMALL, check_weights, underflows
from mgg.graph.io.arrow import to_arrow, to_numpy

#: Maximum bytes of a line.
LONGEST_LINE = 2**20
#: Bytes read at once. A block has at most BLOCK + LONGEST_LINE = 3 MiB, so less than 2^20 lines of two numbers.
BLOCK = 2 * 2**20
#: Blocks parsed in parallel.
WORKERS = min(4, len(os.sched_getaffinity(0)))

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}
_BOM = b"\xef\xbb\xbf"
#: Byte order marks of other encodings; the mark of little-endian UTF-32 begins with the one of UTF-16.
_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
#: Advice for a name in place of a node's id.
NUMBER_FIRST = ": number the nodes first (docs/concepts/data.md, Nodes with names)"
_WHOLE = re.compile(r"-?[0-9]+")
#: Maximum characters of a number that is examined to explain an error.
LONGEST_NUMBER = 4096
# Each digit can match in only one place, so matching takes linear time for any text.
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity)|-?nan", re.IGNORECASE)
_NO_NUMBER = "not a number"
#: Every text with a number too small for float64 matches one of these; separate patterns search faster than "|".
_TINY = tuple(map(re.compile, (rb"e-[0-9]{3}", rb"E-[0-9]{3}", b"0" * 200)))
_HEXADECIMAL = re.compile(rb"(?<![^\s,\"-])0[xX]")
_PLUS = re.compile(rb"(?<![^\s,\"])\+(?=[0-9.])")
_TYPES = {
    "int64": pa.int64(), "whole": pa.int64(), "id": pa.int64(), "float32": pa.float32(), "float64": pa.float64(),
    "text": pa.string(),
}  # fmt: skip
#: Types of whole numbers that may also be written as decimals.
_LOOSE = ("whole", "id")
#: float64 holds all whole numbers up to this one.
_EXACT = 2**53
_DECIMAL = r"^[+-]?[0-9]+(\.0*)?$"
#: NetworkX's end of an edge without attributes: an empty Python dict.
_NO_ATTRIBUTES = re.compile(rb"[ \t,;]*\{\}(?=[ \t]*\r?$)", re.MULTILINE)
_WEIGHT_ATTRIBUTE = re.compile(rb"([ \t,;])[ \t]*\{'weight': ?([^{}',]+)\}(?=[ \t]*\r?$)", re.MULTILINE)


@dataclass(frozen=True)
class TextColumn:
    """A field of every line.

    Attributes:
        name: name of the field, for errors.
        type: int64, whole (int64, also written as 1.0 or 1e3), id (like whole; errors allow for nodes with names),
            float32, float64, text (kept as an Arrow array) or skip (ignored).
        empty: whether the field may be empty: nan in a float column, "" in a text column.
        remedy: advice in the error for a field that is no number.
    """

    name: str
    type: Literal["int64", "whole", "id", "float32", "float64", "text", "skip"] = "int64"
    empty: bool = False
    remedy: str = ""


@dataclass(frozen=True)
class LineFormat:
    """The division of lines into fields.

    Attributes:
        columns: all fields of a line, in order.
        delimiter: a comma, a tab, or a space, which stands for any run of spaces and tabs.
        comments: characters that begin a comment line.
        quoted: whether fields may be in double quotes.
        attributes: whether lines may end in NetworkX's dict: an empty one is no field, a weight is one.
        decimal_comma: whether a comma stands for a decimal point.
    """

    columns: tuple[TextColumn, ...]
    delimiter: str = " "
    comments: bytes = b"#%"
    quoted: bool = False
    attributes: bool = False
    decimal_comma: bool = False

    def plain(self, data: bytes) -> bytes:
        """Return the text with the same lines, but without NetworkX's dicts and decimal commas."""
        if self.attributes and b"{" in data:
            data = _WEIGHT_ATTRIBUTE.sub(rb"\1\2", _NO_ATTRIBUTES.sub(b"", data))
        return data.replace(b",", b".") if self.decimal_comma else data

    def content(self, line: bytes) -> bytes | None:
        """Return the line without spaces around it; None if it is blank or a comment."""
        line = line.strip() if self.delimiter == " " else line.strip(b" \r")
        return None if not line or line[0] in self.comments else line

    def commented(self, data: bytes) -> bool:
        """Return whether a line may be a comment: Arrow would parse one as a row if its fields happened to fit."""
        if not any(data.find(mark) >= 0 for mark in self.comments):
            return False
        return re.search(rb"^[ \t\r\v\f]*[" + re.escape(self.comments) + rb"]", data, re.MULTILINE) is not None

    def fields(self, line: bytes) -> list[str]:
        """Return the fields of a line that is neither blank nor a comment."""
        text = line.decode("utf-8", "replace")
        quoted = self.quoted and '"' in text
        if self.delimiter == " " and not quoted:
            return text.split()
        if quoted:
            text = " ".join(text.split()) if self.delimiter == " " else text
            with suppress(csv.Error):  # a field of more than 128 KiB, which is no number, with or without quotes
                return [field.strip() for field in next(csv.reader([text], delimiter=self.delimiter))]
        return [field.strip() for field in text.split(self.delimiter)]

    def tidy(self, data: bytes) -> bytes:
        """Return the lines in Arrow's form: no comments or blanks, one delimiter between fields, no plus signs."""
        if self.delimiter == " " and not any(data.find(mark) >= 0 for mark in self.comments):
            data = _squeezed(data)
        else:
            lines = (self.content(line) for line in data.split(b"\n"))
            data = b"\n".join([self._regular(line) for line in lines if line])
        return _PLUS.sub(b"", data) if b"+" in data else data

    def _regular(self, line: bytes) -> bytes:
        """Return a line without spaces around its fields."""
        if self.delimiter == " ":
            return b" ".join(line.split())
        if b" " not in line or (self.quoted and b'"' in line):
            return line
        delimiter = self.delimiter.encode()
        return delimiter.join([field.strip() for field in line.split(delimiter)])


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file; ``first`` is the number of the first line, from 1."""

    file: Path
    first: int
    data: bytes


@dataclass(frozen=True)
class TablePart(ABC):
    """Some consecutive rows of a table.

    Attributes:
        columns: one array [rows] per column of the table; None for columns that were not read.
        count: number of rows.
    """

    columns: list
    count: int

    @abstractmethod
    def name(self, column: int) -> str:
        """Return the name of a column."""

    @abstractmethod
    def error(self, row: int, problem: str) -> InputError:
        """Return the error that names the file and the place of a row of this part."""

    def ids(self, column: int, least: int, most: int) -> np.ndarray:
        """Return a column of node ids, int64 [rows]; InputError names the place of the first outside least..most."""
        ids = self.columns[column]
        if ids.size and (ids.min() < least or ids.max() > most):
            row = int(np.flatnonzero((ids < least) | (ids > most))[0])
            raise self.error(row, f"{self.name(column)} is {ids[row]}, outside {least}..{most}")
        return ids

    def weights(self, column: int) -> np.ndarray:
        """Return a column of weights, numbers [rows]; InputError names the place of the first beyond float32."""
        found = check_weights(
            self.columns[column], lambda row, problem: self.error(row, f"{self.name(column)} {problem}")
        )
        for row, text in self.lost(column).items():
            raise self.error(row, f"{self.name(column)} is {text}, {TOO_SMALL}")
        return found

    def lost(self, column: int) -> dict[int, str]:
        """Return row -> text of nonzero numbers that were parsed as 0, which only text files can have."""
        return {}

    def finite(self, column: int) -> np.ndarray:
        """Return a column of numbers, float32 [rows]; InputError names the place of the first that is not finite."""
        values = self.columns[column]
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32, copy=False)
        bad = np.flatnonzero(~np.isfinite(narrow))
        if bad.size:
            raise self.error(int(bad[0]), f"{self.name(column)} is {values[bad[0]]}, not a finite float32")
        return narrow


@dataclass(frozen=True)
class TextRows(TablePart):
    """The parsed lines of a block, without blank lines and comments.

    Attributes:
        block: the block of lines.
        layout: the division of its lines into fields.
    """

    block: LineBlock
    layout: LineFormat

    def name(self, column: int) -> str:
        """Return the name of a column in the layout."""
        return self.layout.columns[column].name

    def lost(self, column: int) -> dict[int, str]:
        """See ``TablePart.lost``."""
        zeros = np.flatnonzero(self.columns[column] == 0)
        if not zeros.size or not any(each.search(self.block.data) for each in _TINY):
            return {}
        columns = [replace(each, type="skip") for each in self.layout.columns]
        columns[column] = replace(columns[column], type="text")
        texts = _parse(self.block, replace(self.layout, columns=tuple(columns))).columns[column].take(zeros)
        return {int(row): _shown(text) for row, text in zip(zeros, texts.to_pylist(), strict=True) if underflows(text)}

    def line(self, row: int) -> int:
        """Return the number in the file, from 1, of a row's line."""
        lines = enumerate(self.block.data.split(b"\n"), self.block.first)
        kept = (number for number, line in lines if self.layout.content(line) is not None)
        return next(number for index, number in enumerate(kept) if index == row)

    def error(self, row: int, problem: str) -> InputError:
        """Return the error that names the file and the line of a row."""
        return InputError(f"{self.block.file}: line {self.line(row)}: {problem}")


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of every line, without its end; for headers, as read_rows is faster."""
    for block in blocks(file):
        text = block.data.removesuffix(b"\n")
        for number, line in enumerate(text.split(b"\n"), block.first):
            yield number, line.removesuffix(b"\r").decode("utf-8", "replace")


def width_of(file: Path) -> int:
    """Return the number of fields between commas of the first line that is not blank; raises InputError without one."""
    first = next((line for _, line in lines(file) if line.strip()), None)
    if first is None:
        raise InputError(f"{file}: is empty")
    return first.count(",") + 1


def blocks(file: Path, skip: int = 0) -> Generator[LineBlock, None, None]:
    """Yield the file in blocks of whole lines, without its first ``skip`` lines.

    The first bytes show compression by gzip, bzip2, xz or Zstandard, whatever the file's name.

    Raises:
        InputError: the file cannot be read, is truncated or corrupt (the message has the bytes and lines read before),
            or has a line of more than LONGEST_LINE bytes.
    """
    carry, first, total = b"", 1, 0
    with closing(_Reader(file)) as reader:
        while fresh := reader.read(total, first - 1):
            data = carry + fresh
            if first == 1:
                data = data.removeprefix(_BOM)
            total += len(fresh)
            _check_lengths(file, first, data)
            end = data.rfind(b"\n") + 1
            carry = data[end:]
            if end:
                yield from _without(LineBlock(file, first, data[:end]), skip)
                # NumPy counts six times as fast as bytes.count, which is felt here.
                first += int(np.count_nonzero(np.frombuffer(data, np.uint8, end) == ord("\n")))
    if carry:
        yield from _without(LineBlock(file, first, carry), skip)


def read_rows(file: Path, layout: LineFormat, skip: int = 0) -> Iterator[TextRows]:
    """Parse all lines after the first ``skip`` ones, in order.

    Raises:
        InputError: the file cannot be read (see :func:`blocks`), or names the first line that has another number of
            fields, or a field that is no number of its column's type.
    """
    source = blocks(file, skip)
    pool = ThreadPoolExecutor(WORKERS + 1)
    waiting: deque = deque()
    failure = None
    # No "finally": an abandoned generator may be collected at any moment, even while the pool's own locks are held, so
    # nothing may wait there. The pool's threads end by themselves once the pool is gone.
    reading = pool.submit(next, source, None)
    while True:
        try:
            block = reading.result()
        except InputError as error:
            failure = error
            break
        if block is None:
            break
        reading = pool.submit(next, source, None)
        waiting.append(pool.submit(_parse, block, layout))
        if len(waiting) > WORKERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
    pool.shutdown()
    if failure is not None:
        raise failure


def counted(rows: Iterator[TextRows], file: Path, expected: int, announced: str) -> Iterator[TextRows]:
    """Yield the same rows; raises InputError unless there are ``expected``, the number stated at ``announced``."""
    seen = 0
    for part in rows:
        seen += part.count
        if seen > expected:
            raise part.error(part.count - (seen - expected), f"one more than the {expected} that {announced} announces")
        yield part
    if seen < expected:
        raise InputError(f"{file}: ends after {seen} of the {expected} lines that {announced} announces")


#: Errors of the decompressors; isal's own type is declared as an instance.
_BROKEN: tuple[type[Exception], ...] = (OSError, EOFError, lzma.LZMAError, pa.ArrowException, isal_zlib.IsalError)  # type: ignore[assignment]


class _Reader:
    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with file.open("rb") as raw:
                start = raw.read(8)
            self.kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
            self.stream = self._open()
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
        self.decoder: codecs.IncrementalDecoder | None = None
        self.classic = False
        self.head: bytes | None = None

    def _open(self):  # type: ignore[no-untyped-def]  # pyarrow has no types
        if self.kind == "gzip":
            return igzip.open(self.file)  # three times as fast as zlib, which would delay the parsers
        if self.kind == "xz":
            return lzma.open(self.file)
        raw = pa.OSFile(str(self.file))
        return pa.CompressedInputStream(raw, self.kind) if self.kind else raw

    def read(self, total: int, lines: int) -> bytes:
        """Read some bytes, b"" at the end; an error states the bytes and whole lines that came before."""
        if self.head is None:
            self._begin(total, lines)
        fresh, self.head = self.head or self._decoded(total, lines), b""
        return fresh.replace(b"\r", b"\n") if self.classic else fresh

    def _begin(self, total: int, lines: int) -> None:
        """Read the first line, which shows the encoding and the line ending."""
        self.head = self._raw(total, lines)
        while len(self.head) < 4 and (fresh := self._raw(total, lines)):
            self.head += fresh
        encoding = next((name for mark, name in _WIDE.items() if self.head.startswith(mark)), None)
        if encoding:
            self.decoder = codecs.getincrementaldecoder(encoding)()
            self.head = self._utf8(self.head, final=False)
        while b"\n" not in self.head and len(self.head) < LONGEST_LINE and (fresh := self._decoded(total, lines)):
            self.head += fresh
        if 3 * self.head[:64].count(0) > len(self.head[:64]):  # every other one of UTF-16's, three of four of UTF-32's
            raise InputError(f"{self.file}: looks like UTF-16 without a byte order mark: save it as UTF-8")
        self.classic = b"\r" in self.head and b"\n" not in self.head

    def _decoded(self, total: int, lines: int) -> bytes:
        """Read the next text as UTF-8; a decoder may need several reads for a character."""
        if self.decoder is None:
            return self._raw(total, lines)
        while raw := self._raw(total, lines):
            if text := self._utf8(raw, final=False):
                return text
        return self._utf8(b"", final=True)

    def _utf8(self, raw: bytes, *, final: bool) -> bytes:
        assert self.decoder is not None
        try:
            return self.decoder.decode(raw, final).encode()
        except UnicodeError as error:
            raise InputError(f"{self.file}: begins as {error.encoding} and is none: {error.reason}") from None  # type: ignore[attr-defined]

    def _raw(self, total: int, lines: int) -> bytes:
        try:
            return self.stream.read(BLOCK)
        except _BROKEN as error:
            what = f"cut off or corrupt {self.kind} data" if self.kind else "cannot be read"
            raise InputError(
                f"{self.file}: {what} after {total} bytes of text ({lines} lines): {' '.join(str(error).split())}"
            ) from None

    def close(self) -> None:
        self.stream.close()


def _check_lengths(file: Path, first: int, data: bytes) -> None:
    """Raise InputError if a line is too long: such a line fills a whole chunk of half the maximum length."""
    half = LONGEST_LINE // 2
    for at in range(0, len(data), half):
        if data.find(b"\n", at, at + half) < 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if (len(data) if end < 0 else end) - start > LONGEST_LINE:
                number = first + data.count(b"\n", 0, start)
                raise InputError(f"{file}: line {number} is longer than {LONGEST_LINE} bytes: not a text of numbers")


def _without(block: LineBlock, skip: int) -> Iterator[LineBlock]:
    at, first = 0, block.first
    while first <= skip and at < len(block.data):
        end = block.data.find(b"\n", at)
        at = len(block.data) if end < 0 else end + 1
        first += 1
    if at < len(block.data):
        yield LineBlock(block.file, first, block.data[at:] if at else block.data)


def _parse(block: LineBlock, layout: LineFormat) -> TextRows:
    block = replace(block, data=layout.plain(block.data))
    if block.data.isspace():
        return _rows(block, layout, None)
    # If a field may be empty, Arrow would read two spaces as an empty field.
    irregular = layout.delimiter == " " and any(column.empty for column in layout.columns)
    if not irregular and not layout.commented(block.data):
        with suppress(pa.ArrowInvalid):
            spaced = block.data.replace(b"\t", b" ") if layout.delimiter == " " else block.data
            return _rows(block, layout, _arrow(spaced, layout))
    tidy = layout.tidy(block.data)
    if not tidy:
        return _rows(block, layout, None)
    if any(column.type in _LOOSE for column in layout.columns):
        with suppress(pa.ArrowInvalid):
            return _rows(block, layout, _arrow(tidy, layout))
    try:
        return _rows(block, layout, _arrow(tidy, layout, loose=True))
    except pa.ArrowInvalid as error:
        _explain(block, layout)
        raise InputError(f"{block.file}: from line {block.first} on: {' '.join(str(error).split())}") from None


def _squeezed(data: bytes) -> bytes:
    """Return the text with one space for each run of blanks in a line, and none at its ends."""
    text = np.frombuffer(data, np.uint8)
    blank = (text == ord(" ")) | (text == ord("\t")) | (text == ord("\r"))
    again = np.ones(len(text), bool)
    np.logical_or(blank[:-1], text[:-1] == ord("\n"), out=again[1:])
    again &= blank
    single = np.where(blank, np.uint8(ord(" ")), text)[~again].tobytes()
    return single.replace(b" \n", b"\n").strip()


def _arrow(data: bytes, layout: LineFormat, *, loose: bool = False) -> pa.Table:
    """Parse lines; raises ArrowInvalid unless they fit the layout exactly; ``loose``: 1.0 and 1e3 are whole numbers."""
    # Arrow also reads hexadecimal numbers and takes a lone carriage return for the end of a line.
    if (b"x" in data or b"X" in data) and _HEXADECIMAL.search(data):
        raise pa.ArrowInvalid("hexadecimal number")
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        raise pa.ArrowInvalid("carriage return inside a line")
    types = {str(i): _TYPES[column.type] for i, column in enumerate(layout.columns) if column.type != "skip"}
    decimals = [str(i) for i, column in enumerate(layout.columns) if loose and column.type in _LOOSE]
    types |= dict.fromkeys(decimals, pa.string())
    empty = any(column.empty for column in layout.columns)
    table = pyarrow.csv.read_csv(
        pa.py_buffer(data),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=[str(i) for i in range(len(layout.columns))]
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=layout.delimiter, quote_char='"' if layout.quoted else False, double_quote=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""] if empty else [],
            strings_can_be_null=False,
        ),
    )
    for index, column in enumerate(layout.columns):
        if empty and column.type != "skip" and not column.empty and table.column(str(index)).null_count:
            raise pa.ArrowInvalid(f"empty {column.name}")
    for name in decimals:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.chunked_array([_whole(table.column(name).combine_chunks())]))
    return table


def _whole(fields: pa.Array) -> pa.Array:
    """Convert text to int64; raises ArrowInvalid if a value is no whole number, or too large to be exact."""
    digits = pc.match_substring_regex(fields, _DECIMAL)
    integers = pc.replace_substring_regex(pc.if_else(digits, fields, "0"), r"^\+|\.0*$", "").cast(pa.int64())
    numbers = to_numpy(pc.if_else(digits, "1", fields).cast(pa.float64()))
    lost = any(map(underflows, pc.filter(fields, pc.equal(to_arrow(numbers), 0.0)).to_pylist()))
    if lost or not ((numbers == np.floor(numbers)) & (np.abs(numbers) <= _EXACT)).all():
        raise pa.ArrowInvalid("not a whole number")
    return pc.if_else(digits, integers, to_arrow(numbers.astype(np.int64)))


def _rows(block: LineBlock, layout: LineFormat, table: pa.Table | None) -> TextRows:
    columns: list = []
    for index, column in enumerate(layout.columns):
        if column.type == "skip":
            columns.append(None)
            continue
        kind = _TYPES[column.type]
        chunks = [] if table is None else table.column(str(index)).chunks
        # Concatenation copies even a single chunk, and a block nearly always has just one.
        values = chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], kind), *chunks])
        if column.type != "text":  # empty fields become nan
            values = values.to_numpy(zero_copy_only=False) if values.null_count else to_numpy(values)
        columns.append(values)
    return TextRows(columns, 0 if table is None else table.num_rows, block, layout)


def _explain(block: LineBlock, layout: LineFormat) -> None:
    for number, line in enumerate(block.data.split(b"\n"), block.first):
        content = layout.content(line)
        if content is None:
            continue
        fields = layout.fields(content)
        if len(fields) != len(layout.columns):
            names = ", ".join(column.name for column in layout.columns[:4])
            more = ", ..." if len(layout.columns) > 4 else ""
            raise InputError(
                f"{block.file}: line {number}: {len(fields)} fields, expected {len(layout.columns)} ({names}{more})"
            )
        for field, column in zip(fields, layout.columns, strict=True):
            problem = _CHECKS[column.type](field) if field or not column.empty else None
            if problem:
                remedy = column.remedy if problem.startswith("not a ") else ""
                raise InputError(f"{block.file}: line {number}: {column.name} is {_shown(field)}, {problem}{remedy}")


def _shown(field: str) -> str:
    return ascii(field if len(field) <= 40 else field[:37] + "...")


def _not_whole(field: str) -> str | None:
    if not _WHOLE.fullmatch(field.removeprefix("+")):
        return "not a whole number"
    # A number of 20 or more digits without leading zeros is too large; it needs no conversion.
    digits = field.lstrip("+-").lstrip("0") or "0"
    most = 2**63 if field.startswith("-") else 2**63 - 1
    return "beyond 2^63" if len(digits) > 19 or int(digits) > most else None


def _not_loose(field: str) -> str | None:
    if _not_number(field) or re.fullmatch(_DECIMAL, field):
        return _not_whole(re.sub(r"\.0*$", "", field))
    number = float(field)
    if not number.is_integer() or (number == 0 and underflows(field)):
        return "not a whole number"
    return "beyond 2^53, and written so that its last digits are lost" if abs(number) > _EXACT else None


def _no_id(field: str) -> str | None:
    problem = _not_loose(field)
    named = problem is not None and field != "" and _not_number(field) == _NO_NUMBER
    return f"{problem}{NUMBER_FIRST}" if named else problem


def _not_number(field: str) -> str | None:
    if len(field) > LONGEST_NUMBER:
        return f"longer than {LONGEST_NUMBER} characters"
    return None if _NUMBER.fullmatch(field) else _NO_NUMBER


_CHECKS: dict[str, Callable[[str], str | None]] = {
    "int64": _not_whole, "whole": _not_loose, "id": _no_id, "float32": _not_number, "float64": _not_number,
    "text": lambda field: None, "skip": lambda field: None,
}  # fmt: skip
