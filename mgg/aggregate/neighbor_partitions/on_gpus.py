"""Row-wise aggregation in one launch that fetches a remote row per arc: MGG's kernel on GPUs (sections 4, 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate.neighbor_partitions.schedule import KernelSchedule
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.kernel.pitch import row_pitch
from mgg.kernel.requests import FetchRequests, bounds, merged
from mgg.kernel.schedule import remote_sources
from mgg.layout import Product
from mgg.layout.neighbor_partitions import NeighborPartitions, neighbor_partitions

FLOAT = 4


class Fused:
    """The kernel of kernels/aggregate/mgg.cu, prepared for one product.

    Args:
        schedule: assignment of the work to warps and blocks.

    Attributes:
        weights: of local and of remote arcs, in the order of ``host``; each product reads them. None: all are 1.
    """

    def __init__(self, world: World, host: Product, schedule: KernelSchedule, max_dim: int) -> None:
        self._world, self._schedule = world, schedule
        self._kernel: Any = world.operators  # on GPUs they have the kernel besides the table of operators
        self._host, self._max_dim = host, max_dim
        self._indices = world.upload(host.local.indices)
        self.weights = [None if csr.weights is None else world.upload(csr.weights) for csr in (host.local, host.remote)]
        self._requests: FetchRequests | None = None
        self._cut()
        self._ask()

    def take(self, schedule: KernelSchedule) -> None:
        """Use another schedule from the next product on."""
        before, self._schedule = self._schedule, schedule
        if (schedule.ps, schedule.remote) != (before.ps, before.remote):
            del self._local, self._remote  # free them before the new ones exist
            self._cut()
        if schedule.merge:  # blocks have other arcs now
            del self._sources
            self._requests = None
            self._ask()

    def _cut(self) -> None:
        self._local = self._partitions(self._host.local.indptr, self._schedule.ps)
        self._remote = self._partitions(self._host.remote.indptr, self._schedule.remote)

    def _ask(self) -> None:
        """Determine which rows to fetch, and from which PEs."""
        world, host = self._world, self._host
        sources = remote_sources(host.remote.indices, host.halo_ptr, host.halo_rows)
        self._asked = len(sources)
        if self._schedule.merge:
            wanted, first, place = merged(sources, block_arcs(host, self._schedule))
            rows = world.xp.empty((len(wanted), row_pitch(self._max_dim, FLOAT)), np.float32)
            self._asked, self._requests = len(wanted), FetchRequests(world.upload(wanted), world.upload(first), rows)
            # Arcs read their rows from the fetched ones, as if these were the copy of one more PE.
            sources = np.uint64(world.size << 48) | place.astype(np.uint64)
        self._sources = world.upload(sources)
        self._peers: Array | None = None

    def _partitions(self, indptr: np.ndarray, ps: int | None) -> NeighborPartitions:
        parts = neighbor_partitions(indptr, ps)
        return NeighborPartitions(*map(self._world.upload, (parts.rows, parts.starts, parts.stops)))

    def __call__(self, source: SymmetricArray, out: Array) -> None:
        """Set ``out`` [rows, D] to the product of ``source`` [max rows, D]; always pass the same symmetric array."""
        if self._peers is None:
            addresses = [source.peers[pe].data.ptr for pe in range(self._world.size)]
            if self._requests is not None:
                addresses.append(self._requests.rows.data.ptr)
            self._peers = self._world.upload(np.array(addresses, np.uint64))
        schedule, (local_weights, remote_weights) = self._schedule, self.weights
        self._kernel.mgg(
            self._local, self._indices, local_weights, self._remote, self._sources, remote_weights,
            source.local, self._peers, out, ps=schedule.remote, dist=schedule.dist, wpb=schedule.wpb,
            interleave=schedule.interleave, asynchronous=schedule.asynchronous, primitive=schedule.primitive,
            batch=schedule.batch, requests=self._requests,
        )  # fmt: skip
        self._world.counters.add("get", FLOAT * self._asked * out.shape[1])


def block_arcs(host: Product, schedule: KernelSchedule) -> np.ndarray:
    """Return where the remote arcs of each block of the kernel begin, int64 [blocks + 1]."""
    local = len(neighbor_partitions(host.local.indptr, schedule.ps))
    remote = neighbor_partitions(host.remote.indptr, schedule.remote)
    at = bounds(local, len(remote), schedule.dist, schedule.wpb, schedule.interleave)
    return np.append(remote.starts, len(host.remote.indices))[at]
