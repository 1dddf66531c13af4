"""Tables with named columns, as CSV or Parquet, read part by part."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mgg.errors import InputError
from mgg.graph.io.text import NUMBER_FIRST, LineFormat, TablePart, TextColumn, lines, read_rows

#: Types of columns, see text.Column; ``number`` (nan) and ``text`` ("") may be empty. ``mask``: true or false as text.
#: ``vector``: float32 rows of equal length: lists in Parquet, quoted numbers in CSV.
Type = Literal["whole", "id", "number", "float32", "text", "mask", "vector"]

#: Rows per part of a Parquet file.
PARQUET_ROWS = 2**18

_log = logging.getLogger(__name__)
_MAGIC = b"PAR1"
_CSV: dict[str, tuple[Literal["whole", "id", "float64", "float32", "text"], bool]] = {
    "whole": ("whole", False), "id": ("id", False), "number": ("float64", True), "float32": ("float32", False),
    "text": ("text", True), "mask": ("text", False), "vector": ("text", False),
}  # fmt: skip
#: Delimiters of fields, the likeliest first; a space stands for any run of spaces and tabs.
_DELIMITERS = (",", "\t", ";", " ")
_QUOTED = re.compile(r'"[^"]*"')
#: Types of columns that can be left out, and the advice if such a column has text instead of numbers.
_LEFT_OUT = ("float32", "number", "whole")
_NO_NUMBERS = ": leave the column out by --column ignore={name}, or make numbers of it"
_BETWEEN = r"[\s,;]+"


class Table(ABC):
    """A file of named columns; ``names`` has their names in order, "" for a column without a name."""

    file: Path
    names: tuple[str, ...]
    #: Whether the file itself names its columns.
    named = True

    @abstractmethod
    def read(self, types: Mapping[str, Type]) -> Iterator[TablePart]:
        """Yield the columns in ``types`` part by part; a part has the columns in the order of ``names``.

        Raises:
            InputError: names file and line (row of a Parquet file) of a value that does not fit its column's type.
        """

    @abstractmethod
    def vector_width(self, name: str) -> int:
        """Return the length of a column's vectors, 0 if it has none."""

    @abstractmethod
    def first(self, name: str) -> str:
        """Return the first value of a column as text, "" if there is none."""


@dataclass(frozen=True)
class Headless:
    """Names for a CSV file that may have no header.

    Attributes:
        names: the user's names, in order; none: the file may have a header.
        ends: names for a file that has just as many columns, all numbers; none: such a file is refused.
        known: returns whether the names in a comment are names of such a table.
    """

    names: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    known: Callable[[Sequence[str]], bool] = lambda names: False


def open_table(file: Path, headless: Headless) -> Table:
    """Open a file as Parquet if its first bytes say so, else as CSV, compressed or not; a folder as Parquet files.

    Raises:
        InputError: the file cannot be read, has no header, or a header with repeated or empty names.
    """
    parquet = folder = file.is_dir()
    if not folder:
        try:
            with file.open("rb") as raw:
                parquet = raw.read(len(_MAGIC)) == _MAGIC
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    if parquet and headless.names:
        raise InputError(f"{file}: names its columns itself: --columns is for a file that has no header")
    table = _ParquetFolder(file) if folder else _Parquet(file) if parquet else _Csv(file, headless)
    named = [name for name in table.names if name]
    if len(set(named)) != len(named):
        raise InputError(f"{file}: two columns are called {max(named, key=named.count)!r}")
    return table


def parquet_files(folder: Path) -> list[Path]:
    """Return the files of a table in a folder, as Spark, Hive and pyarrow write it, in the order of their paths."""
    found = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    return [path for path in found if not any(part[0] in "_." for part in path.relative_to(folder).parts)]


class _Csv(Table):
    """Fields divided by commas, tabs, semicolons or spaces; ``#`` or ``%`` begins a comment, which may have names."""

    def __init__(self, file: Path, headless: Headless) -> None:
        self.file = file
        base = LineFormat((), ",", quoted=True)
        comment, self.skip, line = "", 0, ",".join(headless.names or headless.ends)
        for number, text in lines(file):
            if base.content(text.encode()) is not None:
                self.skip, line = number, text
                break
            comment = text.strip().lstrip("#%").strip() or comment
        self.delimiter = _delimiter(line)
        self.layout = replace(base, delimiter=self.delimiter, attributes=_attributes(file, self.skip, line))
        fields = self.layout.fields(self.layout.plain(line.encode())) if line else []
        self.names = self._names(headless, fields, comment) if line else ()
        if not self.names:
            raise InputError(f"{file}: is empty")

    def _names(self, headless: Headless, fields: list[str], comment: str) -> tuple[str, ...]:
        """Return the columns' names from the user, the first line or the comment above it; sets the lines to skip."""
        line, ends = self.skip, headless.ends
        numbers = [_is_number(field) for field in fields]
        if not headless.names and not (numbers and all(numbers[: len(ends)]) if ends else any(numbers)):
            # pandas writes an empty name for an index in the first column.
            if any(numbers) or not all(fields[1:]) or fields == [""]:
                raise self._no_header(line, fields)
            return tuple(fields)
        self.skip, self.named = 0, False
        if headless.names:
            if len(headless.names) != len(fields):
                raise InputError(
                    f"{self.file}: line {line}: {len(fields)} fields, --columns names {len(headless.names)}"
                )
            return headless.names
        for remark in (self.layout.fields(comment.encode()), re.split(_BETWEEN, comment)):
            if len(remark) == len(fields) and headless.known(remark):
                self.named = True
                return tuple(remark)
        if not ends:
            raise self._no_header(line, fields)
        if self.layout.attributes:
            return (*ends, *("weight",) * (len(fields) - len(ends)))
        if len(fields) > len(ends):
            example = ",".join([*ends, "weight", *["ignore"] * (len(fields) - len(ends) - 1)])
            raise InputError(
                f"{self.file}: line {line}: no header, and {len(fields)} columns: say what they are, for example"
                f" --columns {example} (source, target, weight, type; ignore: not read)"
            )
        return ends

    def _no_header(self, line: int, fields: list[str]) -> InputError:
        shown = ascii(self.delimiter.join(fields)[:60])
        return InputError(f"{self.file}: line {line}: no header: {shown} holds numbers or empty names")

    def read(self, types: Mapping[str, Type]) -> Iterator[TablePart]:
        columns = []
        for place, name in enumerate(self.names):
            kind, empty = _CSV[types[name]] if name in types else ("skip", False)
            remedy = _NO_NUMBERS.format(name=name) if types.get(name) in _LEFT_OUT else ""
            columns.append(TextColumn(name or f"column {place + 1}", kind, empty, remedy))  # type: ignore[arg-type]
        vectors = [self.names.index(name) for name, kind in types.items() if kind == "vector"]
        layout = replace(self.layout, columns=tuple(columns), decimal_comma=self.delimiter == ";" and not vectors)
        for part in read_rows(self.file, layout, self.skip):
            for place in vectors:
                part.columns[place] = _text_vectors(part, place, self.vector_width(self.names[place]))
            yield part

    def vector_width(self, name: str) -> int:
        value = self.first(name)
        fields = _vector_fields(value)
        several = len(fields) > 1 or value.startswith("[")
        return len(fields) if several and all(_is_number(field) for field in fields) else 0

    def first(self, name: str) -> str:
        return self._first.get(name, "")

    @cached_property
    def _first(self) -> dict[str, str]:
        rows = (line.encode() for number, line in lines(self.file) if number > self.skip)
        row = next((line for line in rows if self.layout.content(line) is not None), b"")
        fields = self.layout.fields(self.layout.plain(row))
        return dict(zip(self.names, fields, strict=False))


def _delimiter(line: str) -> str:
    """Return the delimiter of the first line: the one whose first two fields are numbers, else the first found."""
    bare = _QUOTED.sub("", line).strip()
    for delimiter in _DELIMITERS:
        fields = bare.split() if delimiter == " " else bare.split(delimiter)
        if len(fields) > 1 and all(_is_number(field) for field in fields[:2]):
            return delimiter
    return next((delimiter for delimiter in _DELIMITERS if delimiter in bare), ",")


def _attributes(file: Path, number: int, line: str) -> bool:
    """Return whether lines end in NetworkX's dicts; raises InputError for attributes that are no weight."""
    found = re.search(r"\{.*\}\s*$", line)
    if found is None:
        return False
    if not re.fullmatch(r"\{('weight': ?[^{}',]+)?\}\s*", found[0]):
        raise InputError(
            f"{file}: line {number}: attributes {found[0][:60]}: an edge may have {{}} or {{'weight': NUMBER}};"
            " write the columns that you need, for example by networkx.to_pandas_edgelist"
        )
    return True


def _vector_fields(value: str) -> list[str]:
    return [field for field in re.split(_BETWEEN, value.strip("[] ")) if field]


def _text_vectors(part: TablePart, place: int, width: int) -> np.ndarray:
    """Parse lists of numbers, float32 [rows, width]; raises InputError for other text or another length."""
    bare = pc.replace_substring_regex(part.columns[place], r"^[\[\s]+|[\]\s]+$", "")
    lists = pc.split_pattern_regex(bare, _BETWEEN)
    try:
        return _vectors(part, place, lists.cast(pa.list_(pa.float32())), width)
    except pa.ArrowInvalid:
        rows = enumerate(part.columns[place].to_pylist())
        bad = next(row for row, text in rows if not all(_is_number(field) for field in _vector_fields(text)))
        raise part.error(bad, f"{part.name(place)} is no list of numbers") from None


@dataclass(frozen=True)
class _ParquetPart(TablePart):
    file: Path
    names: tuple[str, ...]
    first: int

    def name(self, column: int) -> str:
        return self.names[column]

    def error(self, row: int, problem: str) -> InputError:
        return InputError(f"{self.file}: row {self.first + row}: {problem}")


def _batches(file: pyarrow.parquet.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches row group by row group: asked for all at once, Arrow keeps several in memory."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(PARQUET_ROWS, row_groups=[group], columns=columns, use_threads=False)


class _Parquet(Table):
    def __init__(self, file: Path) -> None:
        self.file = file
        with self._open() as opened:
            self.schema = opened.schema_arrow
            self.names = tuple(self.schema.names)

    def read(self, types: Mapping[str, Type]) -> Iterator[TablePart]:
        for name, kind in types.items():
            self._check_type(name, kind)
        widths = {name: self.vector_width(name) for name, kind in types.items() if kind == "vector"}
        first = 0
        with self._open() as opened:
            for batch in _batches(opened, list(types)):
                part = _ParquetPart([None] * len(self.names), batch.num_rows, self.file, self.names, first)
                for name, kind in types.items():
                    place = self.names.index(name)
                    part.columns[place] = _converted(part, place, batch.column(name), kind, widths.get(name, 0))
                yield part
                first += batch.num_rows

    def vector_width(self, name: str) -> int:
        kind = self.schema.field(name).type
        if pa.types.is_fixed_size_list(kind):
            return kind.list_size
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return 0
        with self._open() as opened:
            for batch in opened.iter_batches(1, columns=[name]):
                return len(batch.column(name)[0].as_py() or ())
        return 0

    def first(self, name: str) -> str:
        with self._open() as opened:
            for batch in opened.iter_batches(1, columns=[name]):
                return str(batch.column(name)[0].as_py())
        return ""

    @contextmanager
    def _open(self) -> Iterator[pyarrow.parquet.ParquetFile]:
        try:
            with pyarrow.parquet.ParquetFile(self.file) as opened:
                yield opened
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.file}: not a whole Parquet file: {' '.join(str(error).split())}") from None

    def _check_type(self, name: str, kind: Type) -> None:
        found = self.schema.field(name).type
        inner = found.value_type if kind == "vector" or pa.types.is_dictionary(found) else found
        whole, decimal = pa.types.is_integer(inner), pa.types.is_decimal(inner)
        real = pa.types.is_floating(inner) or decimal
        flag = pa.types.is_boolean(inner)
        text = pa.types.is_string(inner) or pa.types.is_large_string(inner)
        fits = {"text": text, "mask": text or flag or real, "id": real, "whole": real}.get(kind, real or flag)
        if not (whole or fits):
            remedy = _NO_NUMBERS.format(name=name) if kind in _LEFT_OUT else ""
            remedy = NUMBER_FIRST if kind == "id" and text else remedy
            raise InputError(f"{self.file}: column {name!r} is of type {found}, expected {_WANTED[kind]}{remedy}")


class _ParquetFolder(Table):
    """Parquet files with the same columns, in sequence; each folder ``KEY=VALUE`` (Hive) adds a column."""

    def __init__(self, folder: Path) -> None:
        self.file = folder
        files = parquet_files(folder)
        if not files:
            raise InputError(f"{folder}: has no Parquet files")
        self._parts = [_Parquet(file) for file in files]
        self._keys = [_hive_keys(file.relative_to(folder)) for file in files]
        first, keys = self._parts[0], self._keys[0]
        for part, more in zip(self._parts, self._keys, strict=True):
            if part.names != first.names or more.keys() != keys.keys():
                raise InputError(f"{part.file}: has other columns than {first.file}")
        self.names = (*first.names, *keys)
        _log.warning("%s: %d Parquet files are read as one table, in the order of their paths", folder, len(files))

    def read(self, types: Mapping[str, Type]) -> Iterator[TablePart]:
        for table, keys in zip(self._parts, self._keys, strict=True):
            own = {name: kind for name, kind in types.items() if name not in keys}
            for part in table.read(own):
                assert isinstance(part, _ParquetPart)
                whole = replace(part, columns=[*part.columns, *([None] * len(keys))], names=self.names)
                for name in types.keys() - own.keys():
                    place, value = self.names.index(name), keys[name]
                    values = pa.array([value] * part.count, pa.int64() if isinstance(value, int) else pa.string())
                    if isinstance(value, str) and types[name] not in ("text", "mask"):
                        raise InputError(f"{table.file}: {name} is {value!r}, expected {_WANTED[types[name]]}")
                    whole.columns[place] = _converted(whole, place, values, types[name], 0)
                yield whole

    def vector_width(self, name: str) -> int:
        return 0 if name in self._keys[0] else self._parts[0].vector_width(name)

    def first(self, name: str) -> str:
        return str(self._keys[0][name]) if name in self._keys[0] else self._parts[0].first(name)


def _hive_keys(path: Path) -> dict[str, int | str]:
    """Return the columns that a file's folders add to all its rows: key -> value."""
    pairs = [part.partition("=") for part in path.parts[:-1] if "=" in part]
    return {
        unquote(key): int(value) if value.isdecimal() and str(int(value)) == value else unquote(value)
        for key, _, value in pairs
    }


_WANTED = {
    "whole": "whole numbers",
    "id": "whole numbers",
    "number": "numbers",
    "float32": "numbers",
    "text": "text or whole numbers",
    "mask": "true or false",
    "vector": "lists of numbers",
}


def _converted(part: TablePart, place: int, values: pa.Array, kind: Type, width: int) -> np.ndarray | pa.Array:
    """Convert a column of a batch for :meth:`Table.read`; ``width`` is the length of the table's first vector."""
    if values.null_count and kind not in ("number", "text"):
        raise part.error(int(np.flatnonzero(values.is_null())[0]), f"{part.name(place)} is empty")
    if kind in ("text", "mask"):
        text = values.cast(pa.string()).fill_null("")
        text.validate(full=True)  # Parquet specifies UTF-8, but a file may have other bytes
        return text
    if kind == "vector":
        return _vectors(part, place, values, width)
    if kind in ("whole", "id") and values.type == pa.uint64():
        big = np.flatnonzero(values.to_numpy() > np.iinfo(np.int64).max)
        if big.size:
            raise part.error(int(big[0]), f"{part.name(place)} is {values[int(big[0])]}, beyond 2^63")
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if kind in ("whole", "id") and pa.types.is_floating(values.type):
        numbers = values.to_numpy().astype(np.float64)
        bad = np.flatnonzero(~((numbers == np.floor(numbers)) & (np.abs(numbers) <= 2**53)))
        if bad.size:
            raise part.error(int(bad[0]), f"{part.name(place)} is {numbers[bad[0]]}, not a whole number up to 2^53")
    wanted = {"whole": pa.int64(), "id": pa.int64(), "number": pa.float64(), "float32": pa.float32()}[kind]
    return values.cast(wanted, safe=False).to_numpy(zero_copy_only=False)


def _vectors(part: TablePart, place: int, values: pa.Array, width: int) -> np.ndarray:
    flat = values.flatten().cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    if not pa.types.is_fixed_size_list(values.type):
        lengths = values.value_lengths().to_numpy(zero_copy_only=False)
        other = np.flatnonzero(lengths != width)
        if other.size:
            row = int(other[0])
            raise part.error(row, f"{part.name(place)} has {lengths[row]} numbers, the first row has {width}")
    return flat.reshape(part.count, width)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
