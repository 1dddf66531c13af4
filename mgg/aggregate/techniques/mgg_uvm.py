"""Technique ``mgg_uvm``: MGG's kernel over unified memory, the baseline of its paper (MGG 7, "MGG-UVM").

The embeddings of all PEs are one managed allocation without any advice: a row that another GPU has is a page fault, and
its page moves. One process holds it, so on several GPUs the PEs are threads. On CPU ranks there is one kind of memory
and nothing to tell the technique from ``mgg``.
"""

from __future__ import annotations

from dataclasses import replace

from mgg.aggregate.memory_model import Case, Need
from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.aggregate.neighbor_partitions.schedule import Schedule
from mgg.aggregate.techniques.mgg import PipelineOptions
from mgg.backend.api import SymmetricArray
from mgg.config import Assigned
from mgg.cost.product import Cost, Machine, Workload

#: Copies of PEs begin at multiples of 256 bytes, as the kernel's 16-byte loads need.
_ALIGN = 64


class MggUvm(Partitioned):
    """The kernel reads rows of other PEs through the addresses of the one allocation."""

    name = "mgg_uvm"
    one_process = True
    unified = True
    Options = PipelineOptions

    @classmethod
    def schedule(cls, options: Assigned, shmem: bool) -> Schedule:
        """The options' schedule."""
        assert isinstance(options, PipelineOptions)
        return options.schedule()

    @classmethod
    def need(cls, case: Case) -> Need:
        """And the rows of the other PEs, whose pages may all move to this one's GPU."""
        return replace(super().need(case), guests=(case.size - 1) * case.embeddings(case.heights.max()))

    @classmethod
    def cost(cls, work: Workload, machine: Machine) -> Cost | None:
        """None on GPUs: where pages settle is the driver's to decide (docs/results/gpu.md)."""
        return None if machine.gpu else super().cost(work, machine)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        return self.world.managed(-(-elements // _ALIGN) * _ALIGN)
