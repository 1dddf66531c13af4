"""The 1.5D algorithm of CAGNET (Tripathy et al., SC'20): c copies of each block of embeddings, fewer stages per PE.

The PEs form P / c groups of c consecutive ones. A super-block is the rows of a group, with each PE's rows padded to the
group's largest. Every PE collects its group's super-block. PE j of each group works on the super-blocks j, j + c, ...:
it receives them from PE j of the group that owns them and multiplies its group's columns, for all rows of its group. At
the end the PEs of a group add up their results, so that each has its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgg.aggregate.owners import by_owner
from mgg.aggregate.plan import Plan, uploaded_csr
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr, index_dtype


class Replicas:
    """One PE's part in the algorithm (collective).

    Args:
        copies: c; its square divides the number of PEs.
    """

    def __init__(self, plan: Plan, copies: int):
        world = plan.world
        self._world, self._rows, self._copies = world, plan.host.rows, copies
        self._group, place = divmod(world.rank, copies)
        groups = world.size // copies
        rows = np.diff(plan.layout.bounds).reshape(groups, copies)
        self._height = [int(most) for most in rows.max(axis=1)]  # padded rows of a group's PEs
        self._mates = world.team([self._group * copies + mate for mate in range(copies)])
        results = world.gather(plan.host.rows)
        self._results = max(results[mate] for mate in self._mates.pes)  # padded rows of their products
        self._column = world.team([group * copies + place for group in range(groups)])
        self._roots = {block: block * copies + place for block in range(place, groups, copies)}
        self._parts = {block: uploaded_csr(world, csr) for block, csr in self._collect(plan).items()}
        self._allocate(plan.max_dim)

    def _allocate(self, max_dim: int) -> None:
        world, height = self._world, self._height[self._group]
        empty = world.xp.empty
        self._gathered = empty(self._copies * height * max_dim, np.float32)
        self._stage = empty(self._copies * max(self._height) * max_dim, np.float32)
        self._sums = world.operators.accumulator(self._copies * self._results, max_dim).reshape(-1)
        # Float32 accumulators are sent directly.
        same = self._sums.dtype == np.float32
        self._partial = self._sums if same else empty(self._copies * self._results * max_dim, np.float32)
        self._reduced = empty(self._results * max_dim, np.float32)

    def _collect(self, plan: Plan) -> dict[int, Csr]:
        """Return the arcs that this PE multiplies, by super-block, for all rows of its group (collective)."""
        copies, size = self._copies, self._world.size
        held = by_owner(plan.host, halo_columns=False)
        held[self._world.rank] = plan.host.local
        values: list[Any] = [None] * size
        for place, mate in enumerate(self._mates.pes):
            blocks = range(place, size // copies, copies)
            values[mate] = {
                block: side_by_side(held[block * copies : (block + 1) * copies], evenly(copies, self._height[block]))
                for block in blocks
            }
        received = self._world.exchange(values)
        return {
            block: stacked([received[mate][block] for mate in self._mates.pes], evenly(copies, self._results))
            for block in self._roots
        }

    def aggregate(self, source: SymmetricArray, out: Array) -> None:
        """Compute ``out`` [rows, D] from the inputs of all PEs."""
        copies, dim, results = self._copies, out.shape[1], self._results
        operators, rank = self._world.operators, self._world.rank
        mine = _shaped(self._gathered, copies, self._height[self._group], dim)
        self._mates.all_gather(source.local[: self._height[self._group]], mine)
        sums = _shaped(self._sums, copies * results, dim)
        for number, (block, root) in enumerate(self._roots.items()):
            rows = mine if root == rank else _shaped(self._stage, copies, self._height[block], dim)
            self._column.broadcast(rows, root)
            csr = self._parts[block]
            # The first product sets every row, and padding rows to zero.
            operators.spmm_rows(csr.indptr, csr.indices, csr.weights, rows.reshape(-1, dim), sums, number > 0)
        partial, reduced = _shaped(self._partial, copies * results, dim), _shaped(self._reduced, results, dim)
        operators.finish(sums, partial)
        self._mates.reduce_scatter(partial.reshape(copies, results, dim), reduced)
        out[...] = reduced[: self._rows]


def _shaped(memory: Array, *shape: int) -> Array:
    """Return the first elements of ``memory`` in ``shape``."""
    return memory[: int(np.prod(shape))].reshape(*shape)


def evenly(count: int, height: int) -> list[int]:
    """Return where ranges of ``height`` begin, and where the last one ends."""
    return [part * height for part in range(count + 1)]


def side_by_side(parts: list[Csr], starts: Sequence[int]) -> Csr:
    """Join matrices side by side; the columns of part i begin at ``starts[i]``, and the last entry is the total."""
    dtype = index_dtype(starts[-1])
    rows = np.concatenate([np.repeat(np.arange(part.rows), np.diff(part.indptr)) for part in parts])
    shifted = zip(parts, starts, strict=False)
    columns = np.concatenate([part.indices.astype(dtype) + dtype.type(start) for part, start in shifted])
    order = np.argsort(rows, kind="stable")
    indptr = np.sum([part.indptr for part in parts], axis=0)
    return Csr(indptr, columns[order], _weights(parts, order), starts[-1])


def stacked(parts: list[Csr], starts: Sequence[int]) -> Csr:
    """Stack matrices; the rows of part i begin at ``starts[i]``, with empty rows in between."""
    lengths = np.zeros(starts[-1], np.int64)
    for start, part in zip(starts, parts, strict=False):
        lengths[start : start + part.rows] = np.diff(part.indptr)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    columns = np.concatenate([part.indices for part in parts])
    return Csr(indptr, columns, _weights(parts, slice(None)), parts[0].columns)


def _weights(parts: list[Csr], order: np.ndarray | slice) -> np.ndarray | None:
    """Return the weights of all parts; either all parts of a PE have weights, or none has."""
    if parts[0].weights is None:
        return None
    return np.concatenate([part.weights for part in parts if part.weights is not None])[order]
