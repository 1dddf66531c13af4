"""Technique ``cola``: column-wise remote SpMM, each remote row fetched once and reused (CoLa 3.2, algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate.plan import Plan
from mgg.backend.api import SymmetricArray
from mgg.layout.split import transposed

#: Fetched rows are kept on chip (algorithm 1, line 18): on a CPU, what fits its second-level cache.
BUFFER_BYTES = 256 * 1024


class Cola(Plan):
    """Row-wise SpMM on the local sparse chunk, column-wise on the remote one."""

    name = "cola"
    deterministic = False  # on GPUs its float atomics make the last bits vary

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._columns = transposed(self.product.remote).csr

    def _aggregate(self, source: SymmetricArray, out: np.ndarray) -> None:
        operators, local = self.world.operators, self.product.local
        dim = out.shape[1]
        acc = self.accumulator(dim) if self.product.halo else out
        operators.spmm_rows(local.indptr, local.indices, local.weights, source.local, acc, False)
        batch = max(1, BUFFER_BYTES // (4 * dim))
        buffer = np.empty((batch, dim), np.float32)
        for pe in range(self.world.size):
            first, last = int(self.product.halo_ptr[pe]), int(self.product.halo_ptr[pe + 1])
            for start in range(first, last, batch):
                stop = min(start + batch, last)
                fetched = buffer[: stop - start]
                self.world.get_rows(source, pe, self.product.halo_rows[start:stop], fetched)
                self._spread(start, stop, fetched, acc)
        operators.finish(acc, out)

    def _spread(self, start: int, stop: int, fetched: np.ndarray, acc: np.ndarray) -> None:
        """Add the columns start..stop, whose rows have been fetched, to the output rows that need them."""
        columns = self._columns
        arcs = slice(columns.indptr[start], columns.indptr[stop])
        weights = None if columns.weights is None else columns.weights[arcs]
        colptr = columns.indptr[start : stop + 1]
        self.world.operators.spmm_columns(colptr, columns.indices[arcs], weights, fetched, acc)
