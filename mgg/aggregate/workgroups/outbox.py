"""Rows for other workgroups: packed, then put in one message per receiver (CoLa 4.3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mgg.aggregate.embeddings import Form
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray


class Outbox:
    """Messages that are sent together without waiting for each other; or a single message.

    Args:
        lists: PE -> offsets in this PE's rows of the rows that it receives.
        memory: room for the rows of all lists; symmetric, because NVSHMEM sends from there over any network.
        form: memory layout of the packed rows.
    """

    def __init__(self, world: World, lists: Mapping[int, np.ndarray], memory: SymmetricArray, form: Form) -> None:
        self._memory, self._form = memory, form
        ends = np.cumsum([0, *map(len, lists.values())]).tolist()
        self._places = {pe: slice(*ends[at : at + 2]) for at, pe in enumerate(lists)}
        self._count = ends[-1]
        self._alone = sum(len(rows) > 0 for rows in lists.values()) == 1
        self._rows = world.upload(np.concatenate([*lists.values()]))

    def send(self, world: World, source: Array, into: SymmetricArray, firsts: Mapping[int, int]) -> None:
        """Put each PE's rows from ``source`` [*, D] into its copy of ``into``, in the order of its list.

        The packed rows must stay unchanged until this PE has signaled another PE or passed a barrier; then the next
        messages may be packed.

        Args:
            world, source, into: see above.
            firsts: PE -> row of its ``into`` where its rows begin, for all PEs of the lists.
        """
        self.pack(world, source)
        self.put(world, into, firsts, source.shape[1])

    def pack(self, world: World, source: Array) -> None:
        """Pack the rows, the first half of ``send``; afterwards ``source`` may change."""
        if self._count:
            world.operators.gather_rows(source, self._rows, self._packed(source.shape[1]))

    def _packed(self, dim: int) -> Array:
        # The lists' lengths differ between PEs, so this view fits this PE alone.
        return self._form.matrix(self._memory, self._count, dim).local

    def put(self, world: World, into: SymmetricArray, firsts: Mapping[int, int], dim: int) -> None:
        """Put the packed rows of ``dim`` columns, the second half of ``send``."""
        packed = self._packed(dim)
        for pe, place in self._places.items():
            world.put_rows(into, pe, firsts[pe], packed[place], alone=self._alone)
