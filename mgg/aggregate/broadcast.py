"""Technique ``broadcast``: one-dimensional SUMMA, every PE broadcasts its rows in turn (CAGNET; CoLa 3.1.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate.owners import by_owner
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.backend.api import Array, SymmetricArray


class Broadcast(Plan):
    """P stages; in stage q every PE receives all rows of PE q and multiplies its columns of q."""

    name = "broadcast"
    reads_inputs = False  # a broadcast sends what its root has written itself

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._parts = [uploaded_csr(self.world, part) for part in by_owner(self.host, halo_columns=False)]
        self._stage = self.world.xp.empty(self._max_rows * self.max_dim, np.float32)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        dim, operators = out.shape[1], self.world.operators
        local, spmm = self.product.local, operators.spmm_rows
        sums = self.accumulator(dim) if self.world.size > 1 else out
        spmm(local.indptr, local.indices, local.weights, source.local, sums, False)
        for root, part in enumerate(self._parts):
            rows = int(self.layout.bounds[root + 1] - self.layout.bounds[root])
            if root == self.world.rank:
                self.world.broadcast(source.local[:rows], root, source)
                continue
            stage = self._stage[: rows * dim].reshape(rows, dim)
            self.world.broadcast(stage, root, source)
            spmm(part.indptr, part.indices, part.weights, stage, sums, True)
        operators.finish(sums, out)
