"""How many rows the symmetric memory of workgroups holds: what its fullest PE needs, which no PE knows alone.

PEs that talk tell each other (``Told``). Without that, what this PE does not know is bounded from above by what the
layout's manifest says of every PE: it is never too little, and too much where needs are far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgg.aggregate.memory_model import Case


@dataclass(frozen=True)
class Told:
    """What one PE knows, in rows.

    Attributes:
        near: that it needs of its own workgroup.
        far: that it needs of other workgroups, but for those of its counterparts, which it receives itself.
        messages: that each workgroup needs of it, none for its own.
        sent: that each PE needs of it, together.
    """

    near: int
    far: int
    messages: tuple[int, ...]
    sent: int = 0


@dataclass(frozen=True)
class Room:
    """Rows of the PE that has the most of them.

    Attributes:
        near, far: as in ``Told``.
        message: of a message to another workgroup.
        sent: of all messages of one PE.
        mailbox: of all messages to one PE.
    """

    near: int
    far: int
    message: int
    sent: int
    mailbox: int


def told(case: Case, members: int) -> Told:
    """What this PE knows, in workgroups of ``members`` PEs."""
    product, pes = case.product, np.arange(case.size)
    needed = np.diff(product.halo_ptr)
    inside, counterparts = pes // members == case.rank // members, pes % members == case.rank % members
    messages = [
        np.unique(product.send_rows[product.send_ptr[first] : product.send_ptr[first + members]])
        for first in range(0, case.size, members)
    ]
    sizes = [0 if inside[group * members] else len(rows) for group, rows in enumerate(messages)]
    near, far = int(needed[inside].sum()), int(needed[~inside & ~counterparts].sum())
    return Told(near, far, tuple(sizes), len(product.send_rows))


def room(case: Case, members: int) -> Room:
    """Of the fullest PE: as the PEs told, else at most."""
    mine = told(case, members)
    return _at_most(case, members, mine) if case.told is None else known(case.told, members)


def known(everyone: Sequence[Told], members: int) -> Room:
    """Of the fullest PE, as the PEs told."""
    messages = np.array([each.messages for each in everyone])
    boxes = _mailboxes(messages, members)
    near, far = max(each.near for each in everyone), max(each.far for each in everyone)
    return Room(near, far, int(messages.max()), int(messages.sum(axis=1).max()), int(boxes.max()))


def _mailboxes(messages: np.ndarray, members: int) -> np.ndarray:
    """Rows that arrive, int [G, W] by local rank and workgroup, of messages [P, W]: their senders' rank is the same."""
    return messages.reshape(-1, members, messages.shape[1]).sum(axis=0)


def _sent(messages: np.ndarray, arcs_back: np.ndarray | None) -> np.ndarray:
    """Rows that each PE sends at most, int [P], of messages [P, W]: each is for at least one arc to it."""
    sent = messages.sum(axis=1)
    return sent if arcs_back is None else np.minimum(sent, arcs_back)


def _at_most(case: Case, members: int, mine: Told) -> Room:
    """Other PEs need of this one what it sends them, and of the others all the rest of their halo, if these have it."""
    product, heights, rank, pes = case.product, case.heights, case.rank, np.arange(case.size)
    group, place = pes // members, pes % members
    sent, needed = np.diff(product.send_ptr), np.diff(product.halo_ptr)
    rest = np.array(case.counts.halo_rows) - sent
    rest[rank] = 0  # of its own halo all is known
    rests = np.bincount(group, rest).astype(np.int64)

    messages = np.minimum(heights[:, None], rests[None, :])
    ours = group[rank]
    messages[:, ours] = np.minimum(heights, rests[ours] + needed)
    messages[pes, group] = 0
    messages[rank] = 0
    # All messages of one mailbox together hold no more than its workgroup's halos.
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
        """Most that a PE needs out of so many ``rows``, this PE's ``among`` them or not."""
        found = np.where(among, sent, 0) + np.minimum(rest, rows - np.where(among, heights[rank], 0))
        found[rank] = own
        return int(found.max())

    return Room(
        halos(of_mates, ~outside, mine.near),
        halos(of_others, outside & (place != place[rank]), mine.far),
        int(messages.max()),
        int(_sent(messages, case.arcs_back).max()),
        int(boxes.max()),
    )
