"""Technique ``halo`` on GPUs: one launch pulls the halo and works on what has arrived (kernels/aggregate/halo.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.kernel.halo import HaloPeers, halo_schedule
from mgg.layout import Product


class PulledHalo:
    """One PE's product (collective).

    Args:
        world: the PEs, more than one.
        product: this PE's rows, in host memory.
        matrix: the symmetric input with room for the halo from row ``halo_first`` on.
        halo_first: rows of the largest PE.

    Attributes:
        meets: the launch itself waits for the PEs: each has a GPU of its own, so all launches run at once.
        symmetric: the PEs' flags, for the caller to free.
    """

    def __init__(self, world: World, product: Product, matrix: SymmetricArray, halo_first: int) -> None:
        self._world, self._matrix = world, matrix
        self._height, self._halo = halo_first + product.halo, product.halo
        self._views: dict[int, Array] = {}
        self.meets = world.shmem
        self.symmetric = [world.symmetric(2 * world.size)] if self.meets else []
        schedule = halo_schedule(product.local, product.remote, halo_first)
        owners = np.repeat(np.arange(world.size, dtype=np.uint64), np.diff(product.halo_ptr))
        sources = ((owners << np.uint64(48)) | product.halo_rows.astype(np.uint64))[schedule.pulled]
        flags = self._addresses(self.symmetric[0]) if self.meets else None
        peers = HaloPeers(self._addresses(matrix), flags, world.rank, world.size)
        operators: Any = world.operators  # a GPU's have the kernel beside the table of operators
        self._kernel = operators.halo_kernel(schedule, sources, halo_first, product.rows, peers)

    def _addresses(self, array: SymmetricArray) -> Array:
        copies = [array.peers[pe] for pe in range(self._world.size)]
        return self._world.upload(np.array([copy.data.ptr for copy in copies], np.uint64))

    def __call__(self, element: type, out: Array, part: str = "all") -> None:
        """``out`` [rows, D] = the product of all PEs' inputs [rows, D], whose entries are of type ``element``.

        ``part``: ``transfer`` or ``compute`` does that alone, for timing.
        """
        dim = out.shape[1]
        if dim not in self._views:
            # PEs have halos of different lengths, so this view is for this PE alone.
            self._views[dim] = self._matrix.view(self._height, dim, element).local
        matrix = self._views[dim]
        self._kernel(matrix, out, part=part)
        if part == "compute":
            return
        if self.meets:
            self._world.met("the launch of a product")
        self._world.counters.add("get", matrix.itemsize * self._halo * dim)
