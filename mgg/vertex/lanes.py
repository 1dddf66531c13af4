"""How the lanes of a warp share the columns of a value: layouts of generated CUDA (``mgg.vertex.cuda``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Axes = tuple[str, ...]
WARP = 32
#: A lane's column ``e``, as generated code calls it, and its head.
COLUMN, HEAD = "at(e)", "h"


@dataclass(frozen=True)
class Layout:
    """Lanes of one arc or row: those of a head side by side, heads beside each other, as many of both as fit a warp.

    Attributes:
        shape: of the widest value. The last axis are columns, those before it heads.
        together: lanes of a head add up what they have, so that one tile has all columns of a head.
        whole: a tile is a warp; lanes that columns do not need are idle.
    """

    shape: tuple[int, ...]
    together: bool = False
    whole: bool = False

    @property
    def columns(self) -> int:
        """Of a head."""
        return self.shape[-1] if self.shape else 1

    @property
    def heads(self) -> int:
        """How many."""
        return prod(self.shape[:-1])

    @property
    def vector(self) -> int:
        """Floats that a lane loads at once, where rows are aligned; of one head the last lane may have fewer."""
        if self.heads == 1:
            return min(4, power(self.columns))
        return next(each for each in (4, 2, 1) if self.columns % each == 0)

    def aligned(self, size: int) -> bool:
        """Whether lanes can load their columns of rows of ``size`` numbers at once."""
        return size % self.vector == 0 and (self.heads == 1 or self.columns % self.vector == 0)

    @property
    def head_lanes(self) -> int:
        """Lanes of a head."""
        return min(WARP, power(-(-self.columns // self.vector)))

    @property
    def parts(self) -> int:
        """How often these lanes have to go on until a head has no more columns, in a tile."""
        return -(-self.columns // (self.head_lanes * self.vector)) if self.together else 1

    @property
    def head_tile(self) -> int:
        """Heads of a tile."""
        most = WARP // self.head_lanes
        return most if self.whole else min(most, power(self.heads))

    @property
    def lanes(self) -> int:
        """Of a tile."""
        return self.head_lanes * self.head_tile

    @property
    def count(self) -> int:
        """Columns of a lane."""
        return self.vector * self.parts

    @property
    def column_tiles(self) -> int:
        """Tiles of a head's columns."""
        return -(-self.columns // (self.head_lanes * self.count))

    @property
    def tiles(self) -> int:
        """All tiles."""
        return -(-self.heads // self.head_tile) * self.column_tiles

    def axes(self, shape: Sequence[int]) -> Axes | None:
        """Which entry of a value of ``shape`` a lane has for column ``e``; None: it has no part of such a value."""
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
        """The place of a lane's head along one of the axes of heads."""
        lead = self.shape[:-1]
        stride = prod(lead[axis + 1 :])
        over = HEAD if stride == 1 else f"({HEAD} / {stride})"
        return over if prod(lead[:axis]) == 1 else f"({over} % {lead[axis]})"

    def includes(self, shape: Sequence[int]) -> bool:
        """Whether lanes have a value of ``shape`` among them."""
        return self.axes(shape) is not None


def wide(axes: Axes) -> bool:
    """Whether the columns of a lane differ."""
    return any(COLUMN in axis for axis in axes)


def pitch(columns: int) -> int:
    """Numbers from row to row where each begins at a multiple of 16 bytes."""
    return -(-columns // 4) * 4


def power(number: int) -> int:
    """The power of two from ``number`` on."""
    return 1 << max(number - 1, 0).bit_length()


def flat(axes: Axes, shape: Sequence[int]) -> str:
    """The place of an entry in C order."""
    terms = []
    for n, axis in enumerate(axes):
        if axis != "0":
            stride = prod(shape[n + 1 :])
            terms.append(axis if stride == 1 else f"{axis} * {stride}")
    return " + ".join(terms) or "0"


def aligned(axes: Axes, shape: Sequence[int]) -> Axes:
    """The entry of an operand of ``shape`` that meets ``axes`` of the result: shapes meet at their first axes."""
    return tuple("0" if length == 1 else axis for axis, length in zip(axes, shape, strict=False))
