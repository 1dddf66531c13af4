"""Equal numbers of rows for every PE, as in the MGG artifact and CoLa (2.2)."""

from __future__ import annotations

import numpy as np

from mgg.graph.store import Graph
from mgg.partition.schemes import Split


def split(graph: Graph, pes: int) -> Split:
    """Split into consecutive rows; the PEs' numbers of rows differ by at most one."""
    return Split(bounds(graph.manifest.nodes, pes))


def bounds(nodes: int, pes: int) -> np.ndarray:
    """Return int64 [pes + 1]: PE p owns rows ``bounds[p] .. bounds[p + 1]``; if pes > nodes, some PEs are empty."""
    return np.arange(pes + 1, dtype=np.int64) * nodes // pes
