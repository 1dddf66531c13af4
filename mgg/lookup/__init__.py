"""Embedding lookup of recommendation models (DLRM): bags sum rows of large tables on several PEs (MGG table 4).

A sample names one row of each table. These rows are its bag, and a lookup returns their elementwise sum: a product
with a rectangular matrix that is new in every batch. See docs/concepts/lookup.md.
"""

from mgg.lookup.exchanged import AllToAllSide, AllToAllTablesSide
from mgg.lookup.one_sided import DirectSide, HaloSide, MggSide
from mgg.lookup.sides import Side

#: Sides by name, in the order of measurement.
SIDES: dict[str, type[Side]] = {
    side.name: side for side in (MggSide, DirectSide, AllToAllSide, AllToAllTablesSide, HaloSide)
}
