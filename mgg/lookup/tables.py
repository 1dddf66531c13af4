"""Which PE has which rows of the tables, and the rows themselves in symmetric memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mgg.aggregate import oracle
from mgg.aggregate.embeddings import Embeddings
from mgg.backend import World
from mgg.backend.api import SymmetricArray, told_of_gpu_memory
from mgg.errors import memory_error

#: Rows that are made at once.
_CHUNK = 1 << 18


class Split(Protocol):
    """Who owns the rows of all tables, which are numbered one table after the other.

    Attributes:
        name: ``rows`` or ``tables``.
        height: most rows of a PE.
    """

    name: str
    height: int

    def rows_of(self, pe: int) -> range:
        """The rows of PE ``pe``, in the order in which it has them."""

    def remote(self, ids: np.ndarray, pe: int) -> int:
        """How many of the rows ``ids`` another than PE ``pe`` owns."""


class ByRows:
    """Every table split by rows: row r is PE r mod P's row r div P, so that each table is spread over all PEs."""

    name = "rows"

    def __init__(self, tables: list[int], pes: int):
        self._total, self._pes = sum(tables), pes
        self.height = -(-self._total // pes)

    def rows_of(self, pe: int) -> range:
        """Every P-th row."""
        return range(pe, self._total, self._pes)

    def remote(self, ids: np.ndarray, pe: int) -> int:
        """Those with another rest."""
        return int(np.count_nonzero(ids % self._pes != pe))


class ByTables:
    """Whole tables: as many to each PE, in their order; the first have one more where that does not come out even.

    That is how DLRM itself shares them out (``get_split_lengths`` of facebookresearch/dlrm).

    Attributes:
        tables: int [P + 1], PE p has those from ``tables[p]`` to ``tables[p + 1] - 1``.
        first: its first row, int [P + 1].
    """

    name = "tables"

    def __init__(self, tables: list[int], pes: int):
        each, more = divmod(len(tables), pes)
        self.tables = np.cumsum([0, *(each + (pe < more) for pe in range(pes))]).tolist()
        rows = np.cumsum([0, *tables])
        self.first: list[int] = rows[self.tables].tolist()
        self.height = int(np.diff(self.first).max())

    def rows_of(self, pe: int) -> range:
        """Those of its tables."""
        return range(self.first[pe], self.first[pe + 1])

    def remote(self, ids: np.ndarray, pe: int) -> int:
        """Those of other tables."""
        return int(np.count_nonzero((ids < self.first[pe]) | (ids >= self.first[pe + 1])))


class Tables:
    """The rows of one PE, ``dim`` columns of float32, and ways to those of the others.

    What they hold depends on row and column alone (``mgg.aggregate.oracle``).
    """

    def __init__(self, world: World, split: Split, dim: int):
        """Allocate and fill (collective).

        Raises:
            MachineError: too little memory.
        """
        self.world, self.split, self.dim = world, split, dim
        self.layout = Embeddings(np.float32, bool(world.gpu))
        mine = split.rows_of(world.rank)
        try:
            with told_of_gpu_memory(world):
                self._array = world.symmetric(self.layout.floats(split.height, dim))
                self.rows: SymmetricArray = self.layout.matrix(self._array, split.height, dim)
                for first in range(0, len(mine), _CHUNK):
                    some = mine[first : first + _CHUNK]
                    values = oracle.embeddings(np.arange(some.start, some.stop, some.step), dim)
                    self.rows.local[first : first + len(some)] = world.upload(values)
        except MemoryError:
            raise memory_error(
                f"{split.height} rows of {dim} columns on each PE take {4 * split.height * dim} bytes"
            ) from None
        world.barrier()

    def close(self) -> None:
        """Free them (collective)."""
        self.world.barrier()
        self.world.free(self._array)
