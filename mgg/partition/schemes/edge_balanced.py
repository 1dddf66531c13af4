"""Equal arcs for every PE: the range-constrained binary search of MGG (OSDI'23), algorithm 1."""

from __future__ import annotations

import numpy as np

from mgg.graph.store import Graph
from mgg.partition.schemes import Split


def split(graph: Graph, pes: int) -> Split:
    """Consecutive rows that hold about equally many arcs."""
    return Split(bounds(graph.offsets(), pes))


def bounds(offsets: np.ndarray, pes: int) -> np.ndarray:
    """Choose consecutive row ranges that hold about ``arcs / pes`` arcs each.

    The paper searches for the next split from the last one on, ``arcs / pes`` arcs further. That greedy target lets the
    rounding of every split pile up on the last PE, and its halving of the range can stop moving. Here the target of
    split p is the absolute ``p * arcs / pes``, not rounded, and the row nearest to it is taken, so each split is off by
    at most half of the largest row, and each PE by at most the largest row. Of rows equally near, which only rows
    without arcs tell apart, the one nearest to ``p * n / pes`` is taken: such rows are shared out, too.

    Args:
        offsets: int64 [n + 1], arcs before each row.
        pes: number of PEs; may exceed n, then some PEs are empty.

    Returns:
        int64 [pes + 1]: PE p owns rows ``bounds[p] .. bounds[p + 1]``.
    """
    nodes, arcs = len(offsets) - 1, int(offsets[-1])
    split = np.arange(pes + 1, dtype=np.int64)
    # Targets times pes, so that they are whole numbers.
    after = np.searchsorted(offsets, -(-split * arcs // pes))
    before = np.maximum(after - 1, 0)
    nearer = split * arcs - pes * offsets[before] < pes * offsets[after] - split * arcs
    chosen = offsets[np.where(nearer, before, after)]
    first, last = np.searchsorted(offsets, chosen), np.searchsorted(offsets, chosen, side="right") - 1
    found = np.clip(split * nodes // pes, first, last)
    found[0], found[pes] = 0, nodes
    return found
