"""Technique ``broadcast``: SUMMA in one dimension, 1.5 (with replication) or two (CAGNET, SC'20; CoLa 3.1.1)."""

from __future__ import annotations

from pydantic import Field, model_validator

from mgg.aggregate.memory_model import PIECE, TASK, MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.stages import Stages, grid, staged_need
from mgg.aggregate.stages.replicas import Replicas
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import Cost, MachineModel, Workload, all_blocks, meetings, slowest, stages
from mgg.errors import InputError
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.layout import PeLayout


class BroadcastOptions(TechniqueOptions):
    """Options that select one of CAGNET's algorithms."""

    replication: int = Field(
        1, ge=1, description="PEs that hold each block of embeddings (c of the 1.5D algorithm); its square divides P"
    )
    grid: bool = Field(False, description="the 2D algorithm: SUMMA over a square grid of PEs; replication stays 1")

    @model_validator(mode="after")
    def _one_algorithm(self) -> BroadcastOptions:
        if self.grid and self.replication > 1:
            raise ValueError(f"grid: it has no replicas: leave replication at 1, found {self.replication}")
        return self


class Broadcast(Plan):
    """P stages; in stage q every PE receives all rows of PE q and multiplies its columns of q.

    With replication c, groups of c PEs share the stages: see ``replicas``. With a grid, there are sqrt(P) stages on
    blocks in two dimensions: see ``grid``.
    """

    name = "broadcast"
    # With replication, NCCL sums on GPUs. Two addends have one order; groups of three would need nine GPUs on a host.
    deterministic = True
    reads_inputs = False  # the root of a broadcast sends only what it wrote itself
    pitched = False
    Options = BroadcastOptions

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of ``Stages``; with replication, that of the group's matrices and arcs."""
        copies = case.options.replication
        if case.options.grid:
            return grid.need(case)
        if copies == 1 or case.size % copies**2:  # ``check`` refuses the latter
            return staged_need(case, 1)
        base, groups = case.base(), case.size // copies
        height = case.heights.reshape(groups, copies).max(axis=1)
        mine = int(height[case.rank // copies])
        first, place = divmod(case.rank, copies)
        first, blocks = first * copies, groups // copies
        # Padded rows of the product, whose number may differ from the input's.
        results = (
            max(mine, case.rows) if case.exchanged_sizes is None else max(case.exchanged_sizes[first : first + copies])
        )
        columns = base.columns + case.matrix(copies * (mine + results + height.max()) + results)
        # Of its group's rows, a PE takes the arcs of every copies-th super-block: estimated by that share of its own.
        by_owner = case.remote_by_owner()
        by_owner[case.rank] = case.product.local.arcs
        own = by_owner.reshape(groups, copies).sum(axis=1)
        arcs = int(sum(case.counts.arcs[first : first + copies]) * own[place::copies].sum() / max(own.sum(), 1))
        made = blocks * case.pointers(copies * results) + case.arc * arcs
        pieces = blocks * copies * results + arcs // LARGEST_TASK
        return PlanMemory(0, columns, made, PIECE * pieces + TASK * pieces // PIECES_PER_TASK)

    @classmethod
    def exchanged_sizes(cls, case: MemoryCase) -> object:
        """Return the rows of this PE's product; on a grid also its arcs."""
        return grid.grid_sizes(case) if case.options.grid else case.rows

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of the stages plus that of V_CG, without overlap; None with replication."""
        if work.options.replication > 1:
            return None
        if work.options.grid:
            return grid.cost(work, machine)
        return slowest(stages(work, machine), all_blocks(work, machine), meetings(work.split, machine, 1))

    @classmethod
    def check(cls, world: World, layout: PeLayout, options: TechniqueOptions) -> None:
        """Check that c squared divides P, and that a grid is square."""
        assert isinstance(options, BroadcastOptions)
        if options.grid and (lack := grid.fits(world)):
            raise InputError(f"technique broadcast: option grid: {lack}").on_every_pe()
        copies, size = options.replication, world.size
        if size % copies**2:
            raise InputError(
                f"technique broadcast: option replication: the square of {copies} must divide the number of PEs, {size}"
            ).on_every_pe()

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True for the one-dimensional algorithm without replicas."""
        assert isinstance(options, BroadcastOptions)
        return options.replication == 1 and not options.grid

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``."""
        assert self._stages is not None
        self._stages.reweigh(local, remote)

    def _build(self) -> None:
        copies = self.options.replication
        self._replicas = Replicas(self, copies) if copies > 1 else None
        self._grid = grid.PeGrid(self) if self.options.grid else None
        self._stages = Stages(self, buffers=1) if copies == 1 and self._grid is None else None

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        if self._replicas is not None:
            self._replicas.aggregate(source, out)
        if self._grid is not None:
            self._grid.aggregate(source, out)
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
