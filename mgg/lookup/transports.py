"""Transports of the all-to-all sides: numbers of rows go to their owners, and rows come back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mgg.backend.api import Array
from mgg.errors import InputError, MachineError
from mgg.lookup.sides import IDS, Side
from mgg.records.lookup import Transport

#: By PE, the first place and the end, among the numbers that a PE requests or in its inbox.
Spans = Sequence[tuple[int, int]]


class Nccl:
    """Exchange between GPUs, as ``torch.distributed.all_to_all`` does it: each step is one group of sends and receives.

    Attributes:
        numbers: int32 [requests], what this PE requests.
        inbox: float32 [answers, D], what it receives.
    """

    name: Transport = "nccl"

    def __init__(self, side: Side, requests: int, answers: int, received: int):
        """Allocate (collective).

        Args:
            side: the side.
            requests: places for numbers that this PE requests.
            answers: places for rows in its inbox.
            received: most numbers that all PEs request from this PE.

        Raises:
            InputError: NCCL is missing; on every PE.
            MachineError: NCCL does not start.
        """
        self._world, self._kernels, world = side.world, side.kernels, side.world
        try:
            self._team: Any = world.team(side.pes)  # teams of NCCL also have all_to_all
        except MachineError as error:
            if not error.everywhere:
                raise
            raise InputError(f"side {side.name}: {error}, or leave the side out").on_every_pe() from None
        self.numbers = world.xp.empty(requests, np.int32)
        self.inbox = world.xp.empty((answers, side.tables.dim), np.float32)
        self._received = world.xp.empty(received, np.int32)

    def group(self, ids: Array) -> tuple[Array, Spans, Spans]:
        """Group ``ids`` by owner; the host waits for the GPU once, for the counts (collective).

        Returns:
            places for ``pool``, and the spans of ``ask``; those of this PE itself are empty.
        """
        world, pes, size = self._world, range(self._world.size), ids.size
        counts = world.xp.zeros((2, len(pes)), np.int32)
        places = self._kernels.group(ids, len(pes), world.rank, self.numbers, counts[0])
        each = [(pe, pe + 1) for pe in pes]
        self._team.all_to_all(counts[0], each, counts[1], each, None)
        requested, asked = world.download(counts).tolist()
        mine = [(pe * size, pe * size + count) for pe, count in enumerate(requested)]
        return places, mine, [(0, count) for count in asked]

    def ask(self, mine: Spans, theirs: Spans) -> Array:
        """Send the numbers that this PE requests (collective).

        Args:
            mine: what this PE requests from each PE, as spans of ``numbers``.
            theirs: what each PE requests from this PE, as spans of its ``numbers``.

        Returns:
            int32: the numbers of all PEs, in their order.
        """
        packed = _packed(theirs)
        self._team.all_to_all(self.numbers, mine, self._received, packed, IDS)
        return self._received[: packed[-1][1]]

    def answer(self, rows: Array, theirs: Spans, mine: Spans) -> None:
        """Send float32 [answers, D] ``rows`` for all PEs, in their order (collective).

        Args:
            rows: the answers.
            theirs: where the answers to each PE go, as spans of its inbox.
            mine: where the answers of each PE go, as spans of ``inbox``.
        """
        self._team.all_to_all(rows, _packed(theirs), self.inbox, mine)


class OneSided:
    """Exchange between CPU ranks: owners read the numbers from the requesting PE's memory and put rows into its inbox.

    A barrier follows each of the two steps, as in a collective. For methods and attributes see ``Nccl``.
    """

    name: Transport = "one-sided"

    def __init__(self, side: Side, requests: int, answers: int, received: int):
        self._world, self._kernels, self._height = side.world, side.kernels, side.tables.split.height
        self._numbers, self._inbox = side.symmetric(requests, 1), side.symmetric(answers, side.tables.dim)
        self.numbers, self.inbox = self._numbers.local.view(np.int32).reshape(-1), self._inbox.local
        self._received = np.empty((received, 1), np.float32)

    def group(self, ids: Array) -> tuple[Array, Spans, Spans]:
        """Group ``ids`` by owner (collective)."""
        world, kernels, height = self._world, self._kernels, self._height
        keys = kernels.keys(ids, world.size, height)
        wanted, place = kernels.by_owner(keys.reshape(-1))
        self.numbers[: len(wanted)] = kernels.rows(wanted, height)
        mine = list(pairwise(kernels.ends(wanted, world.size, height)))
        mine[world.rank] = (0, 0)
        return kernels.places(keys, place, world.rank, height), mine, world.exchange(mine)

    def ask(self, mine: Spans, theirs: Spans) -> Array:
        """Read what the PEs request (collective)."""
        self._world.barrier()
        packed = _packed(theirs)
        for pe, (first, end) in enumerate(theirs):
            into = self._received[slice(*packed[pe])]
            self._world.get_rows(self._numbers, pe, range(first, end), into, IDS)
        return self._received[: packed[-1][1]].view(np.int32).reshape(-1)

    def answer(self, rows: Array, theirs: Spans, mine: Spans) -> None:
        """Put the answers (collective)."""
        for pe, span in enumerate(_packed(theirs)):
            self._world.put_rows(self._inbox, pe, theirs[pe][0], rows[slice(*span)])
        self._world.barrier()


def _packed(spans: Spans) -> list[tuple[int, int]]:
    """Return spans of the same lengths that follow one another from 0 on."""
    return list(pairwise(accumulate((end - first for first, end in spans), initial=0)))
