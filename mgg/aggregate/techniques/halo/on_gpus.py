"""Technique ``halo`` on GPUs: one launch pulls the halo, another computes with arrived rows (kernels/aggregate)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate.arc_weights import Reordered, numbered
from mgg.aggregate.embeddings import Embeddings
from mgg.aggregate.workgroups.intra_inter_group import GroupArcs
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.kernel.halo import HaloPeers, halo_schedule
from mgg.kernel.schedule import remote_sources


class PulledHaloProduct:
    """One PE's product, or a part of it that is added to another (collective).

    Args:
        matrix: the symmetric matrix of the rows to multiply, with room for the halo from row ``halo_first`` on.
        halo_first: rows of that matrix before the halo.
        flags: symmetric zeros, 2 floats per PE of the part, in which these PEs signal that rows are written and have
            been read. None: the callers synchronize.
        accumulate: add to the output.
    """

    def __init__(
        self, world: World, part: GroupArcs, matrix: SymmetricArray, halo_first: int, embeddings: Embeddings,
        flags: SymmetricArray | None, accumulate: bool = False,
    ) -> None:  # fmt: skip
        self._matrix, self._pes, self._embeddings = matrix, part.pes, embeddings
        self._height, self._halo = halo_first + part.halo, part.halo
        self._views: dict[int, Array] = {}
        self._meets, self._accumulate = flags is not None, accumulate
        self._world, self._part, self._first = world, part, halo_first
        self._reordered: Reordered | None = None
        schedule = halo_schedule(part.local, part.remote, halo_first, empty=not accumulate)
        sources = remote_sources(schedule.pulled, part.halo_ptr, part.halo_rows)
        flag_addresses = None if flags is None else self._addresses(world, flags)
        peers = HaloPeers(self._addresses(world, matrix), flag_addresses, part.pes.index(world.rank), len(part.pes))
        operators: Any = world.operators  # on GPUs they have the kernel besides the table of operators
        self._kernel = operators.halo_kernel(schedule, sources, halo_first, part.local.rows, peers)

    def _addresses(self, world: World, array: SymmetricArray) -> Array:
        copies = [array.copy_of(pe) for pe in self._pes]
        return world.upload(np.array([copy.data.ptr for copy in copies], np.uint64))

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``; the part is the whole product."""
        if self._reordered is None:
            schedule = halo_schedule(*numbered(self._part.local, self._part.remote), self._first)
            assert schedule.weights is not None
            self._reordered = Reordered(self._world, schedule.weights)
        self._reordered(local, remote, self._kernel.weights)

    def __call__(self, world: World, out: Array, step: str = "all") -> None:
        """Write or add the product with all PEs' matrices [*, D] to ``out`` [rows, D].

        ``step``: ``transfer`` or ``compute`` runs that step alone, for timing.
        """
        dim = out.shape[1]
        if dim not in self._views:
            # Halo lengths differ between PEs, so this view fits this PE alone.
            self._views[dim] = self._embeddings.matrix(self._matrix, self._height, dim).local
        matrix = self._views[dim]
        self._kernel(matrix, out, accumulate=self._accumulate, part=step)
        if step == "compute":
            return
        if self._meets:
            world.note_collective("the launch of a product")
        world.counters.add("get", matrix.itemsize * self._halo * dim)
