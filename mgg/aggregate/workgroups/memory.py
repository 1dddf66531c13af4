"""Sizes of the symmetric memory of workgroups. The fullest PE determines them, and no PE knows them alone.

Running PEs exchange their numbers (``HaloSizes``). Without an exchange, this PE bounds the unknown numbers from above
by the layout's manifest. The bound is never too small, and too large if the PEs differ much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgg.aggregate.memory_model import MemoryCase


@dataclass(frozen=True)
class HaloSizes:
    """What one PE knows, in rows.

    Attributes:
        near: rows that it needs from its own workgroup.
        far: rows that it needs from other workgroups, except its counterparts' rows, which it receives itself.
        messages: rows that each workgroup needs from it; 0 for its own.
        sent: rows that each PE needs from it, added up.
    """

    near: int
    far: int
    messages: tuple[int, ...]
    sent: int = 0


@dataclass(frozen=True)
class LargestSizes:
    """Rows of the PE that has the most of them.

    Attributes:
        near, far: as in ``HaloSizes``.
        message: rows of a message to another workgroup.
        sent: rows of all messages of one PE.
        mailbox: rows of all messages to one PE.
    """

    near: int
    far: int
    message: int
    sent: int
    mailbox: int


def halo_sizes(case: MemoryCase, members: int) -> HaloSizes:
    """Return what this PE knows, in workgroups of ``members`` PEs."""
    product, pes = case.product, np.arange(case.size)
    needed = np.diff(product.halo_ptr)
    inside, counterparts = pes // members == case.rank // members, pes % members == case.rank % members
    messages = [
        np.unique(product.send_rows[product.send_ptr[first] : product.send_ptr[first + members]])
        for first in range(0, case.size, members)
    ]
    sizes = [0 if inside[group * members] else len(rows) for group, rows in enumerate(messages)]
    near, far = int(needed[inside].sum()), int(needed[~inside & ~counterparts].sum())
    return HaloSizes(near, far, tuple(sizes), len(product.send_rows))


def room(case: MemoryCase, members: int) -> LargestSizes:
    """Return the rows of the fullest PE: exact if the PEs exchanged their numbers, else an upper bound."""
    mine = halo_sizes(case, members)
    return _at_most(case, members, mine) if case.exchanged_sizes is None else known(case.exchanged_sizes, members)


def known(everyone: Sequence[HaloSizes], members: int) -> LargestSizes:
    """Return the rows of the fullest PE from the numbers that all PEs exchanged."""
    messages = np.array([each.messages for each in everyone])
    boxes = _mailboxes(messages, members)
    near, far = max(each.near for each in everyone), max(each.far for each in everyone)
    return LargestSizes(near, far, int(messages.max()), int(messages.sum(axis=1).max()), int(boxes.max()))


def _mailboxes(messages: np.ndarray, members: int) -> np.ndarray:
    """Return the rows that arrive, int [G, W] by local rank and workgroup; senders of ``messages`` [P, W] keep their
    local rank."""
    return messages.reshape(-1, members, messages.shape[1]).sum(axis=0)


def _sent(messages: np.ndarray, arcs_back: np.ndarray | None) -> np.ndarray:
    """Bound the rows that each PE sends, int [P], by ``messages`` [P, W] and by the arcs back to it."""
    sent = messages.sum(axis=1)
    return sent if arcs_back is None else np.minimum(sent, arcs_back)


def _at_most(case: MemoryCase, members: int, mine: HaloSizes) -> LargestSizes:
    """Bound the sizes: this PE's own numbers are exact, and all else in another PE's halo may come from any PE."""
    product, heights, rank, pes = case.product, case.heights, case.rank, np.arange(case.size)
    group, place = pes // members, pes % members
    sent, needed = np.diff(product.send_ptr), np.diff(product.halo_ptr)
    rest = np.array(case.counts.halo_rows) - sent
    rest[rank] = 0  # this PE's own halo is known
    rests = np.bincount(group, rest).astype(np.int64)

    messages = np.minimum(heights[:, None], rests[None, :])
    ours = group[rank]
    messages[:, ours] = np.minimum(heights, rests[ours] + needed)
    messages[pes, group] = 0
    messages[rank] = 0
    # All messages to one mailbox hold at most the halos of its workgroup.
    outside = group != ours
    most = np.tile(rests, (members, 1))
    most[:, ours] += np.bincount(place[outside], needed[outside], members).astype(np.int64)
    boxes = np.minimum(_mailboxes(messages, members), most)
    messages[rank] = mine.messages
    boxes[place[rank]] += messages[rank]

    held = np.bincount(group, heights).astype(np.int64)[group]
    of_mates = held - heights
    of_counterparts = np.bincount(place, heights).astype(np.int64)[place] - heights
    of_others = heights.sum() - held - of_counterparts

    def halos(rows: np.ndarray, among: np.ndarray, own: int) -> int:
        """Bound the rows that a PE needs out of ``rows``; ``among``: they include this PE's rows."""
        found = np.where(among, sent, 0) + np.minimum(rest, rows - np.where(among, heights[rank], 0))
        found[rank] = own
        return int(found.max())

    return LargestSizes(
        halos(of_mates, ~outside, mine.near),
        halos(of_others, outside & (place != place[rank]), mine.far),
        int(messages.max()),
        int(_sent(messages, case.arcs_back).max()),
        int(boxes.max()),
    )
