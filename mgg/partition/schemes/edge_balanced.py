"""Equal arcs for every PE: the range-constrained binary search of MGG (OSDI'23), algorithm 1."""

from __future__ import annotations

import numpy as np

from mgg.graph.store import Graph
from mgg.partition.schemes import Split


def split(graph: Graph, pes: int) -> Split:
    """Split into consecutive rows with about equally many arcs per PE."""
    return Split(bounds(graph.offsets(), pes))


def bounds(offsets: np.ndarray, pes: int) -> np.ndarray:
    """Choose consecutive row ranges with about ``arcs / pes`` arcs each.

    The paper searches for each split ``arcs / pes`` arcs after the last one. With that greedy target, the rounding of
    all splits accumulates on the last PE, and its bisection can get stuck. Here the target of split p is the exact
    ``p * arcs / pes``, and the nearest row is taken. So each split is off by at most half of the largest row, and each
    PE by at most the largest row. Of equally near rows, which differ only by rows without arcs, the one nearest to
    ``p * n / pes`` is taken, which distributes such rows, too.

    Args:
        offsets: int64 [n + 1], arcs before each row.
        pes: number of PEs; if it exceeds n, some PEs are empty.

    Returns:
        int64 [pes + 1]: PE p owns rows ``bounds[p] .. bounds[p + 1]``.
    """
    nodes, arcs = len(offsets) - 1, int(offsets[-1])
    split = np.arange(pes + 1, dtype=np.int64)
    # Multiply targets by pes, so that they are integers.
    after = np.searchsorted(offsets, -(-split * arcs // pes))
    before = np.maximum(after - 1, 0)
    nearer = split * arcs - pes * offsets[before] < pes * offsets[after] - split * arcs
    chosen = offsets[np.where(nearer, before, after)]
    first, last = np.searchsorted(offsets, chosen), np.searchsorted(offsets, chosen, side="right") - 1
    found = np.clip(split * nodes // pes, first, last)
    found[0], found[pes] = 0, nodes
    return found
