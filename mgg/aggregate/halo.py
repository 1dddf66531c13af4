"""Technique ``halo``, ours: each needed remote row crosses once, while the PE works on what is there."""

from __future__ import annotations

import numpy as np

from mgg.aggregate.costs import Cost, Machine, Workload, fetched_rows, finished, meetings, slowest
from mgg.aggregate.needs import POINTER, Case, Need
from mgg.aggregate.plan import Plan
from mgg.aggregate.pulled import PulledHalo
from mgg.backend.api import Array, SymmetricArray


class Halo(Plan):
    """PEs fetch the rows that they need into a halo of their own; no float atomics, so the same bits every time.

    On GPUs one launch does all of it and hides the transfer. CPU ranks fetch, then work.
    """

    name = "halo"
    dtypes = ("fp32", "bf16")

    @classmethod
    def need(cls, case: Case) -> Need:
        """One matrix of rows and halo, and the arcs in the order of the work; nothing of the layout as it is."""
        if case.size == 1:
            return super().need(case)
        product = case.product
        columns = case.embeddings(case.heights.max() + max(case.counts.halo_rows)) + case.matrix(case.rows)
        arcs = case.arc * (product.local.arcs + product.remote.arcs) + POINTER * product.halo
        lengths = [np.diff(csr.indptr) for csr in (product.local, product.remote)]
        return Need(0, columns, arcs, case.cut(lengths[0]) + case.cut(lengths[1][lengths[1] > 0]))

    @classmethod
    def cost(cls, work: Workload, machine: Machine) -> Cost | None:
        """On GPUs one launch that pulls and works; on CPU ranks the fetch, then a pass over local and remote arcs."""
        split, moved, summed = work.split, work.moved, work.summed
        if split.pes == 1:
            return slowest(machine.rates["rows"].seconds(split.arcs, split.rows, moved, summed), 0, 0)
        fetched = fetched_rows(work, machine)
        if machine.gpu:
            work_of_pe = machine.rates["pulled"].seconds(split.arcs, split.rows, moved, summed)
            return slowest(work_of_pe, fetched, meetings(split, machine), machine.exposed)
        rate, touched = machine.rates["rows"], np.minimum(split.rows, split.remote_arcs)
        local = rate.seconds(split.local_arcs, split.rows, moved, summed)
        remote = rate.seconds(split.remote_arcs, touched, moved, summed)
        return slowest(local + remote + finished(work, machine), fetched, meetings(split, machine))

    def _build(self) -> None:
        self._pulled: PulledHalo | None = None
        if self.world.gpu and self.world.size > 1:
            self._pulled = PulledHalo(self.world, self.host, self._input, self._max_rows)
            self._symmetric += self._pulled.symmetric
            self.meets = self._pulled.meets
        else:
            self._halo = self.world.xp.empty(self.host.halo * self.max_dim, self._element)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """With room for the halo behind the rows, so that both are one matrix."""
        if self.world.gpu and self.world.size > 1:
            elements += self._floats(max(self.world.gather(self.host.halo)) * self.max_dim)
        return super()._allocate_input(elements)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        if self._pulled is not None:
            self._pulled(self._element, out)
        else:
            self._fetch_then_work(source, out)

    def part(self, name: str, dim: int, out: Array) -> bool:
        """The halo pulled alone, or all work with the halo as it is; one launch does both on GPUs."""
        if self._pulled is None:
            return False
        self._pulled(self._element, out, name)
        return True

    def _fetch_then_work(self, source: SymmetricArray, out: Array) -> None:
        world, product, dim = self.world, self.product, out.shape[1]
        halo = self._halo[: self.host.halo * dim].reshape(self.host.halo, dim)
        # Each PE starts with its right neighbour, so that no PE is everyone's first source.
        for step in range(1, world.size):
            owner = (world.rank + step) % world.size
            span = slice(*(int(position) for position in self.host.halo_ptr[owner : owner + 2]))
            world.get_rows(source, owner, product.halo_rows[span], halo[span])
        sums = self.accumulator(dim) if self.host.halo else out
        local, remote = product.local, product.remote
        world.operators.spmm_rows(local.indptr, local.indices, local.weights, source.local, sums, False)
        if self.host.halo:
            world.operators.spmm_rows(remote.indptr, remote.indices, remote.weights, halo, sums, True)
        world.operators.finish(sums, out)
