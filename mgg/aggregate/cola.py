"""Technique ``cola``: column-wise remote SpMM, each remote row fetched once and reused (CoLa 3.2, algorithm 1)."""

from __future__ import annotations

import numpy as np

from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.backend.api import Array, SymmetricArray
from mgg.layout.split import transposed

#: Fetched rows are kept on chip (algorithm 1, line 18): what fits the second-level cache of a core, of a GPU.
CPU_BUFFER_BYTES = 256 * 1024
GPU_BUFFER_BYTES = 32 * 1024 * 1024


class Cola(Plan):
    """Row-wise SpMM on the local sparse chunk, column-wise on the remote one."""

    name = "cola"
    deterministic = False  # on GPUs its float atomics make the last bits vary

    def _build(self) -> None:
        columns = transposed(self.host.remote).csr
        self._colptr, self._columns = columns.indptr, uploaded_csr(self.world, columns)
        self._buffer_bytes = GPU_BUFFER_BYTES if self.world.gpu else CPU_BUFFER_BYTES

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        operators, local = self.world.operators, self.product.local
        dim = out.shape[1]
        acc = self.accumulator(dim) if self.host.halo else out
        operators.spmm_rows(local.indptr, local.indices, local.weights, source.local, acc, False)
        batch = max(1, min(self._buffer_bytes // (4 * dim), self.host.halo))
        buffer = self.world.xp.empty((batch, dim), np.float32)
        for pe in range(self.world.size):
            first, last = int(self.host.halo_ptr[pe]), int(self.host.halo_ptr[pe + 1])
            for start in range(first, last, batch):
                stop = min(start + batch, last)
                fetched = buffer[: stop - start]
                self.world.get_rows(source, pe, self.product.halo_rows[start:stop], fetched)
                self._spread(start, stop, fetched, acc)
        operators.finish(acc, out)

    def _spread(self, start: int, stop: int, fetched: Array, acc: Array) -> None:
        """Add the columns start..stop, whose rows have been fetched, to the output rows that need them."""
        columns = self._columns
        arcs = slice(int(self._colptr[start]), int(self._colptr[stop]))
        weights = None if columns.weights is None else columns.weights[arcs]
        colptr = columns.indptr[start : stop + 1]
        self.world.operators.spmm_columns(colptr, columns.indices[arcs], weights, fetched, acc)
