"""Tables with named columns, as CSV or Parquet, read part by part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mgg.errors import InputError
from mgg.graph.text import NUMBER_FIRST, Column, Layout, Part, lines, read_rows

#: How a column is read: as text.Column says; ``number`` may be empty (nan), ``text`` too (""). ``vector``: float32
#: rows of one length, which only Parquet has.
Type = Literal["whole", "id", "number", "float32", "text", "vector"]

#: Rows of a part of a Parquet file.
PARQUET_ROWS = 2**18

_MAGIC = b"PAR1"
_CSV: dict[str, tuple[Literal["int64", "id", "float64", "float32", "text"], bool]] = {
    "whole": ("int64", False), "id": ("id", False), "number": ("float64", True), "float32": ("float32", False),
    "text": ("text", True),
}  # fmt: skip


class Table(ABC):
    """A file of named columns; ``names`` gives them in order, "" for one that has no name."""

    file: Path
    names: tuple[str, ...]

    @abstractmethod
    def read(self, types: Mapping[str, Type]) -> Iterator[Part]:
        """The columns that ``types`` names, in parts; the place of a column in a part is that in ``names``.

        Raises:
            InputError: names file and line (row of a Parquet file) of what is not of its column's type.
        """

    @abstractmethod
    def vector_width(self, name: str) -> int:
        """The length of the vectors of a column, 0 if it holds none."""


def open_table(file: Path, *, headless: tuple[str, ...] = ()) -> Table:
    """The table in a file: Parquet if it begins like that, else CSV, compressed or not.

    Args:
        file: the file.
        headless: names of the first columns of a CSV file whose first line begins with as many numbers; without them,
            such a file is refused.

    Raises:
        InputError: the file cannot be read, has no header, or one with repeated or empty names.
    """
    try:
        with file.open("rb") as raw:
            parquet = raw.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    table = _Parquet(file) if parquet else _Csv(file, headless)
    named = [name for name in table.names if name]
    if len(set(named)) != len(named):
        raise InputError(f"{file}: two columns are called {max(named, key=named.count)!r}")
    return table


class _Csv(Table):
    """Fields divided by commas, or by tabs where the first line has tabs and no comma; ``#`` begins a comment line."""

    def __init__(self, file: Path, headless: tuple[str, ...]) -> None:
        self.file = file
        base = Layout((), ",", comments=b"#", quoted=True)
        kept = ((number, line) for number, line in lines(file) if base.content(line.encode()) is not None)
        self.skip, first = next(kept, (0, ",".join(headless)))
        self.delimiter = "\t" if "\t" in first and "," not in first else ","
        names = replace(base, delimiter=self.delimiter).fields(first.encode()) if first else []
        if headless and all(_is_number(name) for name in names[: len(headless)]):
            self.skip = 0
            names = [*headless, *[""] * (len(names) - len(headless))]
        elif not names or any(_is_number(name) or not name for name in names):
            what = f"line {self.skip}: no header: {first[:60]!r} holds numbers or empty names" if names else "is empty"
            raise InputError(f"{file}: {what}")
        self.names = tuple(names)

    def read(self, types: Mapping[str, Type]) -> Iterator[Part]:
        columns = []
        for place, name in enumerate(self.names):
            kind, empty = _CSV[types[name]] if name in types else ("skip", False)
            columns.append(Column(name or f"column {place + 1}", kind, empty))  # type: ignore[arg-type]
        layout = Layout(tuple(columns), self.delimiter, comments=b"#", quoted=True)
        yield from read_rows(self.file, layout, self.skip)

    def vector_width(self, name: str) -> int:
        return 0


@dataclass(frozen=True)
class _ParquetPart(Part):
    file: Path
    names: tuple[str, ...]
    first: int

    def name(self, column: int) -> str:
        return self.names[column]

    def error(self, row: int, problem: str) -> InputError:
        return InputError(f"{self.file}: row {self.first + row}: {problem}")


def _batches(file: pyarrow.parquet.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Row group by row group: asked for all of them at once, Arrow holds several in memory."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(PARQUET_ROWS, row_groups=[group], columns=columns, use_threads=False)


class _Parquet(Table):
    """Rows are counted from 0 in errors."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with self._open() as opened:
            self.schema = opened.schema_arrow
            self.names = tuple(self.schema.names)

    def read(self, types: Mapping[str, Type]) -> Iterator[Part]:
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
        whole, real = pa.types.is_integer(inner), pa.types.is_floating(inner) or pa.types.is_boolean(inner)
        text = pa.types.is_string(inner) or pa.types.is_large_string(inner)
        if not (whole or (kind == "text" and text) or (kind not in ("whole", "id", "text") and real)):
            remedy = NUMBER_FIRST if kind == "id" and text else ""
            raise InputError(f"{self.file}: column {name!r} is of type {found}, expected {_WANTED[kind]}{remedy}")


_WANTED = {
    "whole": "whole numbers",
    "id": "whole numbers",
    "number": "numbers",
    "float32": "numbers",
    "text": "text or whole numbers",
    "vector": "lists of numbers",
}


def _converted(part: Part, place: int, values: pa.Array, kind: Type, width: int) -> np.ndarray | pa.Array:
    """A column of a batch as :meth:`Table.read` gives it; ``width`` is the length of the table's first vector."""
    if values.null_count and kind not in ("number", "text"):
        raise part.error(int(np.flatnonzero(values.is_null())[0]), f"{part.name(place)} is empty")
    if kind == "text":
        text = values.cast(pa.string()).fill_null("")
        text.validate(full=True)  # Parquet promises UTF-8, nothing keeps it from holding other bytes
        return text
    if kind == "vector":
        return _vectors(part, place, values, width)
    if kind in ("whole", "id") and values.type == pa.uint64():
        big = np.flatnonzero(values.to_numpy() > np.iinfo(np.int64).max)
        if big.size:
            raise part.error(int(big[0]), f"{part.name(place)} is {values[int(big[0])]}, beyond 2^63")
    wanted = {"whole": pa.int64(), "id": pa.int64(), "number": pa.float64(), "float32": pa.float32()}[kind]
    return values.cast(wanted, safe=False).to_numpy(zero_copy_only=False)


def _vectors(part: Part, place: int, values: pa.Array, width: int) -> np.ndarray:
    """float32 [rows, width]; InputError for a vector of another length than ``width``."""
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
