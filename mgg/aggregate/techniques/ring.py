"""Technique ``ring``: blocks of embeddings go around all PEs; transfers and products alternate (MGG, arXiv, 2.1)."""

from __future__ import annotations

from mgg.aggregate.stages import StagedPlan
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import Cost, MachineModel, Workload, all_blocks, meetings, slowest, stages


class Ring(StagedPlan):
    """Each PE aggregates from its current block and forwards it, until every PE has seen all blocks.

    One block leaves while the next one arrives.
    """

    name = "ring"

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of the stages plus that of V_CG, without overlap."""
        moves = all_blocks(work, machine, "shift")
        return slowest(stages(work, machine), moves, meetings(work.split, machine, 1))

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
