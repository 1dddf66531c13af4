"""Neighbor partitions: rows cut into pieces of at most ``ps`` arcs (MGG 4.1, step 3), computed for each plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NeighborPartitions:
    """Pieces of a CSR's rows, in row order: piece i has arcs ``starts[i] .. stops[i]`` of row ``rows[i]``."""

    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, span: slice) -> NeighborPartitions:
        return NeighborPartitions(self.rows[span], self.starts[span], self.stops[span])


def neighbor_partitions(indptr: np.ndarray, ps: int | None) -> NeighborPartitions:
    """Cut every row into pieces of ``ps`` arcs; the last may be shorter, and empty rows have none.

    Args:
        indptr: int64 [rows + 1].
        ps: most arcs per piece; None keeps each row whole.

    Returns:
        int64 arrays, one entry per piece.
    """
    lengths = np.diff(indptr)
    pieces = (lengths > 0).astype(np.int64) if ps is None else -(-lengths // ps)
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), pieces)
    if ps is None:
        return NeighborPartitions(rows, indptr[rows], indptr[rows + 1])
    first = np.cumsum(pieces) - pieces
    starts = indptr[rows] + (np.arange(len(rows)) - first[rows]) * ps
    return NeighborPartitions(rows, starts, np.minimum(starts + ps, indptr[rows + 1]))
