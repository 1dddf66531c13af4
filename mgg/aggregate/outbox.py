"""Rows that leave for another workgroup: packed, then put in one message (CoLa 4.3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mgg.aggregate.embeddings import Embeddings
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray


class Outbox:
    """Room for one message, and which rows go to whom.

    Args:
        world: the PEs.
        lists: PE -> offsets in this PE's rows of the rows that it gets.
        memory: room for the rows of the longest list; symmetric, as NVSHMEM sends from there over any network.
        embeddings: how rows lie there.
    """

    def __init__(
        self, world: World, lists: Mapping[int, np.ndarray], memory: SymmetricArray,
        embeddings: Embeddings,
    ) -> None:  # fmt: skip
        self._memory, self._embeddings = memory, embeddings
        self._rows = {pe: world.upload(rows) for pe, rows in lists.items()}

    def send(self, world: World, source: Array, target: int, into: SymmetricArray, first: int = 0) -> None:
        """Put this PE's rows for ``target``, out of ``source`` [*, D], into its ``into`` [*, D] from ``first`` on."""
        rows, dim = self._rows[target], source.shape[1]
        # PEs send lists of different lengths, so this view is for this PE alone.
        packed = self._embeddings.matrix(self._memory, len(rows), dim).local
        if len(rows):
            world.operators.gather_rows(source, rows, packed)
        world.put_rows(into, target, first, packed)
