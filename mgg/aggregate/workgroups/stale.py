"""Rows of other workgroups as they were an epoch ago (PipeGCN, Wan et al., ICLR 2022, algorithm 1).

A training pass has the same products each time, in the same order. What one of them sends is used by the same product
of the next pass, so that it has a whole epoch to cross. The first pass has nothing older and waits for its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mgg.aggregate.embeddings import Form
from mgg.aggregate.memory_model import Case
from mgg.aggregate.workgroups import makes_groups, members_of
from mgg.aggregate.workgroups.mailbox import Mailbox
from mgg.aggregate.workgroups.memory import room
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.aggregate.workgroups.wire import crossing_bytes
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray, Work


def stale_bytes(case: Case, columns: Sequence[int]) -> int:
    """Bytes that one PE's plan keeps for products of so many ``columns`` in a training pass."""
    members = members_of(case.options, case.layout)
    if not makes_groups(case.size, members):
        return 0
    most = room(case, members)
    rows = 2 * most.mailbox + most.sent
    packed = [crossing_bytes(case.options, case.dtype, rows, each) for each in columns]
    plain = [case.embeddings(rows) * each // case.dim for each in columns]
    return sum(now if few is None else few for few, now in zip(packed, plain, strict=True))


@dataclass
class _Site:
    """One product of a training pass.

    Attributes:
        dim: its columns.
        boxes: two mailboxes, one that is filled while the other is read.
        outbox: what this PE sends.
        newest: the mailbox that was filled last; None: none was.
    """

    dim: int
    boxes: tuple[SymmetricArray, SymmetricArray]
    outbox: Outbox
    newest: int | None = None


@dataclass
class Stale:
    """What one plan keeps from one training pass to the next (its methods are collective).

    Args:
        world: the PEs.
        mailbox: where rows arrive.
        sent: rows that the PE which sends the most does.
        form: how rows lie as they cross.
        outbox: what sends them, from such memory.
        allocate: symmetric memory for so many floats.
    """

    world: World
    mailbox: Mailbox
    sent: int
    form: Form
    outbox: Callable[[SymmetricArray], Outbox]
    allocate: Callable[[int], SymmetricArray]
    training: bool = False
    _sites: list[_Site] = field(default_factory=list)
    _next: int = 0
    _given: dict[int, Array] = field(default_factory=dict)
    _coming: list[Work] = field(default_factory=list)

    def begin(self, training: bool) -> None:
        """A pass begins; before one of a training all that was sent in the last one has arrived, everywhere."""
        self.training, self._next = training, 0
        if training:
            self.world.gather(None)  # no CUDA graph holds this: its launches would use the same mailboxes each time
            self.settle()

    def settle(self) -> None:
        """Wait until all that was sent has arrived, everywhere."""
        while self._coming:
            self._coming.pop().wait()
        self.world.barrier()

    def turn(self, source: Array) -> tuple[Array, Work | None]:
        """Send this PE's rows of ``source`` [*, D] for the next product of this place.

        Returns:
            The mailbox of this product on this PE, rows as they crossed, and what it waits for first; None: nothing.
        """
        site = self._site(source.shape[1])
        site.outbox.pack(self.world, source)
        into = 0 if site.newest is None else 1 - site.newest
        with self.world.aside() as work:
            site.outbox.put(self.world, self._matrix(site, into), self.mailbox.slots, site.dim)
        read, site.newest = site.newest, into
        if read is None:
            return self._matrix(site, into).local, work
        self._coming.append(work)
        return self._matrix(site, read).local, None

    def _site(self, dim: int) -> _Site:
        if self._next == len(self._sites):
            self._sites.append(self._made(dim))
        site = self._sites[self._next]
        assert site.dim == dim, "training passes have the same products"
        self._next += 1
        return site

    def _made(self, dim: int) -> _Site:
        rows = self.form.floats(self.mailbox.rows, dim)
        boxes = self.allocate(rows), self.allocate(rows)
        site = _Site(dim, boxes, self.outbox(self.allocate(self.form.floats(self.sent, dim))))
        self._take(len(self._sites), site)
        return site

    def _take(self, number: int, site: _Site) -> None:
        """What was given to go on from, by the product of place ``number``."""
        if number in self._given:
            self._matrix(site, 0).local[...] = self._given.pop(number)
            site.newest = 0

    def _matrix(self, site: _Site, box: int) -> SymmetricArray:
        return self.form.matrix(site.boxes[box], self.mailbox.rows, site.dim)

    def forget(self) -> None:
        """The next training pass is the first."""
        self.settle()
        for site in self._sites:
            site.newest = None

    def held(self) -> dict[str, np.ndarray]:
        """The rows of this PE that the next training pass goes on from, by place, in host memory."""
        self.settle()
        sites = enumerate(self._sites)
        newest = {n: self._matrix(site, site.newest).local for n, site in sites if site.newest is not None}
        rows = sorted((self._given | newest).items())
        return {f"{number}.{self.world.rank}": self.world.download(each).copy() for number, each in rows}

    def hold(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``held`` has said on every PE; the products that were tell how many columns theirs have."""
        self.settle()
        for number in range(len({name.partition(".")[0] for name in arrays})):
            self._given[number] = self.world.upload(arrays[f"{number}.{self.world.rank}"])
        for number, site in enumerate(self._sites):
            self._take(number, site)
        self.world.barrier()
