"""Import weights that were trained elsewhere: read files of named arrays and match them with a model's arrays."""

from __future__ import annotations

import difflib
import hashlib
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from mgg.errors import InputError
from mgg.model import Array, Chain
from mgg.schema import nearest

#: Float types of safetensors that NumPy has, too.
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
#: Suffixes of a model array's name in a map, and how each converts the file's array to the model's shape.
_CHANGES: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    ".T": lambda array, shape: array.T,
    ".reshape": lambda array, shape: array.reshape(shape) if array.size == math.prod(shape) else array,
    "": lambda array, shape: array,
}
#: Arrays by name: the file's name of the type, and the values; int8 zeros stand for types that are not floats.
Found = Mapping[str, tuple[str, Array]]
_LISTED = 8


def read(path: Path) -> tuple[Found, str]:
    """Return the arrays of a ``.safetensors`` or ``.npz`` file and its sha256; raise InputError if it is unreadable."""
    if path.is_dir() or path.suffix not in (".safetensors", ".npz"):
        raise InputError(
            f"{path}: is neither a .safetensors nor a .npz file; in PyTorch:"
            " safetensors.torch.save_file(model.state_dict(), 'w.safetensors')"
        )
    try:
        content = path.read_bytes()
        if path.suffix == ".safetensors":
            found = {name: (entry["dtype"], _array(**entry)) for name, entry in deserialize(content)}
        else:
            with np.load(BytesIO(content), allow_pickle=False) as file:
                found = {name: (str(file[name].dtype), file[name]) for name in file.files}
    except (OSError, SafetensorError, zipfile.BadZipFile, ValueError, EOFError) as error:
        raise InputError(f"{path}: cannot be read, or torn ({' '.join(str(error).split())[:80]})") from None
    return found, hashlib.sha256(content).hexdigest()


def _array(dtype: str, shape: list[int], data: bytes) -> Array:
    if dtype == "BF16":  # NumPy has no such type: it is the upper half of a float32
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, _FLOATS[dtype]).reshape(shape) if dtype in _FLOATS else np.zeros(shape, np.int8)


def fitted(path: Path, found: Found, maps: Iterable[str], chain: Chain) -> tuple[dict[str, Array], str]:
    """Return weights (float32) and running statistics (float64) of ``chain`` by name, and a note on conversions.

    Args:
        path, found: the file, and the arrays that ``read`` returned.
        maps: ``theirs=ours`` for arrays with other names; ``ours.T`` takes the transpose, ``ours.reshape`` keeps the
            order of the values, and an empty ``ours`` leaves the array out.
        chain: the model.

    Raises:
        InputError: names or shapes do not match one to one, or values are not finite floats.
    """
    mine: dict[str, tuple[tuple[int, ...], Any]] = {each.name: (each.shape, np.float32) for each in chain.parameters}
    mine |= {name: (value.shape, np.float64) for name, value in chain.state.items()}
    given: dict[str, str] = {}
    arrays: dict[str, Array] = {}
    for theirs, (ours, change) in ({name: (name, "") for name in found} | _mapped(path, maps, found, mine)).items():
        if ours in given:
            raise InputError(f"{path}: both {given[ours]} and {theirs} would be {ours}: --map one of them otherwise")
        if ours:
            given[ours], arrays[ours] = theirs, _CHANGES[change](found[theirs][1], mine.get(ours, ((),))[0])
    if misfit := _misfit(mine, given, arrays):
        raise InputError(
            f"{path}: does not fit the model: {misfit}: --map THEIRS=OURS renames, OURS.T takes the transpose,"
            " OURS.reshape the values in their order, and an empty OURS leaves one out"
        )
    for ours, (_, dtype) in mine.items():
        if arrays[ours].dtype.kind != "f":
            raise InputError(f"{path}: {given[ours]} is of type {found[given[ours]][0]}, and not of floats")
        with np.errstate(over="ignore"):
            arrays[ours] = np.array(arrays[ours], dtype, order="C")
        if not np.isfinite(arrays[ours]).all():
            raise InputError(f"{path}: {given[ours]} has values that are not finite as {np.dtype(dtype)}")
    converted = {found[theirs][0] for theirs in given.values()} - {"F32", "float32"}
    note = f"{path}: arrays of type {', '.join(sorted(converted))} are converted to float32" if converted else ""
    return arrays, note


def _mapped(path: Path, maps: Iterable[str], found: Found, mine: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the model's name (empty: leave out) and the suffix of ``_CHANGES``, by name in the file."""
    named: dict[str, tuple[str, str]] = {}
    for text in maps:
        theirs, equals, whole = text.partition("=")
        change = next(end for end in _CHANGES if whole.endswith(end) and (whole not in mine or not end))
        ours = whole.removesuffix(change)
        if not equals or not theirs or theirs in named:
            raise InputError(f"--map {text}: expected THEIRS=OURS, once for each of theirs")
        if theirs not in found:
            raise InputError(f"--map {text}: {path} has no {theirs}; {nearest(theirs, found)}")
        if whole and ours not in mine:
            raise InputError(f"--map {text}: the model has no {ours}; {nearest(ours, mine)}")
        named[theirs] = ours, change
    return named


def _misfit(mine: Mapping[str, Any], given: Mapping[str, str], arrays: Mapping[str, Array]) -> str:
    """Describe the arrays that are missing, unknown or of another shape; empty if there are none."""
    unknown = {theirs: f"{theirs} {list(arrays[ours].shape)}" for ours, theirs in given.items() if ours not in mine}
    missing, other = [], []
    for ours, (shape, _) in mine.items():
        if ours not in given:
            near = difflib.get_close_matches(ours, unknown, n=1, cutoff=0.3)
            missing.append(f"{ours} {list(shape)}{f' (nearest: {unknown[near[0]]})' if near else ''}")
        elif arrays[ours].shape != shape:
            other.append(f"{given[ours]} {list(arrays[ours].shape)} for {ours} {list(shape)}")
    parts = {"missing": missing, "unknown": list(unknown.values()), "of another shape": other}
    more = {what: f" and {len(names) - _LISTED} more" * (len(names) > _LISTED) for what, names in parts.items()}
    return "; ".join(f"{what} {', '.join(names[:_LISTED])}{more[what]}" for what, names in parts.items() if names)
