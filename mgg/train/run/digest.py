"""Hash named tensors and their metadata, to recognize a torn or altered file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from mgg.model import Array


def digest(text: str, tensors: Mapping[str, Array]) -> str:
    """Return the sha256 of ``text`` and of the tensors' names, types, shapes and values, without copies."""
    found = hashlib.sha256(text.encode())
    for chunk in _chunks(tensors):
        found.update(chunk)
    return found.hexdigest()


def _chunks(tensors: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    for name in sorted(tensors):
        array = tensors[name]
        yield f"{name} {array.dtype} {array.shape}".encode()
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
