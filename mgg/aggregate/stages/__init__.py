"""Products in stages, one per owner of columns: shared by techniques that receive all rows of one PE at a time."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from mgg.aggregate.memory_model import PIECE, TASK, MemoryCase, PlanMemory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.owners import by_owner
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.backend.api import Array, SymmetricArray
from mgg.kernel.schedule import PIECES_PER_TASK
from mgg.layout import PeLayout


class Stages:
    """The remote arcs of a plan, split by owner, and buffers for the rows of one or two owners.

    Args:
        buffers: number of owners whose rows are in memory at a time.
    """

    def __init__(self, plan: Plan, buffers: int):
        world = plan.world
        # A weak reference, because a cycle would keep a plan's GPU memory alive until Python collects cycles.
        self._plan = cast(Plan, weakref.proxy(plan))
        self._operators = world.operators
        self._rows = [int(rows) for rows in np.diff(plan.layout.bounds)]
        self._parts = [uploaded_csr(world, part) for part in by_owner(plan.host, halo_columns=False)]
        self._orders: list[Array] | None = None
        others = max((rows for pe, rows in enumerate(self._rows) if pe != world.rank), default=0)
        self._buffers = [world.xp.empty(others * plan.max_dim, np.float32) for _ in range(buffers)]

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``."""
        if self._orders is None:
            host = self._plan.host
            numbers = replace(host.remote, weights=np.arange(host.remote.arcs))
            parts = by_owner(replace(host, remote=numbers), halo_columns=False)
            self._orders = [self._plan.world.upload(part.weights) for part in parts if part.weights is not None]
        weights: list[Any] = [csr.weights for csr in (self._plan.local, *self._parts)]
        for each, given in zip(weights, [local, *(remote[order] for order in self._orders)], strict=True):
            each[...] = given

    def mine(self, source: SymmetricArray) -> Array:
        """Return this PE's rows [rows, D]."""
        return source.local[: self._plan.layout.rows]

    def room(self, buffer: int, owner: int, dim: int) -> Array:
        """Return buffer ``buffer`` in the shape of ``owner``'s rows [rows, dim]."""
        rows = self._rows[owner]
        return self._buffers[buffer][: rows * dim].reshape(rows, dim)

    def sums(self, out: Array) -> Array:
        """Return the array for the partial sums of ``out``."""
        return self._plan.sums(out)

    def local(self, source: SymmetricArray, sums: Array) -> None:
        """Set ``sums`` to the product of the local arcs."""
        csr = self._plan.local
        self._operators.spmm_rows(csr.indptr, csr.indices, csr.weights, source.local, sums, False)

    def remote(self, owner: int, block: Array, sums: Array) -> None:
        """Add the product of the arcs to columns of ``owner``; ``block`` holds its rows."""
        csr = self._parts[owner]
        if len(csr.indices):
            self._operators.spmm_rows(csr.indptr, csr.indices, csr.weights, block, sums, True)

    def finish(self, sums: Array, out: Array) -> None:
        """Round the sums into ``out``."""
        self._operators.finish(sums, out)


class StagedPlan(Plan):
    """Base of techniques in stages, with ``buffers`` blocks of other PEs' rows in memory at a time."""

    buffers: ClassVar[int] = 2
    reads_inputs = False  # each PE sends only what it wrote or received itself
    pitched = False

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of ``Stages``."""
        return staged_need(case, cls.buffers)

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True: the stages know how they reorder the arcs."""
        return True

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``."""
        self._stages.reweigh(local, remote)

    def _build(self) -> None:
        self._stages = Stages(self, self.buffers)


def staged_need(case: MemoryCase, buffers: int) -> PlanMemory:
    """Return the GPU memory of a plan with ``Stages``, including its product."""
    base = case.base()
    others = np.delete(case.heights, case.rank).max(initial=0)
    columns = base.columns + buffers * case.matrix(others)
    # The remote CSR split by owner: every part has all rows, of which those without arcs have no piece there.
    parts = case.size * case.pointers(case.rows) + case.arc * case.product.remote.arcs
    cuts = sum(PIECE * min(case.rows, n) + TASK * n // PIECES_PER_TASK for n in case.remote_by_owner().tolist())
    return PlanMemory(base.layout, columns, parts, case.local_cut() + cuts)
