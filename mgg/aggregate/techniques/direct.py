"""Technique ``direct``: plain one-sided gets, one row after the other, no workload management (MGG on arXiv, 2.3).

The paper's "Direct NVSHMEM": a warp sums a whole row of the local CSR, then one of the remote CSR, and waits for every
remote row before it asks for the next. It is MGG's kernel with each of its ideas switched off.
"""

from __future__ import annotations

from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.aggregate.neighbor_partitions.schedule import Schedule
from mgg.config import Assigned


class Direct(Partitioned):
    """A warp a row, one blocking get an arc."""

    name = "direct"
    rough = True  # a long row keeps one warp at work when all others are done

    @classmethod
    def schedule(cls, options: Assigned, shmem: bool) -> Schedule:
        """Whole rows, one remote row on its way; without NVSHMEM, loads of the peer's memory."""
        primitive = "warp" if shmem else "direct"
        return Schedule(None, 1, 4, asynchronous=False, primitive=primitive, batch=1)
