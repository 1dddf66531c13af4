"""Merge equal remote requests of a thread block (MGG 5.1), so that each block requests a row once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class FetchRequests:
    """The requests of all blocks, on the device.

    Attributes:
        sources: uint64 [requests], from ``remote_sources``, block by block.
        first: int64 [blocks + 1], first request of each block.
        rows: float32 [requests, stride], target of the fetched rows; addressed as the copy of one more PE.
    """

    sources: Any
    first: Any
    rows: Any

    @property
    def arguments(self) -> tuple[Any, Any, Any]:
        """The arguments for the kernel."""
        return self.sources, self.first, np.uint64(self.rows.data.ptr)


def bounds(local: int, remote: int, dist: int, wpb: int, interleave: bool) -> np.ndarray:
    """Return where each block's remote partitions begin, int64 [blocks + 1]; ``local``, ``remote``: their numbers."""
    if interleave:
        warps = -(-max(local, remote) // dist)
        first = np.arange(warps + 1) * remote // max(warps, 1)
    else:
        before, after = -(-local // dist), -(-remote // dist)
        first = np.minimum(np.maximum(np.arange(before + after + 1) - before, 0) * dist, remote)
    return np.append(first[:-1:wpb], remote).astype(np.int64)


def merged(sources: np.ndarray, arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge the requests of blocks, where block b has the arcs ``arcs[b] .. arcs[b + 1]``.

    Args:
        sources: uint64 [arcs], the row that each remote arc needs.
        arcs: int64 [blocks + 1].

    Returns:
        The requests, uint64, block by block; the first request of each block, int64 [blocks + 1]; and the request of
        each arc, int64 [arcs].
    """
    block = np.repeat(np.arange(len(arcs) - 1), np.diff(arcs))
    order = np.lexsort((sources, block))
    sorted_sources, sorted_block = sources[order], block[order]
    new = np.ones(len(order), bool)
    new[1:] = (sorted_sources[1:] != sorted_sources[:-1]) | (sorted_block[1:] != sorted_block[:-1])
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(new) - 1
    counts = np.bincount(sorted_block[new], minlength=len(arcs) - 1)
    return sorted_sources[new], np.concatenate(([0], np.cumsum(counts))).astype(np.int64), place
