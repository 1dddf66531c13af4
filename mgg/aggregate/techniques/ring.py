"""Technique ``ring``: blocks of embeddings go around all PEs; transfers and products alternate (MGG, arXiv, 2.1)."""

from __future__ import annotations

from mgg.aggregate.memory_model import Case, Need
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.stages import Stages, staged_need
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import Cost, Machine, Workload, all_blocks, meetings, slowest, stages
from mgg.layout import PeLayout


class Ring(Plan):
    """Each PE aggregates from its current block and forwards it, until every PE has seen all blocks."""

    name = "ring"
    reads_inputs = False  # each PE sends only what it wrote or received itself
    pitched = False

    @classmethod
    def need(cls, case: Case) -> Need:
        """Return the memory of ``Stages`` with two buffers."""
        return staged_need(case, 2)

    @classmethod
    def cost(cls, work: Workload, machine: Machine) -> Cost | None:
        """Return the time of the stages plus that of V_CG, without overlap."""
        moves = all_blocks(work, machine, "shift")
        return slowest(stages(work, machine), moves, meetings(work.split, machine, 1))

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True: the stages know how they reorder the arcs."""
        return True

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``."""
        self._stages.reweigh(local, remote)

    def _build(self) -> None:
        self._stages = Stages(self, buffers=2)  # one block leaves while the next one arrives

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        stages, rank, size = self._stages, self.world.rank, self.world.size
        sums, held = stages.sums(out), stages.mine(source)
        stages.local(source, sums)
        for step in range(1, size):
            owner = (rank - step) % size
            arriving = stages.room(step % 2, owner, out.shape[1])
            self.world.shift(held, arriving, 1)
            stages.remote(owner, arriving, sums)
            held = arriving
        stages.finish(sums, out)
