"""The 2D algorithm of CAGNET (Tripathy et al., SC'20): SUMMA over a square grid of PEs.

P = q q PEs; PE (i, j) is number i q + j. Rows and columns of A are split into q ranges, one per grid row of PEs, and
columns of B and C into q slices. PE (i, j) has the blocks A_ij, B_ij and C_ij, and C_ij = sum over k of A_ik B_kj. In
stage k, PE (i, k) broadcasts A_ik along its grid row and PE (k, j) broadcasts B_kj along its grid column.

A plan's input and output are whole rows. So the PEs of a grid row first trade them for slices of their range, and back
at the end. Row pointers never change, so every PE of a grid row keeps those of all its blocks; a broadcast of a block
sends only its columns and weights.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from mgg.aggregate.memory_model import FLOAT, PIECE, TASK, MemoryCase, PlanMemory
from mgg.aggregate.owners import by_owner
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.aggregate.stages.replicas import side_by_side, stacked
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import INDEX, Cost, MachineModel, Workload, meetings, slowest
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK


class GridSizes(NamedTuple):
    """What other PEs must know for their memory: rows of this PE's product, and its arcs by range of their column."""

    rows: int
    arcs: tuple[int, ...]


class PeGrid:
    """One PE's part in the algorithm (collective)."""

    def __init__(self, plan: Plan):
        world = plan.world
        self._world, self._rows, side = world, plan.layout.rows, isqrt(world.size)
        self._side, (self._i, self._j) = side, divmod(world.rank, side)
        self._mates = world.team([self._i * side + j for j in range(side)])
        self._column = world.team([i * side + self._j for i in range(side)])
        heights = np.diff(plan.layout.bounds).reshape(side, side)
        self._inputs = _starts(heights[self._i])  # where each mate's rows begin in this range
        self._heights = [int(rows) for rows in heights.sum(axis=1)]
        self._results = _starts(world.gather(plan.host.rows)[self._i * side : (self._i + 1) * side])
        mine = self._collect(plan, heights)
        # The pointers of all blocks of this grid row; columns and weights of this PE's block only.
        pointers = world.exchange([mine.indptr if pe in self._mates.pes else None for pe in range(world.size)])
        self._pointers = [world.upload(pointers[pe]) for pe in self._mates.pes]
        self._arcs = [int(pointers[pe][-1]) for pe in self._mates.pes]
        self._block = uploaded_csr(world, mine)
        self._ids = mine.indices.dtype
        self._allocate(plan.max_dim, mine.weights is not None)

    def _allocate(self, max_dim: int, weighted: bool) -> None:
        world, width = self._world, -(-max_dim // self._side)
        empty, arcs = world.xp.empty, max((arcs for j, arcs in enumerate(self._arcs) if j != self._j), default=0)
        # Broadcasts move 4-byte words of any type.
        self._columns = empty(arcs * self._ids.itemsize // FLOAT, np.float32)
        self._weights = empty(arcs, np.float32) if weighted else None
        others = [rows for i, rows in enumerate(self._heights) if i != self._i]
        self._slice = empty(self._heights[self._i] * width, np.float32)
        self._stage = empty(max(others, default=0) * width, np.float32)
        rows = self._results[-1]
        self._sums = world.operators.accumulator(rows, width).reshape(-1)
        # Float32 accumulators are sent directly.
        same = self._sums.dtype == np.float32
        self._partial = self._sums if same else empty(rows * width, np.float32)
        results = self._results[self._j + 1] - self._results[self._j]
        self._traded = empty(max(self._rows, results) * width, np.float32)

    def _collect(self, plan: Plan, heights: np.ndarray) -> Any:
        """Return this PE's block of A, collected from the rows of its mates (collective)."""
        side, size = self._side, self._world.size
        held = by_owner(plan.host, halo_columns=False)
        held[self._world.rank] = plan.host.local
        values: list[Any] = [None] * size
        for place, mate in enumerate(self._mates.pes):
            values[mate] = side_by_side(held[place * side : (place + 1) * side], _starts(heights[place]))
        received = self._world.exchange(values)
        return stacked([received[mate] for mate in self._mates.pes], self._results)

    def aggregate(self, source: SymmetricArray, out: Array) -> None:
        """Compute ``out`` [rows, D] from the inputs of all PEs."""
        cuts = slices(out.shape[1], self._side)
        width = cuts[self._j + 1] - cuts[self._j]
        mine = _shaped(self._slice, self._heights[self._i], width)
        self._to_slices(source.local[: self._rows], cuts, mine)
        sums = _shaped(self._sums, self._results[-1], width)
        for k in range(self._side):
            columns, weights = self._arcs_of(k)
            rows = mine if k == self._i else _shaped(self._stage, self._heights[k], width)
            self._column.broadcast(rows, k * self._side + self._j)
            # The first product sets every row.
            self._world.operators.spmm_rows(self._pointers[k], columns, weights, rows, sums, k > 0)
        partial = _shaped(self._partial, self._results[-1], width)
        self._world.operators.finish(sums, partial)
        self._to_rows(partial, cuts, out)

    def _arcs_of(self, k: int) -> tuple[Array, Array | None]:
        """Broadcast columns and weights of block A_ik along the grid row, and return them."""
        arcs, root = self._arcs[k], self._mates.pes[k]
        columns, weights = self._block.indices.view(np.float32), self._block.weights
        if k != self._j:
            columns = self._columns[: arcs * self._ids.itemsize // FLOAT]
            weights = None if self._weights is None else self._weights[:arcs]
        self._mates.broadcast(columns, root)
        if weights is not None:
            self._mates.broadcast(weights, root)
        return columns.view(self._ids), weights

    def _to_slices(self, rows: Array, cuts: list[int], out: Array) -> None:
        """Trade this PE's ``rows`` [rows, D] for its slice of all rows of its range, ``out``."""
        starts = self._inputs
        out[starts[self._j] : starts[self._j + 1]] = rows[:, cuts[self._j] : cuts[self._j + 1]]
        for step in range(1, self._side):
            to, sender = (self._j + step) % self._side, (self._j - step) % self._side
            packed = _shaped(self._traded, len(rows), cuts[to + 1] - cuts[to])
            packed[...] = rows[:, cuts[to] : cuts[to + 1]]
            self._mates.shift(packed, out[starts[sender] : starts[sender + 1]], step)

    def _to_rows(self, sums: Array, cuts: list[int], out: Array) -> None:
        """Trade a slice of all rows of this range, ``sums``, for this PE's rows ``out`` [rows, D]."""
        starts = self._results
        out[:, cuts[self._j] : cuts[self._j + 1]] = sums[starts[self._j] : starts[self._j + 1]]
        for step in range(1, self._side):
            to, sender = (self._j + step) % self._side, (self._j - step) % self._side
            arrived = _shaped(self._traded, len(out), cuts[sender + 1] - cuts[sender])
            self._mates.shift(sums[starts[to] : starts[to + 1]], arrived, step)
            out[:, cuts[sender] : cuts[sender + 1]] = arrived


def slices(dim: int, side: int) -> list[int]:
    """Return where the slices of ``dim`` columns begin and the last one ends; widths differ by at most one column."""
    return [dim * part // side for part in range(side + 1)]


def grid_sizes(case: MemoryCase) -> GridSizes:
    """Return what the other PEs must know about this PE."""
    side, arcs = isqrt(case.size), _by_owner(case)
    return GridSizes(case.rows, tuple(int(part) for part in arcs.reshape(side, side).sum(axis=1)))


def need(case: MemoryCase) -> PlanMemory:
    """Return the GPU memory of slices and traded rows, this PE's and the largest other block, and all pointers."""
    side, base = isqrt(case.size), case.base()
    i, j = divmod(case.rank, side)
    heights = case.heights.reshape(side, side).sum(axis=1)
    mates = None if case.exchanged_sizes is None else case.exchanged_sizes[i * side : (i + 1) * side]
    results = side * case.rows if mates is None else sum(mate.rows for mate in mates)
    if mates is None:  # assume that the mates' columns are distributed as this PE's are
        shares = np.array(grid_sizes(case).arcs) / max(1, int(_by_owner(case).sum()))
        blocks = shares * sum(case.counts.arcs[i * side : (i + 1) * side])
    else:
        blocks = np.sum([mate.arcs for mate in mates], axis=0)
    stage = np.delete(heights, i).max(initial=0)
    traded = max(int(case.heights[case.rank]), case.rows)
    columns = FLOAT * int(heights[i] + stage + results + traded) * -(-case.dim // side)
    arcs = int(blocks[j] + np.delete(blocks, j).max(initial=0))
    pieces = side * results + int(sum(blocks)) // LARGEST_TASK
    made = side * case.pointers(results) + case.arc * arcs
    return PlanMemory(0, base.columns + columns, made, PIECE * pieces + TASK * pieces // PIECES_PER_TASK)


def cost(work: Workload, machine: MachineModel) -> Cost | None:
    """Return the time of trades, stages and broadcasts, without overlap; None for several workgroups or no grid.

    Weights of arcs are not counted, because a split does not say whether there are any.
    """
    split, side, links = work.split, isqrt(work.split.pes), machine.links
    if split.groups > 1 or side * side != split.pes:
        return None
    rows, arcs = (each.reshape(side, side).sum(axis=1) for each in (split.rows, split.arcs))
    width, rate = work.moved / side, machine.rates["rows"]
    arithmetic = rate.seconds(arcs, side * rows, width, 2 * width, side)
    if not machine.gpu:
        arithmetic = arithmetic + machine.rates["finish"].seconds(0, rows, 0, width)
    if side == 1:
        return slowest(arithmetic, 0.0, meetings(split, machine, 1))
    trades = links["shift"].seconds(2 * rows / side * (side - 1), width, 2 * (side - 1))
    dense = links["broadcast"].seconds(split.rows.sum(), width, side)
    sparse = links["broadcast"].bandwidth
    moves = trades + dense + side * links["broadcast"].latency + arcs * INDEX / sparse
    return slowest(arithmetic, moves, meetings(split, machine, 1))


def fits(world: World) -> str:
    """Return why these PEs do not form a grid; empty if they do."""
    side = isqrt(world.size)
    if side * side == world.size:
        return ""
    return f"the number of PEs must be a square, found {world.size}: take {side * side} or {(side + 1) ** 2}"


def _by_owner(case: MemoryCase) -> np.ndarray:
    """Return the arcs of this PE's rows by the PE that owns their column."""
    arcs = case.remote_by_owner()
    arcs[case.rank] = case.product.local.arcs
    return arcs


def _starts(lengths: Any) -> list[int]:
    """Return where ranges of these lengths begin, and where the last one ends."""
    return [0, *np.cumsum(lengths).tolist()]


def _shaped(memory: Array, rows: int, columns: int) -> Array:
    """Return the first elements of ``memory`` as a matrix."""
    return memory[: rows * columns].reshape(rows, columns)
