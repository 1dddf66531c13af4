"""The assignment of table rows to PEs, and the rows themselves in symmetric memory."""

from __future__ import annotations

import numpy as np

from mgg.aggregate import oracle
from mgg.aggregate.embeddings import Embeddings
from mgg.backend import World
from mgg.backend.api import SymmetricArray, gpu_memory_errors
from mgg.errors import memory_error

#: Rows that are filled at a time.
_CHUNK = 1 << 18


class ByRows:
    """Every table is split by rows: row r is row r div P of PE r mod P, so each table is spread over all PEs.

    Attributes:
        height: most rows on a PE.
    """

    name = "rows"

    def __init__(self, tables: list[int], pes: int):
        self._total, self._pes = sum(tables), pes
        self.height = -(-self._total // pes)

    def rows_of(self, pe: int) -> range:
        """Return the rows of PE ``pe`` in its storage order: every P-th one of all tables' rows."""
        return range(pe, self._total, self._pes)

    def remote(self, ids: np.ndarray, pe: int) -> int:
        """Return how many of the rows ``ids`` are not on PE ``pe``."""
        return int(np.count_nonzero(ids % self._pes != pe))


class ByTables:
    """Whole tables go to PEs in order, equally many per PE; with a remainder, the first PEs get one more.

    DLRM itself splits them in this way (``get_split_lengths`` of facebookresearch/dlrm).

    Attributes:
        tables: int [P + 1]; PE p owns tables ``tables[p]`` to ``tables[p + 1] - 1``.
        first: first row of each PE, int [P + 1].
    """

    name = "tables"

    def __init__(self, tables: list[int], pes: int):
        each, more = divmod(len(tables), pes)
        self.tables = np.cumsum([0, *(each + (pe < more) for pe in range(pes))]).tolist()
        rows = np.cumsum([0, *tables])
        self.first: list[int] = rows[self.tables].tolist()
        self.height = int(np.diff(self.first).max())

    def rows_of(self, pe: int) -> range:
        """As for ``ByRows``: the rows of the PE's tables."""
        return range(self.first[pe], self.first[pe + 1])

    def remote(self, ids: np.ndarray, pe: int) -> int:
        """As for ``ByRows``."""
        return int(np.count_nonzero((ids < self.first[pe]) | (ids >= self.first[pe + 1])))


class Tables:
    """The rows of one PE, ``dim`` columns of float32, with access to other PEs' rows.

    Values depend only on row and column (``mgg.aggregate.oracle``).
    """

    def __init__(self, world: World, split: ByRows | ByTables, dim: int):
        """Allocate and fill (collective).

        Raises:
            MachineError: too little memory.
        """
        self.world, self.split, self.dim = world, split, dim
        self.layout = Embeddings(np.float32, bool(world.gpu))
        mine = split.rows_of(world.rank)
        try:
            with gpu_memory_errors(world):
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
        """Free the rows (collective)."""
        self.world.barrier()
        self.world.free(self._array)
