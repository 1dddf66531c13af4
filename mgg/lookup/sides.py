"""The interface of sides, the ways to look up a batch that ``mgg lookup`` compares.

Every PE computes the sums of its share of a batch's bags. The side's split determines the owners of the rows. Tables
are read-only, so no side waits for writes. Planning a batch (owners, order, repeats) is part of a side's work, because
no batch comes twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray, name_pes
from mgg.errors import InputError
from mgg.lookup.samples import share
from mgg.lookup.tables import ByRows, ByTables, Tables
from mgg.records.lookup import Transport

#: Traffic counter of row numbers that are sent to owners, separate from embeddings.
IDS = "ids"


@dataclass(frozen=True)
class Batch:
    """One PE's bags of a batch.

    Attributes:
        ids: int32 [bags, tables] on the PE's device; row numbers run through all tables, one table after the other.
        size: bags of all PEs.
        remote: number of ``ids`` that other PEs own.
    """

    ids: Array
    size: int
    remote: int


class Side(ABC):
    """A way to look up batches.

    Attributes:
        split: assignment of rows to PEs.
        in_place: whether the side addresses the rows of all other PEs.
        transport: how bytes cross PEs, for the record.
    """

    name: ClassVar[str]
    split: ClassVar[type[ByRows] | type[ByTables]] = ByRows
    in_place: ClassVar[bool] = False
    transport: Transport = "one-sided"

    def __init__(self, tables: Tables, columns: int, size: int):
        """Allocate buffers (collective).

        Args:
            tables: the tables, with the side's split.
            columns: number of tables, the rows of a bag.
            size: bags of the largest batch, over all PEs.

        Raises:
            InputError: a PE does not address the memory that the side reads; on every PE.
        """
        self.world, self.tables, self.columns = tables.world, tables, columns
        self.pes, self.size = range(tables.world.size), size
        self.most = -(-size // len(self.pes))
        #: ``mgg.kernel.cpu.lookups``, or its GPU counterpart.
        self.kernels: Any = kernels_of(self.world)
        self._symmetric: list[SymmetricArray] = []
        self._check_reach()
        self._build()

    def _check_reach(self) -> None:
        """Raise InputError on every PE if a PE does not address the memory that the side reads (collective)."""
        reads = self.in_place or self.world.gpu
        lacking = [pe for pe in self.pes if pe not in self.tables.rows.peers] if reads else []
        found = self.world.gather(lacking)
        worst = next((pe for pe in self.pes if found[pe]), None)
        if worst is not None:
            raise InputError(
                f"side {self.name}: PE {worst} does not address the memory of {name_pes(found[worst])}:"
                + (" take GPUs of one host" if self.world.gpu else " take side mgg, which fetches the rows")
            ).on_every_pe()

    def bags(self, pe: int, size: int) -> int:
        """Return the number of PE ``pe``'s bags in a batch of ``size``."""
        first, end = share(size, pe, len(self.pes))
        return end - first

    def matrix(self, rows: int) -> Array:
        """Return an uninitialized float32 [rows, D] matrix on the PE's device, with the row pitch of the tables."""
        dim = self.tables.dim
        return self.world.xp.empty((max(rows, 1), self.tables.layout.pitch(dim)), np.float32)[:, :dim]

    def symmetric(self, rows: int, dim: int) -> SymmetricArray:
        """Return such a matrix with ``dim`` columns in symmetric memory (collective); ``close`` frees it."""
        layout, rows = self.tables.layout, max(rows, 1)
        self._symmetric.append(self.world.symmetric(layout.floats(rows, dim)))
        return layout.matrix(self._symmetric[-1], rows, dim)

    @abstractmethod
    def _build(self) -> None:
        """Allocate the buffers of batches (collective)."""

    @abstractmethod
    def __call__(self, batch: Batch, out: Array) -> None:
        """Look up ``batch`` into ``out`` float32 [bags, D] (collective)."""

    def close(self) -> None:
        """Free the symmetric memory (collective)."""
        self.world.barrier()
        while self._symmetric:
            self.world.free(self._symmetric.pop())


def kernels_of(world: World) -> Any:
    """Return the lookup kernels for the device of ``world``."""
    if world.gpu:
        from mgg.kernel.cuda.lookups import CudaLookups

        operators: Any = world.operators  # on GPUs they can also launch other kernels
        return CudaLookups(operators)
    from mgg.kernel.cpu import lookups

    return lookups
