"""Technique ``mgg``: row-wise aggregation that fetches one remote row an arc while it works on local ones (MGG 4, 5).

On CPU ranks the order of the work is the paper's, the unit of fetching is a thread block's share of remote arcs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from mgg.aggregate.plan import Plan, TechniqueOptions
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
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
class Get:
    """Offsets ``rows`` of PE ``pe``'s rows, one an arc, and their ``span`` in the fetched rows."""

    pe: int
    rows: Array
    span: slice


@dataclass(frozen=True)
class Block:
    """What one thread block owns.

    Attributes:
        local, remote: its neighbor partitions.
        gets: what to fetch, one entry an owner of remote rows.
        place: int64 [remote arcs], which fetched row each remote arc multiplies.
        weights: float32 [remote arcs] or None.
    """

    local: NeighborPartitions
    remote: NeighborPartitions
    gets: list[Get]
    place: Array
    weights: Array | None


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
        local = neighbor_partitions(self.host.local.indptr, ps)
        remote = neighbor_partitions(self.host.remote.indptr, ps)
        none = slice(0, 0)
        share = options.dist * options.wpb
        if options.interleave:
            pairs = max(len(local), len(remote))
            spans = [(slice(k, k + share), slice(k, k + share)) for k in range(0, pairs, share)]
        else:
            spans = [(slice(k, k + share), none) for k in range(0, len(local), share)]
            spans += [(none, slice(k, k + share)) for k in range(0, len(remote), share)]
        blocks = [self._block(local[mine], remote[others]) for mine, others in spans]
        widest = max((len(block.place) for block in blocks), default=0)
        self._blocks = _uploaded(self.world, blocks)
        self._fetched = self.world.xp.empty(widest * self.max_dim, np.float32)

    def _block(self, local: NeighborPartitions, remote: NeighborPartitions) -> Block:
        """Group a block's remote arcs by owner; no arc shares what another has fetched."""
        csr = self.host.remote
        first, last = (int(remote.starts[0]), int(remote.stops[-1])) if len(remote) else (0, 0)
        halo = csr.indices[first:last]
        order = np.argsort(halo, kind="stable")  # the halo is sorted by owner
        ends = np.searchsorted(halo[order], self.host.halo_ptr)
        rows = self.host.halo_rows[halo[order]]
        spans = [(pe, slice(int(ends[pe]), int(ends[pe + 1]))) for pe in range(self.world.size)]
        place = np.empty(last - first, np.int64)
        place[order] = np.arange(last - first)
        return Block(
            local=local,
            remote=NeighborPartitions(remote.rows, remote.starts - first, remote.stops - first),
            gets=[Get(pe, rows[span], span) for pe, span in spans if span.stop > span.start],
            place=place,
            weights=None if csr.weights is None else csr.weights[first:last],
        )

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
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
                for get in block.gets:
                    self.world.get_rows(source, get.pe, get.rows, fetched[get.span])
                operators.spmm_partitions(part.rows, part.starts, part.stops, block.place, block.weights, fetched, acc)
        operators.finish(acc, out)


def _uploaded(world: World, blocks: list[Block]) -> list[Block]:
    """The blocks with their arrays on the PE's device: one upload a type, because a graph has very many blocks."""
    found: dict[np.dtype, list[np.ndarray]] = {}
    _mapped(blocks, lambda array: found.setdefault(array.dtype, []).append(array))
    joined = {dtype: world.upload(np.concatenate(arrays)) for dtype, arrays in found.items()}
    used = dict.fromkeys(joined, 0)

    def next_view(array: np.ndarray) -> Array:
        first = used[array.dtype]
        used[array.dtype] = first + len(array)
        return joined[array.dtype][first : first + len(array)]

    moved: list[Block] = _mapped(blocks, next_view)
    return moved


def _mapped(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """``value`` with ``change`` made to every array in its lists and data classes, always in the same order."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _mapped(getattr(value, field.name), change) for field in fields(value)})
    return value
