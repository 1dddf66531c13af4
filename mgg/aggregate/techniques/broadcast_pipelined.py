"""Technique ``broadcast_pipelined``: broadcasts run ahead of the products (MG-GCN, the baseline of CoLa 6)."""

from __future__ import annotations

from mgg.aggregate.stages import StagedPlan
from mgg.backend.api import Array, SideWork, SymmetricArray
from mgg.cost.product import Cost, MachineModel, Workload, all_blocks, meetings, slowest, stages


class BroadcastPipelined(StagedPlan):
    """The stages of ``broadcast`` with two buffers: the rows of the next stage arrive during the current product."""

    name = "broadcast_pipelined"

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of the stages, overlapped with V_CG."""
        moves = all_blocks(work, machine)
        return slowest(stages(work, machine), moves, meetings(work.split, machine, 1), machine.staged)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        stages, rank, size = self._stages, self.world.rank, self.world.size
        sums, dim = stages.sums(out), out.shape[1]
        arriving = [self._start(root, source, dim) for root in range(min(2, size))]
        stages.local(source, sums)
        for root in range(size):
            if root != rank:
                arriving[root].wait()
                stages.remote(root, stages.room(root % 2, root, dim), sums)
            if root + 2 < size:  # its buffer is free once the product above is done
                arriving.append(self._start(root + 2, source, dim))
        arriving[-1].wait()  # all earlier ones are done, too, so the caller may overwrite the rows that this PE sent
        stages.finish(sums, out)

    def _start(self, root: int, source: SymmetricArray, dim: int) -> SideWork:
        mine = root == self.world.rank
        rows = self._stages.mine(source) if mine else self._stages.room(root % 2, root, dim)
        with self.world.side_stream() as work:
            self.world.broadcast(rows, root)
        return work
