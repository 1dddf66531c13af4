"""Which columns of a PE's remote arcs have their rows with a mate, a phase at a time (CoLa 4.2, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.aggregate.workgroups import Workgroups
from mgg.layout import Product


@dataclass(frozen=True)
class Held:
    """The columns whose rows one mate holds.

    Attributes:
        mate: that PE.
        first, last: positions in the halo.
        rows: integers [last - first], row of the mate's matrix of each.
        operation: what fetching them counts as.
    """

    mate: int
    first: int
    last: int
    rows: np.ndarray
    operation: str


def held_by_mates(product: Product, groups: Workgroups, phase: int, joined: range) -> list[Held]:
    """What the mates hold of the workgroup whose rows are used in ``phase``.

    Of mates that are not among ``joined`` rows are fetched across workgroups: there are some without fusion.

    Each PE starts with its right neighbour, so that no PE is everyone's first source. What this PE holds itself is not
    among it.
    """
    found = []
    for owner in groups.members_in(phase):
        first, last = (int(position) for position in product.halo_ptr[owner : owner + 2])
        # Of its own workgroup the mate is the owner.
        rows = groups.places[owner] if phase else product.halo_of(owner)
        mate = groups.mate_of(owner)
        found.append(Held(mate, first, last, rows, "get" if mate in joined else "get_between"))
    me = groups.mates.index(groups.rank)
    return found[me + 1 :] + found[:me]
