"""Technique ``dgcl``: planned trees gather all rows that a PE needs, then one product follows (DGCL, EuroSys'21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from mgg.aggregate.memory_model import MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.owners import global_columns
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.aggregate.techniques.dgcl.trees import planned
from mgg.aggregate.workgroups import WorkgroupOptions, makes_groups, mates_of, members_of
from mgg.aggregate.workgroups.memory import HaloSizes, halo_sizes, room
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr, index_dtype
from mgg.layout import PeLayout


class DgclOptions(WorkgroupOptions):
    """The topology for planning the trees: workgroups of PEs, and the cost of a link between workgroups."""

    batch: int = Field(64, ge=1, description="rows, needed by the same PEs, that take one tree; 1 is the paper's")
    slow: float = Field(
        10.0, ge=1, allow_inf_nan=False, description="time of a row between workgroups over that between mates"
    )


@dataclass(frozen=True)
class _Transfers:
    """One PE's transfers in a stage: rows to pull from mates and their targets, and rows to put."""

    pulls: list[tuple[int, Array, slice]]
    outbox: Outbox | None
    firsts: dict[int, int]


class Dgcl(Plan):
    """PEs forward received rows, stage by stage, until every PE that needs a row has it behind its own rows.

    Rows are pulled within a workgroup and put between workgroups, with one message per pair of PEs and stage. Then one
    product adds each row's arcs in the order of a single PE, so results have the same bits on any number of PEs.
    """

    name = "dgcl"
    least_volume = True
    sums_apart = False  # a single product computes each sum
    Options = DgclOptions

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of one matrix, one CSR and the packed rows, estimated without forwarded rows."""
        product, members = case.product, members_of(case.options, case.layout)
        held = int((case.heights + np.array(case.counts.halo_rows)).max())
        if makes_groups(case.size, members):
            held += room(case, members).sent
        arcs = case.pointers(case.rows) + case.arc * (product.local.arcs + product.remote.arcs)
        lists = case.ids * product.halo  # of pulled rows; lists of put rows are no longer
        lengths = np.diff(product.local.indptr) + np.diff(product.remote.indptr)
        columns = case.embeddings(held) + case.matrix(case.rows)
        return PlanMemory(0, columns, arcs + lists, case.cut(lengths))

    @classmethod
    def exchanged_sizes(cls, case: MemoryCase) -> HaloSizes | None:
        """Return the symmetric memory that this PE needs, if there are several workgroups."""
        members = members_of(case.options, case.layout)
        return halo_sizes(case, members) if makes_groups(case.size, members) else None

    @classmethod
    def least(cls, case: MemoryCase) -> int:
        """Return the least host memory, including the whole halo."""
        return super().least(case) + case.embeddings(case.product.halo)

    @classmethod
    def reach(cls, layout: PeLayout, options: TechniqueOptions) -> Sequence[int]:
        """Return the workgroup."""
        return mates_of(layout.rank, members_of(options, layout))

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """Allocate room for the halo behind the rows, so that both are one matrix."""
        self._max_rows = max(self.world.gather(self.layout.rows + self.host.halo))
        return super()._allocate_input(self._floats(self._max_rows))

    def _build(self) -> None:
        world, options = self.world, self.options
        members = members_of(options, self.layout)
        plan = planned(world, self.layout, self.host, members, options.batch, options.slow)
        self._product = uploaded_csr(world, self._in_place(plan.places))
        most = max(world.gather(max((stage.sent for stage in plan.stages), default=0)))
        memory = self._allocate(most, [world.rank]) if most else None
        self._transfers = []
        for stage in plan.stages:
            pulls = [
                (mate, world.upload(rows), slice(first, first + len(rows)))
                for mate, (rows, first) in self._in_turn(stage.pulls)
            ]
            lists = {pe: rows for pe, (rows, _) in stage.puts.items()}
            outbox = Outbox(world, lists, memory, self._embeddings) if memory is not None and lists else None
            firsts = {pe: first for pe, (_, first) in stage.puts.items()}
            self._transfers.append(_Transfers(pulls, outbox, firsts))
        # Put rows need a barrier before use; pulled rows that are not passed on are there at once.
        self._met = [True] * (len(plan.stages) - 1) + plan.crosses[-1:]

    def _in_turn(self, pulls: dict[int, tuple[np.ndarray, int]]) -> list[tuple[int, tuple[np.ndarray, int]]]:
        """Return the mates from this PE's right neighbor on, so that no PE is everyone's first source."""
        return sorted(pulls.items(), key=lambda each: (each[0] - self.world.rank) % self.world.size)

    def _in_place(self, places: np.ndarray) -> Csr:
        """Return all arcs of this PE's rows, ordered by node in each row; columns are rows of its matrix."""
        whole, layout, host = global_columns(self.host, self.layout), self.layout, self.host
        kind = index_dtype(self._max_rows)
        where = np.empty(whole.columns, kind)
        where[layout.lo : layout.lo + layout.rows] = np.arange(layout.rows)
        where[host.halo_rows + np.repeat(layout.bounds[:-1], np.diff(host.halo_ptr))] = places
        return Csr(whole.indptr, where[whole.indices], whole.weights, layout.rows + host.halo)

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        world, product = self.world, self._product
        for stage, met in zip(self._transfers, self._met, strict=True):
            for mate, rows, span in stage.pulls:
                world.get_rows(source, mate, rows, source.local[span])
            if stage.outbox is not None:
                stage.outbox.send(world, source.local, source, stage.firsts)
            if met:
                world.barrier()
        world.operators.spmm_rows(product.indptr, product.indices, product.weights, source.local, out, False)
