"""Rows of other workgroups from one epoch ago (PipeGCN, Wan et al., ICLR 2022, algorithm 1).

Every training pass runs the same products in the same order. The rows that a product sends are used by the same product
of the next pass, so they have a whole epoch to cross. The first pass has no older rows and waits for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mgg.aggregate.embeddings import Form
from mgg.aggregate.memory_model import MemoryCase
from mgg.aggregate.workgroups import makes_groups, members_of
from mgg.aggregate.workgroups.mailbox import Mailbox
from mgg.aggregate.workgroups.memory import room
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.aggregate.workgroups.quantized_rows import crossing_bytes
from mgg.backend import World
from mgg.backend.api import Array, SideWork, SymmetricArray


def stale_bytes(case: MemoryCase, columns: Sequence[int]) -> int:
    """Return the bytes that one PE's plan keeps for products of these ``columns`` in a training pass."""
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
        boxes: two mailboxes; one is filled while the other is read.
        outbox: sends this PE's rows.
        newest: the mailbox that was filled last; None: none so far.
    """

    dim: int
    boxes: tuple[SymmetricArray, SymmetricArray]
    outbox: Outbox
    newest: int | None = None


@dataclass
class Stale:
    """State that one plan keeps from one training pass to the next (its methods are collective).

    Args:
        mailbox: the order of arriving rows.
        sent: rows sent by the PE that sends most.
        form: memory layout of rows as they cross.
        outbox: makes an outbox that sends from the given memory.
        allocate: allocates symmetric memory for a number of floats.
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
    _coming: list[SideWork] = field(default_factory=list)

    def begin(self, training: bool) -> None:
        """Start a pass; before a training pass, wait until all rows of the last one have arrived on every PE."""
        self.training, self._next = training, 0
        if training:
            self.world.gather(None)  # keeps this out of CUDA graphs, whose launches would always use the same mailboxes
            self.wait_for_rows()

    def wait_for_rows(self) -> None:
        """Wait until all sent rows have arrived on every PE."""
        while self._coming:
            self._coming.pop().wait()
        self.world.barrier()

    def turn(self, source: Array) -> tuple[Array, SideWork | None]:
        """Send this PE's rows of ``source`` [*, D] for this product of the next pass.

        Returns:
            This PE's mailbox for the current product, with rows as they crossed; and the work to wait for first, or
            None.
        """
        site = self._site(source.shape[1])
        site.outbox.pack(self.world, source)
        into = 0 if site.newest is None else 1 - site.newest
        with self.world.side_stream() as work:
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
        """Copy restored rows into product ``number``, if there are any."""
        if number in self._given:
            self._matrix(site, 0).local[...] = self._given.pop(number)
            site.newest = 0

    def _matrix(self, site: _Site, box: int) -> SymmetricArray:
        return self.form.matrix(site.boxes[box], self.mailbox.rows, site.dim)

    def forget(self) -> None:
        """Make the next training pass start without older rows."""
        self.wait_for_rows()
        for site in self._sites:
            site.newest = None

    def state(self) -> dict[str, np.ndarray]:
        """Return this PE's rows that the next training pass starts from, by product, in host memory."""
        self.wait_for_rows()
        sites = enumerate(self._sites)
        newest = {n: self._matrix(site, site.newest).local for n, site in sites if site.newest is not None}
        rows = sorted((self._given | newest).items())
        return {f"{number}.{self.world.rank}": self.world.download(each).copy() for number, each in rows}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the rows that ``state`` returned on every PE; existing products determine their columns."""
        self.wait_for_rows()
        for number in range(len({name.partition(".")[0] for name in arrays})):
            self._given[number] = self.world.upload(arrays[f"{number}.{self.world.rank}"])
        for number, site in enumerate(self._sites):
            self._take(number, site)
        self.world.barrier()
