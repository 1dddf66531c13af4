"""How a batch is looked up: what the sides that ``mgg lookup`` compares have in common.

Every PE has its share of a batch's bags and wants their sums; who owns the rows follows from the side's split. Tables
are only read, so no side waits for rows to be written; what a side plans for a batch (owners, order, repeats) is part
of its work, since no batch comes twice.
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

#: What numbers of rows count as on their way to the rows' owners, apart from embeddings.
IDS = "ids"


@dataclass(frozen=True)
class Batch:
    """A PE's bags of a batch.

    Attributes:
        ids: int32 [bags, tables] on the PE's device, rows of all tables, one table after the other.
        size: bags of all PEs.
        remote: how many of ``ids`` other PEs own.
    """

    ids: Array
    size: int
    remote: int


class Side(ABC):
    """A way to look up batches.

    Attributes:
        name: what the command line calls it.
        split: who owns the rows.
        in_place: it addresses the rows of all other PEs.
    """

    name: ClassVar[str]
    split: ClassVar[type[ByRows] | type[ByTables]] = ByRows
    in_place: ClassVar[bool] = False

    def __init__(self, tables: Tables, columns: int, size: int):
        """Make room (collective).

        Args:
            tables: split as the side wants them.
            columns: how many tables there are, the rows of a bag.
            size: bags of the largest batch, all PEs together.

        Raises:
            InputError: the PEs do not address what it reads; on every PE.
        """
        self.world, self.tables, self.columns = tables.world, tables, columns
        self.pes, self.size = range(tables.world.size), size
        self.most = -(-size // len(self.pes))
        #: ``mgg.kernel.cpu.lookups``, or its like for GPUs.
        self.kernels: Any = kernels_of(self.world)
        self._symmetric: list[SymmetricArray] = []
        self._check_reach()
        self._build()

    def _check_reach(self) -> None:
        """Refuse PEs that do not address what the side reads, on every PE alike (collective)."""
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
        """How many bags PE ``pe`` has of a batch of ``size``."""
        first, end = share(size, pe, len(self.pes))
        return end - first

    def matrix(self, rows: int) -> Array:
        """float32 [rows, D] on the PE's device, uninitialized, with rows as far apart as those of the tables."""
        dim = self.tables.dim
        return self.world.xp.empty((max(rows, 1), self.tables.layout.pitch(dim)), np.float32)[:, :dim]

    def symmetric(self, rows: int, dim: int) -> SymmetricArray:
        """The same in symmetric memory, with ``dim`` columns (collective); freed with the side."""
        layout, rows = self.tables.layout, max(rows, 1)
        self._symmetric.append(self.world.symmetric(layout.floats(rows, dim)))
        return layout.matrix(self._symmetric[-1], rows, dim)

    @abstractmethod
    def _build(self) -> None:
        """Allocate what batches need (collective)."""

    @abstractmethod
    def __call__(self, batch: Batch, out: Array) -> None:
        """Look up ``batch`` into ``out`` float32 [bags, D] (collective)."""

    def close(self) -> None:
        """Free the symmetric memory (collective)."""
        self.world.barrier()
        while self._symmetric:
            self.world.free(self._symmetric.pop())


def kernels_of(world: World) -> Any:
    """What the device of ``world`` computes."""
    if world.gpu:
        from mgg.kernel.cuda.lookups import CudaLookups

        operators: Any = world.operators  # a GPU's launch kernels beside the table of operators
        return CudaLookups(operators)
    from mgg.kernel.cpu import lookups

    return lookups
