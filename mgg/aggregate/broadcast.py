"""Technique ``broadcast``: SUMMA in one dimension, or 1.5 with replication (CAGNET, SC'20; CoLa 3.1.1)."""

from __future__ import annotations

from pydantic import Field

from mgg.aggregate.plan import Plan, TechniqueOptions
from mgg.aggregate.replicas import Replicas
from mgg.aggregate.stages import Stages
from mgg.backend.api import Array, SymmetricArray
from mgg.errors import InputError


class BroadcastOptions(TechniqueOptions):
    """Which of CAGNET's algorithms."""

    replication: int = Field(
        1, ge=1, description="PEs that hold each block of embeddings (c of the 1.5D algorithm); its square divides P"
    )


class Broadcast(Plan):
    """P stages; in stage q every PE receives all rows of PE q and multiplies its columns of q.

    With replication c, groups of c PEs share the stages: see ``replicas``.
    """

    name = "broadcast"
    # On GPUs NCCL sums with replication. A group of two has one order of two addends; three take nine GPUs on one host.
    deterministic = True
    reads_inputs = False  # a broadcast sends what its root has written itself
    Options = BroadcastOptions

    def _check(self) -> None:
        assert isinstance(self.options, BroadcastOptions)
        copies, size = self.options.replication, self.world.size
        if size % copies**2:
            raise InputError(
                f"technique broadcast: option replication: the square of {copies} must divide the number of PEs, {size}"
            ).on_every_pe()

    def _build(self) -> None:
        assert isinstance(self.options, BroadcastOptions)
        copies = self.options.replication
        self._replicas = Replicas(self, copies) if copies > 1 else None
        self._stages = Stages(self, buffers=1) if copies == 1 else None

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        if self._replicas is not None:
            self._replicas.aggregate(source, out)
        if self._stages is not None:
            self._in_stages(self._stages, source, out)

    def _in_stages(self, stages: Stages, source: SymmetricArray, out: Array) -> None:
        sums = stages.sums(out)
        stages.local(source, sums)
        for root in range(self.world.size):
            mine = root == self.world.rank
            rows = stages.mine(source) if mine else stages.room(0, root, out.shape[1])
            self.world.broadcast(rows, root)
            if not mine:
                stages.remote(root, rows, sums)
        stages.finish(sums, out)
