"""Stage partition: assign rows to PEs, and measure the quality of the assignment."""

from mgg.partition.build import build, load, load_order
from mgg.partition.schemes import schemes

__all__ = ["build", "load", "load_order", "schemes"]
