"""Stage partition: which PE owns which rows, and how good that choice is."""

from mgg.partition.build import build, load, load_order
from mgg.partition.schemes import schemes

__all__ = ["build", "load", "load_order", "schemes"]
