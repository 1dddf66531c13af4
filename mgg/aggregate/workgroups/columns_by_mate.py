"""Columns of a PE's remote arcs by the mate that has their rows, one phase at a time (CoLa 4.2, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.aggregate.workgroups import Workgroups
from mgg.layout import Product


@dataclass(frozen=True)
class ColumnsOfMate:
    """The columns whose rows are in one mate's memory.

    Attributes:
        mate: that PE.
        first, last: positions in the halo.
        rows: integers [last - first], row of the mate's matrix for each column.
        operation: name under which counters record the fetches.
    """

    mate: int
    first: int
    last: int
    rows: np.ndarray
    operation: str


def columns_by_mate(product: Product, groups: Workgroups, phase: int, joined: range) -> list[ColumnsOfMate]:
    """Return the columns that each mate has of the workgroup whose rows are used in ``phase``.

    Without fusion, some mates are not among ``joined``; fetches from them count as transfers between workgroups.

    The list starts with the PE's right neighbor, so that no PE is everyone's first source, and excludes this PE.
    """
    found = []
    for owner in groups.members_in(phase):
        first, last = (int(position) for position in product.halo_ptr[owner : owner + 2])
        # Within this workgroup, the owner itself is the mate.
        rows = groups.places[owner] if phase else product.halo_of(owner)
        mate = groups.mate_of(owner)
        found.append(ColumnsOfMate(mate, first, last, rows, "get" if mate in joined else "get_between"))
    me = groups.mates.index(groups.rank)
    return found[me + 1 :] + found[:me]
