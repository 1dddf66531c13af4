"""The memory in which all rows of other workgroups arrive, side by side."""

from __future__ import annotations

from mgg.aggregate.workgroups import Workgroups
from mgg.backend import World


class Mailbox:
    """The order of rows in one PE's mailbox, filled by its counterparts, and the offsets in other mailboxes
    (collective).

    Attributes:
        rows: rows of the largest mailbox, because symmetric memory has the same size on every PE.
        filled: rows of this PE's mailbox.
        firsts: PE of another workgroup -> where its rows begin in the mailbox of the mate with its local rank.
        slots: PE that receives rows from this one -> where they begin in its mailbox.
    """

    def __init__(self, world: World, groups: Workgroups) -> None:
        begins, held = {}, 0
        for owner, rows in groups.wanted.items():
            begins[owner], held = held, held + len(rows)
        self.filled, self.rows = held, max(world.gather(held))
        slots_by_pe = world.exchange([begins if pe in groups.mates else begins.get(pe) for pe in range(world.size)])
        self.slots = {pe: slots_by_pe[pe] for pe in groups.asked}
        self.firsts = {owner: first for mate in groups.mates for owner, first in slots_by_pe[mate].items()}
