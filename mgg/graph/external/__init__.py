"""Edge lists larger than memory -> sorted shards, in three steps that a cluster can share.

``scatter`` reads the arcs once and spools them by row range; ``shard`` sorts one of any number of row ranges and writes
its parts; ``gather`` puts the ranges' parts together. The parts do not depend on the number of ranges, threads or the
memory: where they are cut follows from the rows alone (docs/format.md).
"""

from mgg.graph.external.gathering import gather
from mgg.graph.external.memory import Memory
from mgg.graph.external.scattering import scatter
from mgg.graph.external.sharding import shard

__all__ = ["Memory", "gather", "scatter", "shard"]
