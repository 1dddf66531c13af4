"""Reads pickles of NumPy arrays, SciPy matrices and adjacency lists (Python 2 and 3) without running their code.

A pickle is a program that may call anything. This module refuses every global except those that arrays, CSR matrices
and dictionaries of lists need. It replaces even those by passive records, which it checks and turns into arrays when
the program has ended. So neither foreign code nor a malformed array reaches NumPy's or SciPy's C code.

Before the program runs, its instructions are counted. An instruction that no such pickle has, or that claims more bytes
than the file has, is refused, and the objects that all instructions make must fit into the free memory.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its subpackages load at first use

from mgg.errors import InputError, MggError
from mgg.graph.budget import fit

_NUMBER = re.compile(r"[biuf][1248]")
#: NumPy's names for the dtype of Python objects.
_OBJECTS = ("O", "O4", "O8")

#: Instructions that make or load objects that no array, matrix or dictionary of lists contains.
_FOREIGN = frozenset(
    (
        "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "EMPTY_SET", "ADDITEMS", "FROZENSET", "NEXT_BUFFER",
        "READONLY_BUFFER", "NEWOBJ_EX",
    )
)  # fmt: skip
_MEMO = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
#: Maximum bytes per instruction, in addition to its text: an object, and its places on the stack, in the memo, and in a
#: growing list or dictionary.
_TAKEN = dict.fromkeys(("REDUCE", "NEWOBJ", "OBJ", "INST", "BUILD"), 640)
_TAKEN |= dict.fromkeys(["LIST", "EMPTY_LIST", "DICT", "EMPTY_DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"], 160)
_OTHERS_TAKE = 64
#: Maximum bytes per character: as read, as text of any script, and in the array made of it.
_CHARACTER = 6


def read_pickle(path: Path) -> Any:
    """Read an ndarray, a CSR matrix (scipy.sparse.csr_matrix) or a dictionary of plain values from a pickle.

    Raises:
        InputError: the file cannot be read, is truncated or no pickle, has a malformed array, or needs a global that is
            not allowed, which the message names.
        MachineError: its contents do not fit into the free memory.
    """
    try:
        fit(path.stat().st_size, f"{path}: reading it")
        program = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return read_object(program, str(path))


def read_object(program: bytes, name: str) -> Any:
    """Read a pickle like :func:`read_pickle` from bytes; ``name`` is its name for errors.

    An object array without dimensions, in which ``numpy.save`` stores a SciPy matrix, gives its only element.

    Raises:
        InputError, MachineError: see :func:`read_pickle`.
    """
    try:
        fit(_needed(program), f"{name}: unpickling it")
        return _finished(_Restricted(io.BytesIO(program), encoding="latin1").load())
    except MggError:
        raise
    except _RefusedError as refused:
        raise InputError(f"{name}: refused: this pickle asks for {refused}, which is code, not data") from None
    except Exception as error:  # a broken program may raise any exception in the unpickler
        raise InputError(f"{name}: not a whole pickle of arrays: {' '.join(str(error).split())}") from None


def _needed(program: bytes) -> int:
    """Return the maximum bytes that a pickle takes, from its instructions; raises ValueError if one is malformed.

    ``genops`` refuses strings that are longer than the rest of the file. A program could make the memo's table as long
    as it likes; in every pickle from a real pickler, the memo's numbers are consecutive.
    """
    needed, memos = 0, 0
    code: Any
    argument: Any
    place: Any
    for code, argument, place in pickletools.genops(program):
        if code.name in _FOREIGN:
            raise ValueError(f"byte {place}: {code.name} makes neither array nor dictionary")
        if code.name == "FRAME" and argument > len(program) - place:
            raise ValueError(f"byte {place}: a frame of {argument} bytes, and {len(program) - place} are left")
        if code.name in _MEMO:
            memos += 1
            if not 0 <= argument <= memos:
                raise ValueError(f"byte {place}: memo {argument} where {memos} are made")
        needed += _TAKEN.get(code.name, _OTHERS_TAKE)
        if isinstance(argument, str | bytes | bytearray):
            needed += _CHARACTER * len(argument)
    return needed


class _RefusedError(Exception):
    """The pickle names a global that is not allowed; the message is that name."""


#: Replaces ``numpy.ndarray``: a pickle can neither call a string nor set its attributes.
_NDARRAY = "numpy.ndarray"


# Every record has __setstate__: without it, a pickle could set attributes of the class itself.
class _Array:
    """The record in place of an ndarray; it replaces NumPy's ``_reconstruct``."""

    def __init__(self, kind: Any, *_: Any) -> None:
        if kind != _NDARRAY:
            raise ValueError("only plain arrays are supported")

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, self.fortran, self.raw = state


class _Dtype:
    """The record in place of a NumPy dtype: a plain number type and its byte order, or Python objects."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not (code in _OBJECTS or _NUMBER.fullmatch(code)):
            raise ValueError(f"arrays of type {code!r} are not supported")
        self.code = code
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        if order not in ("<", ">", "|", "="):
            raise ValueError(f"unknown byte order {order!r}")
        self.order = order


class _CsrMatrix:
    """The record in place of a scipy.sparse.csr_matrix."""

    def __setstate__(self, state: Any) -> None:
        self.shape = state["_shape"]
        self.parts = state["data"], state["indices"], state["indptr"]


def _dictionary(factory: Any) -> dict:
    """Replace ``defaultdict``, with which a pickle could copy a dictionary any number of times."""
    if factory != _LIST:
        raise ValueError("a defaultdict of other things than lists")
    return {}


#: Replaces ``list``: a pickle that could call it could copy lists without limit.
_LIST = "list"
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _CsrMatrix,
    ("scipy.sparse._csr", "csr_matrix"): _CsrMatrix,
    ("collections", "defaultdict"): _dictionary,
    ("__builtin__", "list"): _LIST,
    ("builtins", "list"): _LIST,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in _ALLOWED:
            raise _RefusedError(f"{module}.{name}")
        return _ALLOWED[module, name]


def _finished(value: Any) -> Any:
    if isinstance(value, _Array):
        boxed = isinstance(value.dtype, _Dtype) and value.dtype.code in _OBJECTS
        return _finished(_only(value)) if boxed else _array(value)
    if isinstance(value, _CsrMatrix):
        return _csr(value)
    if isinstance(value, dict):
        return value
    raise ValueError(f"holds a {type(value).__name__}")


def _only(record: _Array) -> Any:
    """Return the element of an object array without dimensions; a cycle of such arrays raises RecursionError."""
    if record.shape != () or not isinstance(record.raw, list) or len(record.raw) != 1:
        raise ValueError("an array of several objects")
    return record.raw[0]


def _array(record: _Array) -> np.ndarray:
    raw = record.raw.encode("latin1") if isinstance(record.raw, str) else record.raw
    if not isinstance(raw, bytes) or not isinstance(record.dtype, _Dtype):
        raise ValueError("an array without numbers")
    flat = np.frombuffer(raw, np.dtype(record.dtype.order + record.dtype.code))
    shape = tuple(int(length) for length in record.shape)
    if any(length < 0 for length in shape):
        raise ValueError(f"an array of shape {shape}")
    return flat.reshape(shape, order="F" if record.fortran else "C")


def _csr(record: _CsrMatrix) -> scipy.sparse.csr_matrix:
    return csr_of(*(_array(part) for part in record.parts), shape=record.shape)


def csr_of(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, *, shape: Any) -> scipy.sparse.csr_matrix:
    """Return a SciPy matrix made of unchecked parts; raises ValueError unless they are valid."""
    rows, columns = (int(length) for length in shape)
    if any(part.ndim != 1 for part in (data, indices, indptr)) or any(
        p.dtype.kind not in "iu" for p in (indices, indptr)
    ):
        raise ValueError("a sparse matrix whose parts are not vectors")
    matrix = scipy.sparse.csr_matrix((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=(rows, columns))
    matrix.check_format(full_check=True)
    return matrix
