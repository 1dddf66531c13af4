"""Where the rows of other workgroups arrive, all of them side by side."""

from __future__ import annotations

from mgg.aggregate.workgroups import Workgroups
from mgg.backend import World


class Mailbox:
    """The order of one PE's mailbox, which holds what its counterparts send, and what it has to know of others'
    (collective).

    Args:
        world: the PEs.
        groups: who needs what.

    Attributes:
        rows: of the fullest mailbox: symmetric memory has one size.
        filled: of this one.
        firsts: PE of another workgroup -> where its rows begin in the mailbox of the mate with its local rank.
        slots: PE that gets rows from this one -> where they begin in its mailbox.
    """

    def __init__(self, world: World, groups: Workgroups) -> None:
        begins, held = {}, 0
        for owner, rows in groups.wanted.items():
            begins[owner], held = held, held + len(rows)
        self.filled, self.rows = held, max(world.gather(held))
        told = world.exchange([begins if pe in groups.mates else begins.get(pe) for pe in range(world.size)])
        self.slots = {pe: told[pe] for pe in groups.asked}
        self.firsts = {owner: first for mate in groups.mates for owner, first in told[mate].items()}
