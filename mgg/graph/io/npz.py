"""Reads members of untrusted ``.npz`` archives: checks headers against sizes, and runs no pickled code.

``numpy.load`` trusts a header, allocates its size, and can only read whole members. This module first compares the
shape with the member's size, can read members block by block in constant memory, and passes objects to the restricted
unpickler.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy

from mgg.errors import InputError
from mgg.graph.budget import fit
from mgg.graph.io.unpickle import read_object

#: Limit of a member that is read whole: this many bytes plus a multiple of the archive's size. Graphs stay below 20
#: times; a bomb of zeros reaches 1000.
SPARE_BYTES = 2**26
MOST_RATIO = 100

#: NumPy's errors for an invalid header.
HEADER_ERRORS = (ValueError, EOFError, SyntaxError, tokenize.TokenError)
_SUFFIX = ".npy"
#: Maximum bytes of a member with a short text.
_LONGEST_TEXT = 64


@dataclass(frozen=True)
class Header:
    """A member's header: its shape, dtype and order (``fortran``: column by column)."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool


class Npz:
    """An open archive; a context manager.

    Raises:
        InputError: the file cannot be read or is no zip archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._limit = SPARE_BYTES + MOST_RATIO * path.stat().st_size
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise InputError(f"{path}: not a whole .npz (zip) archive: {error}") from None
        self.keys = frozenset(name.removesuffix(_SUFFIX) for name in self._zip.namelist())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def header(self, key: str) -> Header:
        """Return the header of member ``key``; raises InputError if it is missing or does not fit the member's size."""
        with self._open(key) as (_, header):
            return header

    def array(self, key: str) -> np.ndarray:
        """Read a whole numeric array; raises InputError for other contents or an absurd size."""
        with self._open(key) as (file, header):
            self._numeric(key, header)
            self._bounded(key)
            return np.frombuffer(file.read(), header.dtype).reshape(header.shape, order="F" if header.fortran else "C")

    def value(self, key: str) -> Any:
        """Read a numeric array, or the value in a pickled one (:func:`mgg.graph.io.unpickle.read_object`)."""
        with self._open(key) as (file, header):
            if not header.dtype.hasobject:
                return self.array(key)
            self._bounded(key)
            return read_object(file.read(), f"{self.path}: {key}{_SUFFIX}")

    def text(self, key: str) -> str:
        """Read a member with one short text."""
        with self._open(key) as (file, header):
            if header.dtype.kind not in "SU" or header.shape != () or header.dtype.itemsize > _LONGEST_TEXT:
                raise InputError(f"{self.path}: {key}{_SUFFIX}: expected a word, found {header.dtype} {header.shape}")
            value = np.frombuffer(file.read(), header.dtype)[0]
            return value.decode("latin1") if isinstance(value, bytes) else str(value)

    def flat(self, key: str, count: int) -> Iterator[np.ndarray]:
        """Yield the numbers of an array of any shape in their stored order, at most ``count`` at a time."""
        with self._open(key) as (file, header):
            self._numeric(key, header)
            total = math.prod(header.shape)
            for lo in range(0, total, count):
                size = min(count, total - lo) * header.dtype.itemsize
                data = file.read(size)
                if len(data) != size:
                    raise EOFError(f"it ends after {lo * header.dtype.itemsize + len(data)} bytes of numbers")
                yield np.frombuffer(data, header.dtype)

    def blocks(self, key: str, rows: int) -> Iterator[np.ndarray]:
        """Yield a numeric array in blocks of at most ``rows`` rows, in constant memory.

        Raises:
            InputError: see ``array``; or the array is stored column by column.
        """
        with self._open(key) as (file, header):
            self._numeric(key, header)
            if not header.shape or (header.fortran and len(header.shape) > 1):
                raise InputError(f"{self.path}: {key}{_SUFFIX}: shape {header.shape} cannot be read row by row")
            width = math.prod(header.shape[1:]) * header.dtype.itemsize
            for lo in range(0, header.shape[0], rows):
                count = min(rows, header.shape[0] - lo)
                data = file.read(count * width)
                if len(data) != count * width:
                    raise EOFError(f"it ends in row {lo + len(data) // max(width, 1)}")
                yield np.frombuffer(data, header.dtype).reshape(count, *header.shape[1:])

    @contextmanager
    def _open(self, key: str) -> Iterator[tuple[IO[bytes], Header]]:
        """Open a member after its header; errors of zip, zlib and the header parser name file and member."""
        if f"{key}{_SUFFIX}" not in self._zip.namelist():
            raise InputError(
                f"{self.path}: has no member {key}{_SUFFIX}; found {', '.join(sorted(self.keys)) or 'none'}"
            )
        info = self._zip.getinfo(f"{key}{_SUFFIX}")
        try:
            with self._zip.open(info) as file:
                yield file, read_header(file, info.file_size)
        except (*HEADER_ERRORS, zipfile.BadZipFile, zlib.error, OSError, RuntimeError) as error:
            raise InputError(f"{self.path}: {key}{_SUFFIX}: {' '.join(str(error).split())}") from None

    def _numeric(self, key: str, header: Header) -> None:
        if header.dtype.kind not in "biuf":
            raise InputError(f"{self.path}: {key}{_SUFFIX}: expected numbers, found dtype {header.dtype}")

    def _bounded(self, key: str) -> None:
        """Check a member's size in the directory, which the zip reader never exceeds, so it limits the allocation."""
        size = self._zip.getinfo(f"{key}{_SUFFIX}").file_size
        if size > self._limit:
            raise InputError(
                f"{self.path}: {key}{_SUFFIX}: unpacks to {size} bytes, at most {self._limit} are believed of this file"
            )
        fit(size, f"{self.path}: {key}{_SUFFIX}: reading it whole")


def read_header(file: IO[bytes], size: int) -> Header:
    """Parse the header of a ``.npy`` file of ``size`` bytes, up to the first number.

    Raises:
        HEADER_ERRORS: the header is invalid, or its shape does not fit the size.
    """
    version = npy.read_magic(file)
    if version == (1, 0):
        header = Header(*_ordered(npy.read_array_header_1_0(file)))
    elif version == (2, 0):
        header = Header(*_ordered(npy.read_array_header_2_0(file)))
    else:
        raise ValueError(f"is of .npy version {version}; 1.0 and 2.0 are supported")
    wanted, found = math.prod(header.shape) * header.dtype.itemsize, size - file.tell()
    if any(length < 0 for length in header.shape) or (not header.dtype.hasobject and wanted != found):
        raise ValueError(f"its header promises {wanted} bytes (shape {header.shape}, {header.dtype}), it holds {found}")
    return header


def _ordered(parsed: tuple[tuple[int, ...], bool, np.dtype]) -> tuple[tuple[int, ...], np.dtype, bool]:
    shape, fortran, dtype = parsed
    return shape, dtype, fortran
