"""Arrays in memory outside a PE's device that its work reads and writes in place (``World.outside``)."""

from __future__ import annotations

import weakref
from collections import defaultdict
from math import prod
from typing import Any

import numpy as np

from mgg.backend.api import Array, Outside, World


class OutsideArrays:
    """Arrays in mapped files (CPU PEs) or in page-locked memory that kernels address (GPU PEs).

    Memory whose array is gone serves the next array of its size. On GPUs work has to be submitted to one stream, in
    whose order memory changes hands.

    Args:
        world: the PE's world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._free: dict[int, list[Outside]] = defaultdict(list)
        self._pieces: list[Outside] = []

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """Return an array of ``shape`` on the device, which is not initialized.

        Raises:
            MachineError: too little memory, see ``World.outside``.
        """
        dims = shape if isinstance(shape, tuple) else (shape,)
        size = prod(dims) * np.dtype(dtype).itemsize
        free = self._free[max(size, 1)]
        piece = free.pop() if free else self._allocated(max(size, 1))
        owner = _Owner()
        weakref.finalize(owner, free.append, piece)
        return piece.on_device(owner)[:size].view(dtype).reshape(dims)

    def upload(self, array: np.ndarray) -> Array:
        """Return a copy of ``array`` with its shape and dtype on the device; errors as ``empty``."""
        piece = self._allocated(max(array.size * array.itemsize, 1))
        size = array.size * array.itemsize
        np.copyto(piece.bytes[:size].view(array.dtype).reshape(array.shape), array)
        return piece.on_device(piece)[:size].view(array.dtype).reshape(array.shape)

    def _allocated(self, size: int) -> Outside:
        self._pieces.append(self._world.outside(size))
        return self._pieces[-1]

    def close(self) -> None:
        """Free the memory; no array and no submitted work may be left."""
        self._free.clear()
        for piece in self._pieces:
            piece.close()
        self._pieces.clear()


class _Owner:
    """What an array refers to as long as it or a view of it lives."""
