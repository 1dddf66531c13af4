"""Stage partition: which PE owns which rows, and how good that choice is."""

from mgg.partition.build import SCHEMES, Partition, build, load

__all__ = ["SCHEMES", "Partition", "build", "load"]
