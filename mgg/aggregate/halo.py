"""Technique ``halo``, ours: each needed remote row crosses once, pushed by its owner; the same bits every time."""

from __future__ import annotations

import numpy as np

from mgg.aggregate.owners import by_owner
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.backend.api import Array, SymmetricArray


class Halo(Plan):
    """Every PE packs the rows that each other PE needs, puts them into its halo and signals; the receiver works on its
    local arcs meanwhile, then on each owner's arcs as that owner's rows are there.
    """

    name = "halo"
    reads_inputs = False  # owners push rows they have written themselves

    def _build(self) -> None:
        self._parts = [uploaded_csr(self.world, part) for part in by_owner(self.host, halo_columns=True)]
        self._halo_rows = max(self.world.gather(self.host.halo))
        self._halo = self.world.symmetric(self._halo_rows * self.max_dim)
        self._symmetric.append(self._halo)
        self._sends = [self.world.upload(self.host.sends_to(pe)) for pe in range(self.world.size)]
        self._packed = self.world.xp.empty(max(map(len, self._sends)) * self.max_dim, np.float32)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        dim, rank, size = out.shape[1], self.world.rank, self.world.size
        local, spmm = self.product.local, self.world.operators.spmm_rows
        sums = self.accumulator(dim) if size > 1 else out
        halo = self._halo.view(self._halo_rows, dim)
        # Each PE starts with its right neighbour, so that no PE is everyone's first target.
        for step in range(1, size):
            self._push(source, halo, (rank + step) % size)
        spmm(local.indptr, local.indices, local.weights, source.local, sums, False)
        for step in range(1, size):
            owner = (rank - step) % size
            self.world.wait_signal(owner)
            part = self._parts[owner]
            first, last = (int(position) for position in self.host.halo_ptr[owner : owner + 2])
            arrived = halo.local[first:last]
            spmm(part.indptr, part.indices, part.weights, arrived, sums, True)
        self.world.operators.finish(sums, out)

    def _push(self, source: SymmetricArray, halo: SymmetricArray, pe: int) -> None:
        rows = self._sends[pe]
        packed = self._packed[: len(rows) * halo.local.shape[1]].reshape(len(rows), -1) if len(rows) else None
        if packed is not None:
            self.world.operators.gather_rows(source.local, rows, packed)
            self.world.put_rows(halo, pe, int(self.host.send_first[pe]), packed)
        self.world.signal(pe)
