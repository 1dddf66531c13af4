"""Arrays in ``.npy`` files, verified by their hash."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import write_file


def save(path: Path, values: np.ndarray) -> str:
    """Write and fsync an array of any shape and plain dtype; return the file's sha256 in hex."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    write_file(path, file.getbuffer())
    return hashlib.sha256(file.getbuffer()).hexdigest()


def load(path: Path, sha256: str, advice: str) -> np.ndarray:
    """Read an array that :func:`save` wrote.

    Args:
        path: the file.
        sha256: what :func:`save` returned.
        advice: what to do if the file is wrong, the end of the error message.

    Raises:
        InputError: the file is missing, altered or no ``.npy`` file of numbers; names it.
    """
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InputError(f"{path}: truncated or altered since it was written: {advice}")
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error  # strerror does not repeat the path
        raise InputError(f"{path}: not readable ({reason}): {advice}") from None
