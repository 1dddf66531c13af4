"""Sorts edge lists larger than memory into shards, in three steps that a cluster can share.

``scatter`` reads the arcs once and spools them by row range. ``shard`` sorts one of any number of row ranges and writes
its parts. ``gather`` joins the ranges' parts. The parts do not depend on the number of ranges, the threads or the
memory: the rows alone decide where they are cut (docs/reference/format.md).
"""

from mgg.graph.external.gathering import gather
from mgg.graph.external.memory import Memory
from mgg.graph.external.scattering import scatter
from mgg.graph.external.sharding import shard

__all__ = ["Memory", "gather", "scatter", "shard"]
