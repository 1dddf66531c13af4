"""Technique ``cola`` on CPU ranks: a PE fetches rows in batches, then spreads them (CoLa algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgg.aggregate.plan import uploaded_csr
from mgg.aggregate.workgroups.columns_by_mate import ColumnsOfMate
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr

#: Size of the buffer for fetched rows, which stay on chip (line 18): it fits a core's second-level cache.
BUFFER_BYTES = 256 * 1024


class FetchedColumns:
    """The columns of one phase.

    Args:
        columns: transpose of the PE's remote arcs, in host memory.
        parts: the ranges of these columns by the PE that has their rows.
    """

    def __init__(self, world: World, columns: Csr, parts: Sequence[ColumnsOfMate]) -> None:
        self._parts = [(part, world.upload(part.rows)) for part in parts]
        self._ends, self._columns = columns.indptr, uploaded_csr(world, columns)

    def __call__(self, world: World, held: SymmetricArray, acc: Array) -> None:
        """Add the product with the rows of the mates' ``held`` [*, D] to ``acc`` [rows, D]."""
        for part, rows in self._parts:
            self._spread_part(world, part, rows, held, acc)

    def _spread_part(self, world: World, part: ColumnsOfMate, rows: Array, held: SymmetricArray, acc: Array) -> None:
        dim = acc.shape[1]
        batch = max(1, min(BUFFER_BYTES // (4 * dim), part.last - part.first))
        buffer = world.xp.empty((batch, dim), np.float32)
        for start in range(part.first, part.last, batch):
            stop = min(start + batch, part.last)
            fetched = buffer[: stop - start]
            wanted = rows[start - part.first : stop - part.first]
            world.get_rows(held, part.mate, wanted, fetched, part.operation)
            self._spread(world, start, stop, fetched, acc)

    def _spread(self, world: World, start: int, stop: int, fetched: Array, acc: Array) -> None:
        """Add the fetched rows of columns start..stop to the output rows that need them."""
        columns = self._columns
        arcs = slice(int(self._ends[start]), int(self._ends[stop]))
        weights = None if columns.weights is None else columns.weights[arcs]
        world.operators.spmm_columns(columns.indptr[start : stop + 1], columns.indices[arcs], weights, fetched, acc)
