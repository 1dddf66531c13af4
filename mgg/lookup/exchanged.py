"""Sides with an all-to-all exchange: PEs request row numbers and receive rows or sums.

Side ``alltoall`` receives rows, ``alltoall_tables`` sums. Owners read the numbers from the requesting PE's memory and
put their answers into its inbox; a barrier follows each of the two steps, as in a collective.
"""

from __future__ import annotations

import numpy as np

from mgg.backend.api import Array
from mgg.lookup.sides import IDS, Batch, Side
from mgg.lookup.tables import ByTables


class Exchange(Side):
    """The buffers that both sides share, for row numbers and answers."""

    def _build(self) -> None:
        self._numbers = self.symmetric(self.most * self.columns, 1)
        self._counting = self.world.upload(np.arange(self.most * self.columns, dtype=np.int32))
        self._read = self.world.xp.empty((max(self.most * self.columns, 1), 1), np.float32)

    def _asks(self, first: int, end: int) -> Array:
        """Return this PE's numbers ``first`` to ``end``, int32, to write; other PEs read them after a barrier."""
        return self._numbers.local[first:end].view(np.int32).reshape(-1)

    def _asked(self, pe: int, first: int, end: int) -> Array:
        """Return the numbers of PE ``pe`` at the same places, int32."""
        read = self._read[: end - first]
        self.world.get_rows(self._numbers, pe, self._counting[first:end], read, IDS)
        return read.view(np.int32).reshape(-1)


class AllToAllSide(Exchange):
    """A PE receives one row per index, and sums its bags once all have arrived."""

    name = "alltoall"

    def _build(self) -> None:
        super()._build()
        self._inbox = self.symmetric(self.most * self.columns, self.tables.dim)
        self._sent = self.symmetric(self.size * self.columns, self.tables.dim)

    def __call__(self, batch: Batch, out: Array) -> None:
        """Exchange requests and rows, then sum the bags."""
        world, height, me = self.world, self.tables.split.height, self.world.rank
        keys = self.kernels.keys(batch.ids, world.size, height)
        wanted, place = self.kernels.by_owner(keys.reshape(-1))
        ends = self.kernels.ends(wanted, world.size, height)
        self._asks(0, len(wanted))[...] = self.kernels.rows(wanted, height)
        spans = world.exchange([(ends[pe], ends[pe + 1]) for pe in self.pes])
        world.barrier()
        self._answer({pe: span for pe, span in enumerate(spans) if pe != me})
        world.barrier()
        places = self.kernels.places(keys, place, me, height)
        self.kernels.pool(places, self.tables.rows.local, self._inbox.local, out)

    def _answer(self, spans: dict[int, tuple[int, int]]) -> None:
        """Put the rows that PEs request, by the span of their numbers, into the same places of their inboxes."""
        done = 0
        for pe, (first, end) in spans.items():
            rows = self._sent.local[done : done + end - first]
            if len(rows):
                numbers = self._asked(pe, first, end)
                self.world.operators.gather_rows(self.tables.rows.local, numbers, rows)
                self.world.put_rows(self._inbox, pe, first, rows)
            done += end - first


class AllToAllTablesSide(Exchange):
    """A PE owns whole tables, as in DLRM: it sums each bag's rows of its tables, and sends one row per bag."""

    name = "alltoall_tables"
    split = ByTables

    def _build(self) -> None:
        super()._build()
        split = self.tables.split
        assert isinstance(split, ByTables)
        self._columns = [slice(*split.tables[pe : pe + 2]) for pe in self.pes]
        self._first = split.first
        owners = [pe for pe in self.pes if self._columns[pe].stop > self._columns[pe].start]
        self._inbox = self.symmetric(len(self.pes) * self.most, self.tables.dim)
        self._sent = self.symmetric(self.size, self.tables.dim)
        slots = np.array(owners)[None, :] * self.most + np.arange(self.most)[:, None]
        self._places = self.world.upload(~slots.astype(np.int32))

    def __call__(self, batch: Batch, out: Array) -> None:
        """Exchange requests and partial sums, then add them up."""
        bags = len(batch.ids)
        for pe, columns in enumerate(self._columns):
            asks = self._asks(bags * columns.start, bags * columns.stop)
            if len(asks):
                asks.reshape(bags, -1)[...] = batch.ids[:, columns] + -self._first[pe]
        self.world.barrier()
        self._answer(batch.size)
        self.world.barrier()
        self.kernels.pool(self._places[:bags], self._inbox.local, self._inbox.local, out)

    def _answer(self, size: int) -> None:
        """Put the partial sums over this PE's tables of every PE's bags into their inboxes."""
        me, own, done = self.world.rank, self.tables.rows.local, 0
        mine = self._columns[me]
        for pe in self.pes:
            bags = self.bags(pe, size)
            if not bags or mine.start == mine.stop:
                continue
            places = self._asked(pe, bags * mine.start, bags * mine.stop).reshape(bags, -1)
            sums = self._sent.local[done : done + bags]
            self.kernels.pool(places, own, own, sums)
            self.world.put_rows(self._inbox, pe, me * self.most, sums)
            done += bags
