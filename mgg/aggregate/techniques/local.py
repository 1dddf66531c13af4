"""Technique ``local``: a row-wise product on one PE, balanced for rows of any length (GNNAdvisor 4, Seastar 6.3)."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import Cost, MachineModel, Workload, slowest
from mgg.layout import PeLayout


class Local(Plan):
    """One row-wise product of the whole graph, written straight to the output: the baseline for several PEs."""

    name = "local"
    dtypes = ("fp32", "bf16")
    single_pe = True
    reads_inputs = False  # there is only one PE

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the seconds of one row-wise product."""
        split = work.split
        return slowest(machine.rates["rows"].seconds(split.arcs, split.rows, work.moved, work.summed), 0, 0)

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True: there is one array of weights."""
        return True

    def _arc_weights(self) -> Sequence[Array]:
        return [self.local.weights]

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        csr = self.local
        self.world.operators.spmm_rows(csr.indptr, csr.indices, csr.weights, source.local, out, False)
