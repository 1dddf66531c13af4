"""Sides whose PEs fetch the rows that they need with one-sided reads: ``mgg``, ``direct`` and ``halo``."""

from __future__ import annotations

from mgg.backend.api import Array
from mgg.lookup.sides import Batch, Side

#: Bags per block: a CPU rank of ``mgg`` fetches a block's remote rows, then sums it. The size is that of a GPU block
#: with the technique's defaults, dist * wpb.
BLOCK = 64


class MggSide(Side):
    """Remote rows, one per index, are fetched while local rows are summed: on GPUs in one launch (MGG 4, 5).

    CPU ranks work block by block: one-sided gets of a block's remote rows, then its sums.
    """

    name = "mgg"

    def _build(self) -> None:
        self._peers = self.kernels.peers(self.tables.rows.peers)
        self._fetched = None if self.world.gpu else self.matrix(min(self.most, BLOCK) * self.columns)

    def __call__(self, batch: Batch, out: Array) -> None:
        """Look up block by block on CPUs, in one launch on GPUs."""
        if self._fetched is None:
            self.kernels.mgg(batch.ids, self.world.rank, self._peers, out)
            self.world.counters.add("get", 4 * batch.remote * self.tables.dim)
            return
        world, height = self.world, self.tables.split.height
        for first in range(0, len(batch.ids), BLOCK):
            keys = self.kernels.keys(batch.ids[first : first + BLOCK], world.size, height)
            wanted, place = self.kernels.by_owner(keys.reshape(-1))
            _fetch(self, wanted, self._fetched)
            places = self.kernels.places(keys, place, world.rank, height)
            self.kernels.pool(places, self.tables.rows.local, self._fetched, out[first : first + BLOCK])


class DirectSide(Side):
    """Every row is read in place, by loads from the owner's memory, without a pipeline."""

    name = "direct"
    in_place = True

    def _build(self) -> None:
        self._peers = self.kernels.peers(self.tables.rows.peers)

    def __call__(self, batch: Batch, out: Array) -> None:
        """Look up in one launch."""
        self.kernels.direct(batch.ids, self._peers, out)
        self.world.counters.add("get", 4 * batch.remote * self.tables.dim)


class HaloSide(Side):
    """Each remote row that a PE's bags need is fetched once; the search for distinct rows is timed, too."""

    name = "halo"

    def _build(self) -> None:
        self._halo = self.matrix(self.most * self.columns)

    def __call__(self, batch: Batch, out: Array) -> None:
        """Plan, fetch and sum."""
        world, height = self.world, self.tables.split.height
        keys = self.kernels.keys(batch.ids, world.size, height)
        wanted, place = self.kernels.distinct(keys.reshape(-1))
        _fetch(self, wanted, self._halo)
        places = self.kernels.places(keys, place, world.rank, height)
        self.kernels.pool(places, self.tables.rows.local, self._halo, out)


def _fetch(side: Side, wanted: Array, into: Array) -> None:
    """Fetch the other PEs' rows of the sorted keys ``wanted`` into the same places of ``into``."""
    height, me = side.tables.split.height, side.world.rank
    ends = side.kernels.ends(wanted, len(side.pes), height)
    rows = side.kernels.rows(wanted, height)
    for pe in side.pes:
        span = slice(ends[pe], ends[pe + 1])
        if pe != me and span.stop > span.start:
            side.world.get_rows(side.tables.rows, pe, rows[span], into[span])
