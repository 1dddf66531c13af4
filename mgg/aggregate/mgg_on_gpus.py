"""Row-wise aggregation that fetches one remote row an arc, in one launch: MGG's kernel on GPUs (sections 4, 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate.mgg_schedule import Schedule
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.kernel.schedule import remote_sources
from mgg.layout import Product
from mgg.layout.neighbors import NeighborPartitions, neighbor_partitions


class Fused:
    """The kernel of kernels/aggregate/mgg.cu, ready for one product.

    Args:
        world: the PEs, on GPUs.
        host: this PE's rows in host memory.
        schedule: how the work is dealt out.
    """

    def __init__(self, world: World, host: Product, schedule: Schedule) -> None:
        self._world, self._schedule = world, schedule
        self._kernel: Any = world.operators  # a GPU's have the kernel beside the table of operators
        self._host = host
        self._cut()
        self._indices = world.upload(host.local.indices)
        self._weights = [
            None if csr.weights is None else world.upload(csr.weights) for csr in (host.local, host.remote)
        ]
        self._sources = world.upload(remote_sources(host.remote.indices, host.halo_ptr, host.halo_rows))
        self._peers: Array | None = None

    def take(self, schedule: Schedule) -> None:
        """Deal out the work in another way from the next product on."""
        before, self._schedule = self._schedule, schedule
        if schedule.ps != before.ps:
            del self._local, self._remote  # not beside the new ones
            self._cut()

    def _cut(self) -> None:
        self._local = self._partitions(self._host.local.indptr)
        self._remote = self._partitions(self._host.remote.indptr)

    def _partitions(self, indptr: np.ndarray) -> NeighborPartitions:
        parts = neighbor_partitions(indptr, self._schedule.ps)
        return NeighborPartitions(*map(self._world.upload, (parts.rows, parts.starts, parts.stops)))

    def __call__(self, source: SymmetricArray, out: Array) -> None:
        """``out`` [rows, D] = the whole product of ``source`` [max rows, D]; always the same symmetric array."""
        if self._peers is None:
            addresses = [source.peers[pe].data.ptr for pe in range(self._world.size)]
            self._peers = self._world.upload(np.array(addresses, np.uint64))
        schedule, (local_weights, remote_weights) = self._schedule, self._weights
        self._kernel.mgg(
            self._local, self._indices, local_weights, self._remote, self._sources, remote_weights,
            source.local, self._peers, out, ps=schedule.ps, dist=schedule.dist, wpb=schedule.wpb,
            interleave=schedule.interleave, asynchronous=schedule.asynchronous, primitive=schedule.primitive,
            batch=schedule.batch,
        )  # fmt: skip
        self._world.counters.add("get", 4 * len(self._sources) * out.shape[1])
