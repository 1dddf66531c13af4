"""Layouts of generated CUDA (``mgg.vertex.cuda``): how the lanes of a warp share the columns of a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Axes = tuple[str, ...]
WARP = 32
#: Names in generated code of a lane's column ``e`` and of its head.
COLUMN, HEAD = "at(e)", "h"


@dataclass(frozen=True)
class Layout:
    """Lanes of one arc or row: lanes of a head side by side, head after head, as many of both as fit a warp.

    Attributes:
        shape: shape of the widest value. The last axis is columns, the axes before it are heads.
        together: lanes of a head sum over its columns, so one tile has all columns of a head.
        whole: a tile is a whole warp; lanes that the columns do not need are idle.
    """

    shape: tuple[int, ...]
    together: bool = False
    whole: bool = False

    @property
    def columns(self) -> int:
        """Columns per head."""
        return self.shape[-1] if self.shape else 1

    @property
    def heads(self) -> int:
        """Number of heads."""
        return prod(self.shape[:-1])

    @property
    def vector(self) -> int:
        """Floats that a lane loads at once from aligned rows; with a single head, the last lane may have fewer."""
        if self.heads == 1:
            return min(4, power(self.columns))
        return next(each for each in (4, 2, 1) if self.columns % each == 0)

    def aligned(self, size: int) -> bool:
        """Return whether lanes can load their columns at once from rows of ``size`` entries."""
        return size % self.vector == 0 and (self.heads == 1 or self.columns % self.vector == 0)

    @property
    def head_lanes(self) -> int:
        """Lanes per head."""
        return min(WARP, power(-(-self.columns // self.vector)))

    @property
    def parts(self) -> int:
        """Vectors per lane in a tile: how often the lanes advance to cover the columns of a head."""
        return -(-self.columns // (self.head_lanes * self.vector)) if self.together else 1

    @property
    def head_tile(self) -> int:
        """Heads per tile."""
        most = WARP // self.head_lanes
        return most if self.whole else min(most, power(self.heads))

    @property
    def lanes(self) -> int:
        """Lanes per tile."""
        return self.head_lanes * self.head_tile

    @property
    def count(self) -> int:
        """Columns per lane."""
        return self.vector * self.parts

    @property
    def column_tiles(self) -> int:
        """Tiles per head."""
        return -(-self.columns // (self.head_lanes * self.count))

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return -(-self.heads // self.head_tile) * self.column_tiles

    def axes(self, shape: Sequence[int]) -> Axes | None:
        """Return a lane's entry of a value of ``shape`` for column ``e``; None: the lane has no part of it."""
        if prod(shape) == 1:
            return ("0",) * len(shape)
        own = self.shape or (1,)
        fits = all(length in (1, own[axis] if axis < len(own) else 1) for axis, length in enumerate(shape))
        if not fits:
            flat_one = COLUMN if self.heads == 1 else f"({HEAD} * {self.columns} + {COLUMN})"
            return (flat_one,) if tuple(shape) == (prod(own),) else None
        axes = []
        for axis, length in enumerate(shape):
            if length == 1:
                axes.append("0")
            else:
                axes.append(COLUMN if axis == len(own) - 1 else self.head_axis(axis))
        return tuple(axes)

    def head_axis(self, axis: int) -> str:
        """Return the index of a lane's head along one of the axes of heads."""
        lead = self.shape[:-1]
        stride = prod(lead[axis + 1 :])
        over = HEAD if stride == 1 else f"({HEAD} / {stride})"
        return over if prod(lead[:axis]) == 1 else f"({over} % {lead[axis]})"

    def includes(self, shape: Sequence[int]) -> bool:
        """Return whether the lanes together can hold a value of ``shape``."""
        return self.axes(shape) is not None


def wide(axes: Axes) -> bool:
    """Return whether the entry differs between the columns of a lane."""
    return any(COLUMN in axis for axis in axes)


def pitch(columns: int) -> int:
    """Return the distance of rows, in entries, if each row begins at a multiple of 16 bytes."""
    return -(-columns // 4) * 4


def power(number: int) -> int:
    """Return the least power of two that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()


def flat(axes: Axes, shape: Sequence[int]) -> str:
    """Return the position of an entry in C order."""
    terms = []
    for n, axis in enumerate(axes):
        if axis != "0":
            stride = prod(shape[n + 1 :])
            terms.append(axis if stride == 1 else f"{axis} * {stride}")
    return " + ".join(terms) or "0"


def aligned(axes: Axes, shape: Sequence[int]) -> Axes:
    """Return the entry of an operand of ``shape`` for entry ``axes`` of the result; first axes are aligned."""
    return tuple("0" if length == 1 else axis for axis, length in zip(axes, shape, strict=False))
