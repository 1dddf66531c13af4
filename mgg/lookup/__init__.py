"""Embedding lookup of recommendation models (DLRM): rows of large tables, on several PEs, summed by bags (MGG table 4).

A sample has one row of each table; its bag is all of them, and what a lookup makes of it is their elementwise sum:
a product with a rectangular matrix that is new in every batch. Page: docs/lookup.md.
"""

from mgg.lookup.exchanged import AllToAll, AllToAllTables
from mgg.lookup.one_sided import Direct, Halo, Mgg
from mgg.lookup.sides import Side

#: By name, in the order in which they are measured.
SIDES: dict[str, type[Side]] = {side.name: side for side in (Mgg, Direct, AllToAll, AllToAllTables, Halo)}
