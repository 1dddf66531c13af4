"""How many threads the dense products of one PE may use."""

import os


def threads_per_pe(pes: int) -> int:
    """Cores of this process shared among ``pes`` PEs of this host, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // pes)
