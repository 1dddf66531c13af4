"""Equal arcs for every PE: the range-constrained binary search of MGG (OSDI'23), algorithm 1."""

from __future__ import annotations

import numpy as np

from mgg.partition import equal_nodes


def split(offsets: np.ndarray, pes: int) -> np.ndarray:
    """Choose consecutive row ranges that hold about ``arcs / pes`` arcs each.

    The paper searches for the next split from the last one on, ``arcs / pes`` arcs further. That greedy target lets the
    rounding of every split pile up on the last PE, and its halving of the range can stop moving. Here the target of
    split p is the absolute ``p * arcs / pes`` and the row nearest to it is taken, so each PE is within the largest row
    of the ideal share.

    Args:
        offsets: int64 [n + 1], arcs before each row.
        pes: number of PEs; may exceed n, then some PEs are empty.

    Returns:
        int64 [pes + 1]: PE p owns rows ``bounds[p] .. bounds[p + 1]``.
    """
    arcs = int(offsets[-1])
    if arcs == 0:
        return equal_nodes.split(offsets, pes)
    bounds = np.zeros(pes + 1, np.int64)
    bounds[pes] = len(offsets) - 1
    for p in range(1, pes):
        target = p * arcs // pes
        last = bounds[p - 1]
        after = last + int(np.searchsorted(offsets[last:], target))
        before = max(after - 1, last)
        bounds[p] = before if target - offsets[before] < offsets[after] - target else after
    return bounds
