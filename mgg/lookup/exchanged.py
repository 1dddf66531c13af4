"""Sides with an all-to-all exchange: PEs request row numbers and receive rows or sums.

Side ``alltoall`` receives rows, ``alltoall_tables`` sums. GPUs exchange over NCCL, CPU ranks one-sided.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mgg.backend.api import Array
from mgg.lookup.sides import Batch, Side
from mgg.lookup.tables import ByTables
from mgg.lookup.transports import Nccl, OneSided, Spans


class Exchange(Side):
    """The buffers that both sides share, for row numbers and answers."""

    def _allocate(self, requests: int, answers: int, received: int, sent: int) -> None:
        """Allocate the transport (see there) and room for ``sent`` answers of this PE (collective)."""
        transport = Nccl if self.world.gpu else OneSided
        self._moves: Nccl | OneSided = transport(self, requests, answers, received)
        self.transport = transport.name
        self._sent = self.world.xp.empty((sent, self.tables.dim), np.float32)


class AllToAllSide(Exchange):
    """A PE receives one row per index, and sums its bags once all have arrived."""

    name = "alltoall"

    def _build(self) -> None:
        all_rows, most = self.size * self.columns, self.most * self.columns
        places = most * len(self.pes) if self.world.gpu else most  # GPUs leave room for all numbers at every owner
        self._allocate(places, places, all_rows, all_rows)

    def __call__(self, batch: Batch, out: Array) -> None:
        """Exchange requests and rows, then sum the bags."""
        own = self.tables.rows.local
        places, mine, theirs = self._moves.group(batch.ids)
        asked = self._moves.ask(mine, theirs)
        answers = self._sent[: len(asked)]
        self.world.operators.gather_rows(own, asked, answers)
        self._moves.answer(answers, theirs, mine)
        self.kernels.pool(places, own, self._moves.inbox, out)


class _Plan(NamedTuple):
    """What ``alltoall_tables`` moves for batches of one size.

    Attributes:
        order: int64 [requests], the place of each requested index among those of the PE's bags, owner by owner.
        first: int32 [requests], the first row of its owner.
        requested, asked, sent, received: what goes to each PE, or comes from it, in the words of ``transports``.
    """

    order: Array
    first: Array
    requested: Spans
    asked: Spans
    sent: Spans
    received: Spans


class AllToAllTablesSide(Exchange):
    """A PE owns whole tables, as in DLRM: it sums each bag's rows of its tables, and sends one row per bag."""

    name = "alltoall_tables"
    split = ByTables

    def _build(self) -> None:
        split, me = self.tables.split, self.world.rank
        assert isinstance(split, ByTables)
        self._spans, self._first = list(pairwise(split.tables)), split.first[:-1]
        self._owners = [pe for pe, (begin, end) in enumerate(self._spans) if end > begin]
        mine = self._spans[me][1] - self._spans[me][0]
        self._allocate(self.most * self.columns, len(self.pes) * self.most, self.size * mine, self.size)
        slots = np.array(self._owners)[None, :] * self.most + np.arange(self.most)[:, None]
        self._places = self.world.upload(~slots.astype(np.int32))
        self._plans: dict[int, _Plan] = {}

    def __call__(self, batch: Batch, out: Array) -> None:
        """Exchange requests and partial sums, then add them up."""
        own, moves, plan = self.tables.rows.local, self._moves, self._plan(batch.size)
        np.subtract(batch.ids.reshape(-1)[plan.order], plan.first, out=moves.numbers[: len(plan.order)])
        asked = moves.ask(plan.requested, plan.asked)
        sums = self._sent[: batch.size if self.world.rank in self._owners else 0]
        if len(sums):
            self.kernels.pool(asked.reshape(len(sums), -1), own, own, sums)
        moves.answer(sums, plan.sent, plan.received)
        self.kernels.pool(self._places[: len(batch.ids)], moves.inbox, moves.inbox, out)

    def _plan(self, size: int) -> _Plan:
        """Return what batches of ``size`` move, which is the same for all of them."""
        if size not in self._plans:
            me, everywhere = self.world.rank, [self.bags(pe, size) for pe in self.pes]
            bags, (begin, end) = everywhere[me], self._spans[me]
            indices = np.arange(bags * self.columns).reshape(bags, self.columns)
            first = np.repeat(self._first, [bags * (end - begin) for begin, end in self._spans])
            self._plans[size] = _Plan(
                self.world.upload(np.concatenate([indices[:, slice(*span)].reshape(-1) for span in self._spans])),
                self.world.upload(first.astype(np.int32)),
                [(bags * begin, bags * end) for begin, end in self._spans],
                [(each * begin, each * end) for each in everywhere],
                [self._sums(me, each) for each in everywhere],
                [self._sums(pe, bags) for pe in self.pes],
            )
        return self._plans[size]

    def _sums(self, owner: int, bags: int) -> tuple[int, int]:
        """Return where the inbox of a PE with ``bags`` bags has the sums of PE ``owner``."""
        first = owner * self.most
        return first, first + (bags if owner in self._owners else 0)
