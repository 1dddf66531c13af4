"""Technique ``features``: PEs split the embeddings by columns for the product and hold all arcs (NeutronTP, RDM).

Two all-to-alls turn rows into columns, and sums of columns back into rows. The bytes do not depend on the partition:
2 n D (P - 1) / P floats. This pays off where halos are dense. Each row's arcs are added in the order of a single PE, so
results have the same bits on any number of PEs.
"""

from __future__ import annotations

import numpy as np

from mgg.aggregate.memory_model import PIECE, TASK, MemoryCase, PlanMemory
from mgg.aggregate.owners import global_columns
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import FLOAT, Cost, MachineModel, Workload, meetings, network_blocks, slowest
from mgg.graph.csr import Csr
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK


class Features(Plan):
    """Every PE multiplies the whole matrix by its share of the columns."""

    name = "features"
    reads_inputs = False  # each PE sends its own rows
    pitched = False
    sums_apart = False  # a single product computes each sum
    rough = True  # not measured on GPUs: rows of D / P columns may be narrower than the fitted rates cover

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory of all arcs and of three times D / P columns: received, multiplied, and in transit."""
        base, width = case.base(), -(-case.dim // case.size)
        nodes, arcs = int(case.heights.sum()), int(sum(case.counts.arcs))
        heights = case.heights if case.exchanged_sizes is None else np.array(case.exchanged_sizes)
        results = int(heights.sum())
        packed = case.size * int(max(case.heights.max(), heights.max())) * width + width
        columns = base.columns + FLOAT * ((nodes + results) * width + packed)
        pieces = results + arcs // LARGEST_TASK
        made = case.pointers(results) + case.arc * arcs
        return PlanMemory(0, columns, made, PIECE * pieces + TASK * pieces // PIECES_PER_TASK)

    @classmethod
    def exchanged_sizes(cls, case: MemoryCase) -> int:
        """Return the rows of this PE's product, whose number may differ from the input's."""
        return case.rows

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of the product of all arcs with D / P columns, and of the two all-to-alls around it."""
        split, links = work.split, machine.links
        if split.pes == 1:
            return None
        nodes, share = int(split.rows.sum()), -(-work.dim // split.pes) / work.dim
        arithmetic = machine.rates["rows"].seconds(
            int(split.arcs.sum()), nodes, work.moved * share, work.summed * share
        )
        # A PE sends all columns but its own of its rows, and of its own columns all rows but its own.
        rows = split.rows * (1 - share) + (nodes - split.rows) * share
        near = np.asarray(links["shift"].seconds(rows, work.moved, 2 * (split.pes - 1)))
        if split.groups == 1:
            return slowest(arithmetic, near, meetings(split, machine))
        outside = rows * (split.pes - split.members) / (split.pes - 1)
        inside = np.asarray(links["shift"].seconds(rows - outside, work.moved, 2 * (split.members - 1)))
        far = network_blocks(work, machine, outside, 2 * (split.pes - split.members), latencies=2)
        return slowest(arithmetic, inside + far, meetings(split, machine))

    def _build(self) -> None:
        world, size = self.world, self.world.size
        self.self_synchronizing = True
        mine = global_columns(self.host, self.layout)
        parts: list[Csr] = world.exchange([mine] * size)
        self._results = np.cumsum([0, *(part.rows for part in parts)]).tolist()
        ends = np.cumsum([0, *(part.arcs for part in parts)])
        whole = Csr(
            np.concatenate([[0], *(part.indptr[1:] + end for part, end in zip(parts, ends, strict=False))]),
            np.concatenate([part.indices for part in parts]),
            None if mine.weights is None else np.concatenate([part.weights for part in parts]),
            mine.columns,
        )
        self._whole = uploaded_csr(world, whole)
        width = -(-self.max_dim // size)
        # Data for other PEs lies in symmetric memory, because NVSHMEM sends from there over any network.
        self._slot = max(self._max_rows, *(part.rows for part in parts))
        for count in (mine.columns * width, whole.rows * width, size * self._slot * width + width):
            self._symmetric.append(world.symmetric(count, world.addressable))
        self._columns, self._products, self._packed = self._symmetric[-3:]

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        world, rank, whole = self.world, self.world.rank, self._whole
        shares = _Shares(out.shape[1], world.size, self._slot)
        rows, mine = source.local[: self.layout.rows], shares.width(rank)
        for pe in self._in_turn():
            if width := shares.width(pe):
                packed = shares.slot(self._packed, pe)[: len(rows)]
                packed[...] = rows[:, shares.columns(pe)]
                self._put(self._columns.view(whole.columns, width), pe, self.layout.lo, packed)
        world.barrier()
        if mine:
            products = self._products.view(self._results[-1], mine)
            columns = self._columns.view(whole.columns, mine).local
            world.operators.spmm_rows(whole.indptr, whole.indices, whole.weights, columns, products.local, False)
            into, first = shares.view(self._packed, rank)
            for pe in self._in_turn():
                self._put(into, pe, first, products.local[self._results[pe] : self._results[pe + 1]])
        world.barrier()
        for pe in range(world.size):
            if shares.width(pe):
                out[:, shares.columns(pe)] = shares.slot(self._packed, pe)[: len(out)]

    def _in_turn(self) -> list[int]:
        """Return the PEs, this one first, so that no PE is everyone's first target."""
        return [(self.world.rank + step) % self.world.size for step in range(self.world.size)]

    def _put(self, target: SymmetricArray, pe: int, first: int, values: Array) -> None:
        if pe == self.world.rank:
            target.local[first : first + len(values)] = values
        elif len(values):
            self.world.put_rows(target, pe, first, values)


class _Shares:
    """How ``size`` PEs split ``dim`` columns, and where each PE's slot of ``rows`` rows lies in memory.

    The slots of the wider shares come first. Each slot is contiguous.
    """

    def __init__(self, dim: int, size: int, rows: int) -> None:
        self._narrow, self._wide, self._rows = dim // size, dim % size, rows

    def width(self, pe: int) -> int:
        """Return the number of columns of ``pe``."""
        return self._narrow + (pe < self._wide)

    def columns(self, pe: int) -> slice:
        """Return the columns of ``pe``."""
        first = pe * self._narrow + min(pe, self._wide)
        return slice(first, first + self.width(pe))

    def view(self, memory: SymmetricArray, pe: int) -> tuple[SymmetricArray, int]:
        """Return ``memory`` viewed with rows of ``pe``'s width, and the first row of its slot."""
        width, wide = self.width(pe), min(pe, self._wide)
        # The earlier slots, rounded up to rows of this width.
        first = -(-wide * self._rows * (self._narrow + 1) // width) + (pe - wide) * self._rows
        return memory.view(first + self._rows, width), first

    def slot(self, memory: SymmetricArray, pe: int) -> Array:
        """Return the slot of ``pe``: [rows, its columns]."""
        view, first = self.view(memory, pe)
        return view.local[first:]
