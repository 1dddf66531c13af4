"""Technique ``direct``: plain one-sided gets, one row at a time, without workload management (MGG on arXiv, 2.3).

This is the paper's "Direct NVSHMEM": a warp sums a whole row of the local CSR, then a whole row of the remote CSR, and
waits for each remote row before it requests the next. It is MGG's kernel with all of its optimizations off.
"""

from __future__ import annotations

from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.aggregate.neighbor_partitions.schedule import KernelSchedule
from mgg.config import Assigned


class Direct(Partitioned):
    """One warp per row, one blocking get per arc."""

    name = "direct"
    rough = True  # a long row keeps one warp busy after all others are done

    @classmethod
    def schedule(cls, options: Assigned, shmem: bool) -> KernelSchedule:
        """Return whole rows with one remote row in flight; without NVSHMEM, warps load from the peer's memory."""
        primitive = "warp" if shmem else "direct"
        return KernelSchedule(None, 1, 4, asynchronous=False, primitive=primitive, batch=1)
