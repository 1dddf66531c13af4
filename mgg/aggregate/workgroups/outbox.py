"""Rows that leave for other workgroups: packed, then put in one message each (CoLa 4.3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mgg.aggregate.embeddings import Form
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray


class Outbox:
    """Messages that go together, none of which waits for another, or one that goes alone.

    Args:
        world: the PEs.
        lists: PE -> offsets in this PE's rows of the rows that it gets.
        memory: room for the rows of all lists; symmetric, as NVSHMEM sends from there over any network.
        form: how rows lie there.
    """

    def __init__(self, world: World, lists: Mapping[int, np.ndarray], memory: SymmetricArray, form: Form) -> None:
        self._memory, self._form = memory, form
        ends = np.cumsum([0, *map(len, lists.values())]).tolist()
        self._places = {pe: slice(*ends[at : at + 2]) for at, pe in enumerate(lists)}
        self._count = ends[-1]
        self._alone = sum(len(rows) > 0 for rows in lists.values()) == 1
        self._rows = world.upload(np.concatenate([*lists.values()]))

    def send(self, world: World, source: Array, into: SymmetricArray, firsts: Mapping[int, int]) -> None:
        """Put each PE's rows, out of ``source`` [*, D], into its ``into``, where they lie as here.

        What is packed stays as it is until this PE has signalled somebody, or met the others at a barrier; then the
        next messages may be packed here.

        Args:
            world, source, into: see above.
            firsts: PE -> row of its ``into`` where its rows begin; all PEs of the lists.
        """
        self.pack(world, source)
        self.put(world, into, firsts, source.shape[1])

    def pack(self, world: World, source: Array) -> None:
        """The first half of ``send``: after it ``source`` may change."""
        if self._count:
            world.operators.gather_rows(source, self._rows, self._packed(source.shape[1]))

    def _packed(self, dim: int) -> Array:
        # PEs send lists of different lengths, so this view is for this PE alone.
        return self._form.matrix(self._memory, self._count, dim).local

    def put(self, world: World, into: SymmetricArray, firsts: Mapping[int, int], dim: int) -> None:
        """The second half of ``send``, of rows of ``dim`` columns."""
        packed = self._packed(dim)
        for pe, place in self._places.items():
            world.put_rows(into, pe, firsts[pe], packed[place], alone=self._alone)
