"""Equal numbers of rows for every PE, as in the MGG artifact and CoLa (2.2)."""

from __future__ import annotations

import numpy as np


def split(offsets: np.ndarray, pes: int) -> np.ndarray:
    """Choose consecutive row ranges whose lengths differ by at most one.

    Args:
        offsets: int64 [n + 1], arcs before each row (only its length counts).
        pes: number of PEs; may exceed n, then some PEs are empty.

    Returns:
        int64 [pes + 1]: PE p owns rows ``bounds[p] .. bounds[p + 1]``.
    """
    nodes = len(offsets) - 1
    return np.arange(pes + 1, dtype=np.int64) * nodes // pes
