"""Technique ``mgg_uvm``: MGG's kernel on unified memory, the baseline of its paper (MGG 7, "MGG-UVM").

The embeddings of all PEs are one managed allocation without memory advice: reading another GPU's row causes a page
fault, and the page migrates. A single process owns the allocation, so on several GPUs the PEs are threads. CPU ranks
have only one kind of memory, so there the technique is the same as ``mgg``.
"""

from __future__ import annotations

from dataclasses import replace

from mgg.aggregate.memory_model import MemoryCase, PlanMemory
from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.aggregate.neighbor_partitions.schedule import KernelSchedule
from mgg.aggregate.techniques.mgg import PipelineOptions
from mgg.backend.api import SymmetricArray
from mgg.config import Assigned
from mgg.cost.product import Cost, MachineModel, Workload

#: Each PE's rows begin at a multiple of 256 bytes, as the kernel's 16-byte loads need; in floats.
_ALIGN = 64


class MggUvm(Partitioned):
    """The kernel reads other PEs' rows through addresses of the one allocation."""

    name = "mgg_uvm"
    one_process = True
    unified = True
    Options = PipelineOptions

    @classmethod
    def schedule(cls, options: Assigned, shmem: bool) -> KernelSchedule:
        """Return the schedule for these options."""
        assert isinstance(options, PipelineOptions)
        return options.schedule()

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory, including the other PEs' rows, because all their pages may migrate to this GPU."""
        return replace(super().need(case), guests=(case.size - 1) * case.embeddings(case.heights.max()))

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return None on GPUs, where the driver decides where pages settle (docs/results/mgg.md)."""
        return None if machine.gpu else super().cost(work, machine)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        return self.world.managed(-(-elements // _ALIGN) * _ALIGN)
