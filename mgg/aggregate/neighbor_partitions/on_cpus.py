"""Row-wise aggregation that fetches one remote row per arc, block by block: the CPU's form of MGG's kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import Cost, MachineModel, SplitCounts, Workload, fetched_arcs, finished, meetings, slowest
from mgg.graph.csr import Csr
from mgg.layout import Product
from mgg.layout.neighbor_partitions import NeighborPartitions, neighbor_partitions


@dataclass(frozen=True)
class Get:
    """Offsets ``rows`` of PE ``pe``'s rows, one per arc, and their ``span`` in the fetched rows."""

    pe: int
    rows: Array
    span: slice


@dataclass(frozen=True)
class ThreadBlock:
    """What one thread block owns.

    Attributes:
        local, remote: its neighbor partitions.
        gets: what to fetch, one entry an owner of remote rows.
        rows: how many that are.
        place: int64 [remote arcs], which fetched row each remote arc multiplies.
        weights: float32 [remote arcs] or None.
    """

    local: NeighborPartitions
    remote: NeighborPartitions
    gets: list[Get]
    rows: int
    place: Array
    weights: Array | None


class Blocks:
    """The neighbor partitions of a product, dealt out to blocks in the order of MGG's kernel (section 5.1).

    Args:
        ps, remote: arcs of a neighbor partition of local and of remote arcs; None: whole rows.
        share: pairs of a local and a remote partition that a block owns: dist * wpb.
        interleave: a block owns pairs; else local partitions have blocks of their own, and so do remote ones.
        merge: a block fetches a row once, however many of its arcs need it.
    """

    def __init__(
        self, world: World, product: Product, max_dim: int, *, ps: int | None, remote: int | None, share: int,
        interleave: bool, merge: bool = False,
    ) -> None:  # fmt: skip
        self._world, self._product, self._merge = world, product, merge
        here = neighbor_partitions(product.local.indptr, ps)
        there = neighbor_partitions(product.remote.indptr, remote)
        none = slice(0, 0)
        if interleave:
            pairs = max(len(here), len(there))
            spans = [(slice(k, k + share), slice(k, k + share)) for k in range(0, pairs, share)]
        else:
            spans = [(slice(k, k + share), none) for k in range(0, len(here), share)]
            spans += [(none, slice(k, k + share)) for k in range(0, len(there), share)]
        self._blocks = [self._block(here[mine], there[others]) for mine, others in spans]
        widest = max((block.rows for block in self._blocks), default=0)
        self._fetched = world.xp.empty(widest * max_dim, np.float32)

    def _block(self, local: NeighborPartitions, remote: NeighborPartitions) -> ThreadBlock:
        """Group a block's remote arcs by owner; unless requests are merged no arc shares what another has fetched."""
        product, csr = self._product, self._product.remote
        first, last = (int(remote.starts[0]), int(remote.stops[-1])) if len(remote) else (0, 0)
        halo = csr.indices[first:last]
        if self._merge:
            needed, place = np.unique(halo, return_inverse=True)
        else:
            order = np.argsort(halo, kind="stable")
            needed, place = halo[order], np.empty(last - first, np.int64)
            place[order] = np.arange(last - first)
        ends = np.searchsorted(needed, product.halo_ptr)  # the halo is sorted by owner
        rows = product.halo_rows[needed]
        spans = [(pe, slice(int(ends[pe]), int(ends[pe + 1]))) for pe in range(self._world.size)]
        return ThreadBlock(
            local=local,
            remote=NeighborPartitions(remote.rows, remote.starts - first, remote.stops - first),
            gets=[Get(pe, rows[span], span) for pe, span in spans if span.stop > span.start],
            rows=len(needed),
            place=place,
            weights=None if csr.weights is None else csr.weights[first:last],
        )

    def __call__(self, source: SymmetricArray, acc: Array, out: Array) -> None:
        """``out`` [rows, D] = the whole product of ``source`` [max rows, D], summed in the accumulator ``acc``."""
        local: Csr = self._product.local
        operators, dim = self._world.operators, out.shape[1]
        acc[...] = 0
        for block in self._blocks:
            part = block.local
            if len(part):
                operators.spmm_partitions(
                    part.rows, part.starts, part.stops, local.indices, local.weights, source.local, acc
                )
            part = block.remote
            if len(part):
                fetched = self._fetched[: block.rows * dim].reshape(-1, dim)
                for get in block.gets:
                    self._world.get_rows(source, get.pe, get.rows, fetched[get.span])
                operators.spmm_partitions(part.rows, part.starts, part.stops, block.place, block.weights, fetched, acc)
        operators.finish(acc, out)


def pieces(arcs: np.ndarray, split: SplitCounts, ps: int | None) -> np.ndarray:
    """About how many neighbor partitions the arcs of each PE make: whole rows, or one for every ps arcs and half a one
    for the rest of each row, float64 [P].
    """
    rows = np.minimum(split.rows, arcs)
    return np.minimum(arcs, rows if ps is None else rows / 2 + arcs / ps)


def blocks_cost(
    work: Workload, machine: MachineModel, *, ps: int | None, remote: int | None, share: int, interleave: bool
) -> Cost:
    """Seconds of ``Blocks``: a call for the arcs of either kind of a block, and a fetch from each owner."""
    split = work.split
    local, far = np.ceil(pieces(split.local_arcs, split, ps)), np.ceil(pieces(split.remote_arcs, split, remote))
    fetching = np.ceil(far / share)
    calls = np.ceil(local / share) + fetching
    gets = np.minimum(fetching * (split.pes - 1), split.remote_arcs)
    if interleave:
        calls = np.minimum(calls, 2 * np.ceil(np.maximum(local, far) / share))
    rate = machine.rates["partitions"]
    sums = rate.seconds(split.arcs, local + far, work.moved, work.summed, calls)
    # The accumulator is set to zero first, which takes about as long as rounding it.
    passes = 2 * finished(work, machine)
    fetched = fetched_arcs(work, machine, gets) if split.pes > 1 else 0
    return slowest(sums + passes, fetched, meetings(split, machine))
