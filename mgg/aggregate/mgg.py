"""Technique ``mgg``: row-wise aggregation that fetches one remote row an arc while it works on local ones (MGG 4, 5).

On CPU ranks the order of the work is the paper's, the unit of fetching is a thread block's share of remote arcs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from mgg.aggregate.plan import Plan, TechniqueOptions
from mgg.backend.api import SymmetricArray
from mgg.layout.neighbors import NeighborPartitions, neighbor_partitions


class MggOptions(TechniqueOptions):
    """Knobs and ablations; the ranges are those of the paper's search (section 6)."""

    ps: int = Field(16, ge=1, le=32, description="arcs of a neighbor partition")
    dist: int = Field(
        16, ge=1, le=16, description="pairs of local and remote partitions a warp (interleaving distance)"
    )
    wpb: int = Field(4, ge=1, le=16, description="warps a block")
    neighbor_partition: bool = Field(True, description="cut rows into partitions of ps arcs (figure 10a)")
    interleave: bool = Field(True, description="mix local and remote partitions (figure 10b)")


@dataclass(frozen=True)
class Block:
    """What one thread block owns.

    Attributes:
        local, remote: its neighbor partitions.
        gets: for each owner of remote rows: PE, offsets of the rows there (one an arc), their span in the fetched rows.
        place: int64 [remote arcs], which fetched row each remote arc multiplies.
        weights: float32 [remote arcs] or None.
    """

    local: NeighborPartitions
    remote: NeighborPartitions
    gets: list[tuple[int, np.ndarray, slice]]
    place: np.ndarray
    weights: np.ndarray | None


class Mgg(Plan):
    """Local and remote neighbor partitions, paired: warp w owns pairs w * dist .. (w + 1) * dist, a block wpb warps."""

    name = "mgg"
    deterministic = False  # on GPUs its float atomics make the last bits vary
    Options = MggOptions

    def __init__(self, *args: Any):
        super().__init__(*args)
        options = self.options
        assert isinstance(options, MggOptions)
        ps = options.ps if options.neighbor_partition else None
        local = neighbor_partitions(self.product.local.indptr, ps)
        remote = neighbor_partitions(self.product.remote.indptr, ps)
        none = slice(0, 0)
        share = options.dist * options.wpb
        if options.interleave:
            pairs = max(len(local), len(remote))
            spans = [(slice(k, k + share), slice(k, k + share)) for k in range(0, pairs, share)]
        else:
            spans = [(slice(k, k + share), none) for k in range(0, len(local), share)]
            spans += [(none, slice(k, k + share)) for k in range(0, len(remote), share)]
        self._blocks = [self._block(local[mine], remote[others]) for mine, others in spans]
        widest = max((len(block.place) for block in self._blocks), default=0)
        self._fetched = np.empty(widest * self.max_dim, np.float32)

    def _block(self, local: NeighborPartitions, remote: NeighborPartitions) -> Block:
        """Group a block's remote arcs by owner; no arc shares what another has fetched."""
        csr = self.product.remote
        first, last = (int(remote.starts[0]), int(remote.stops[-1])) if len(remote) else (0, 0)
        halo = csr.indices[first:last]
        order = np.argsort(halo, kind="stable")  # the halo is sorted by owner
        ends = np.searchsorted(halo[order], self.product.halo_ptr)
        rows = self.product.halo_rows[halo[order]]
        spans = [(pe, slice(int(ends[pe]), int(ends[pe + 1]))) for pe in range(self.world.size)]
        place = np.empty(last - first, np.int64)
        place[order] = np.arange(last - first)
        return Block(
            local=local,
            remote=NeighborPartitions(remote.rows, remote.starts - first, remote.stops - first),
            gets=[(pe, rows[span], span) for pe, span in spans if span.stop > span.start],
            place=place,
            weights=None if csr.weights is None else csr.weights[first:last],
        )

    def _aggregate(self, source: SymmetricArray, out: np.ndarray) -> None:
        operators, dim = self.world.operators, out.shape[1]
        acc = self.accumulator(dim)
        acc[...] = 0
        local = self.product.local
        for block in self._blocks:
            part = block.local
            if len(part):
                operators.spmm_partitions(
                    part.rows, part.starts, part.stops, local.indices, local.weights, source.local, acc
                )
            part = block.remote
            if len(part):
                fetched = self._fetched[: len(block.place) * dim].reshape(-1, dim)
                for pe, rows, span in block.gets:
                    self.world.get_rows(source, pe, rows, fetched[span])
                operators.spmm_partitions(part.rows, part.starts, part.stops, block.place, block.weights, fetched, acc)
        operators.finish(acc, out)
