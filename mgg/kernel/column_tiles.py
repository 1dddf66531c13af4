"""Tiles of columns with which kernels cover a matrix, and their shared memory in MGG's kernel.

Computed without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

WARP = 32
#: Bytes of fetched rows per warp of the ``mgg`` kernel in shared memory: 40 warps fit a multiprocessor.
_STAGE_BYTES = 4096
#: Fewest lanes per row of the ``mgg`` kernel.
_NARROWEST = 4


def column_tiles(columns: int, vector: int, widest: int = WARP, narrowest: int = 1) -> Iterator[tuple[int, int, int]]:
    """Yield launches that cover ``columns``: lanes per row, first column, tiles of columns side by side.

    Args:
        vector: elements that a lane loads at once.
        widest, narrowest: most and fewest lanes per row, powers of two.
    """
    vectors = -(-columns // vector)
    full, rest = divmod(vectors, widest)
    if full and rest > widest // 2:
        full, rest = full + 1, 0
    if full:
        yield widest, 0, full
    if rest:
        yield max(power(rest), narrowest), full * widest * vector, 1


def power(lanes: int) -> int:
    """Return the smallest power of two that is at least ``lanes``."""
    return 1 << (lanes - 1).bit_length()


class MggTile(NamedTuple):
    """A launch of the ``mgg`` kernel: the values of ``column_tiles``, rows a warp fetches, bytes of shared memory."""

    lanes: int
    first: int
    tiles: int
    stage: int
    shared: int


def mgg_tiles(columns: int, vector: int, ps: int | None, wpb: int, batch: int | None = None) -> list[MggTile]:
    """Return the launches of the ``mgg`` kernel that cover ``columns``.

    Args:
        vector: elements that a lane loads at once.
        ps: most arcs of a neighbor partition; None: whole rows.
        wpb: warps per block.
        batch: most rows in flight per warp; None: as many as its share of shared memory holds.
    """
    found = []
    for lanes, first, tiles in column_tiles(columns, vector, narrowest=_NARROWEST):
        width = lanes * vector * 4
        stage = min(ps or WARP, WARP, batch or WARP, max(1, _STAGE_BYTES // width))
        found.append(MggTile(lanes, first, tiles, stage, wpb * (2 + stage) * width))
    return found


def mgg_shared(columns: int, ps: int | None, wpb: int) -> int:
    """Return the most shared memory in bytes that a block of the ``mgg`` kernel uses, with rows padded to 16 bytes."""
    return max(tile.shared for tile in mgg_tiles(columns, 4, ps, wpb))
