"""Named arrays that are parts of one vector, so that one operation on the vector changes them all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mgg.backend.api import Array


class NamedViews(dict[str, Array]):
    """Views of ``flat`` by name, in order; entries are written in place, never replaced.

    Attributes:
        flat: the vector, on any device.
        shapes: shapes of the views, by name.
    """

    def __init__(self, flat: Array, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.flat, self.shapes = flat, dict(shapes)
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()]).tolist()
        places = zip(self.shapes.items(), [0, *ends], ends, strict=False)
        super().__init__({name: flat[first:last].reshape(shape) for (name, shape), first, last in places})


def joined(arrays: Mapping[str, np.ndarray]) -> NamedViews:
    """Copy host ``arrays`` of one dtype into one vector."""
    shapes = {name: array.shape for name, array in arrays.items()}
    return NamedViews(np.concatenate([array.ravel() for array in arrays.values()]), shapes)
