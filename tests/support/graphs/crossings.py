"""The rows that must cross between PEs in workgroups, derived from the arcs of a graph."""

from __future__ import annotations

import numpy as np

from mgg.graph.csr import Csr


def crossings(csr: Csr, pes: int, members: int, direction: str, *, fused: bool = True) -> tuple[int, int]:
    """Rows that cross between and within workgroups, for equal ranges of nodes.

    Between workgroups, a row counts once for each other workgroup that needs it. Within, a row counts for each PE that
    needs it if its owner, in any workgroup, has another local rank: the PE of its own workgroup with that rank holds
    it. Not ``fused``: once for each PE that needs a row, from its owner.
    """
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    columns = csr.indices.astype(np.int64)
    if direction == "transpose":
        rows, columns = columns, rows
    owner = np.searchsorted(np.arange(pes + 1) * csr.rows // pes, np.arange(csr.rows), side="right") - 1
    pairs = {(int(pe), int(column)) for pe, column in zip(owner[rows], columns, strict=True)}
    if not fused:
        crossing = sum(pe // members != owner[column] // members for pe, column in pairs)
        return crossing, sum(pe != owner[column] for pe, column in pairs) - crossing
    between = {(pe // members, column) for pe, column in pairs if pe // members != owner[column] // members}
    within = {(pe, column) for pe, column in pairs if pe % members != owner[column] % members}
    return len(between), len(within)
