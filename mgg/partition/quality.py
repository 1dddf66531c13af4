"""How good a partition is: balance, cut, halos and the communication volumes of the CoLa paper (3.1)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mgg.graph.csr import Csr

FLOAT_BYTES = 4


class Quality(BaseModel):
    """Figures of one partition; volumes are bytes of one forward product of ``dim`` fp32 columns, all PEs together."""

    model_config = ConfigDict(extra="forbid")

    dim: int = Field(description="embedding columns D that the volumes are for")
    nodes_per_pe: list[int] = Field(description="rows that each PE owns")
    arcs_per_pe: list[int] = Field(description="arcs of the rows that each PE owns")
    imbalance: float = Field(description="arcs of the fullest PE over the mean (1 = perfect)")
    edge_cut: int = Field(description="arcs whose column another PE owns (E_R)")
    halo_rows_per_pe: list[int] = Field(description="unique remote columns of each PE (their sum is N_R)")
    v_cg: int = Field(description="eq. 5, 4 n D (P - 1): every PE broadcasts all of its rows")
    v_fr: int = Field(description="eq. 6, 4 E_R D: one remote row an arc")
    v_fc: int = Field(description="eq. 7, 4 N_R D: each needed remote row once a PE")


def volumes(nodes: int, pes: int, remote_arcs: int, halo_rows: int, dim: int) -> tuple[int, int, int]:
    """V_CG, V_FR and V_FC in bytes (CoLa eq. 5 to 7)."""
    row = FLOAT_BYTES * dim
    return row * nodes * (pes - 1), row * remote_arcs, row * halo_rows


def measure(rows: Callable[[int, int], Csr], bounds: np.ndarray, dim: int) -> Quality:
    """Walk the graph once, one PE's rows at a time.

    Args:
        rows: gives the adjacency of rows lo..hi with global columns.
        bounds: int64 [P + 1], the row ranges of the PEs.
        dim: embedding columns of the stated volumes.
    """
    arcs, cut, halos = [], [], []
    for lo, hi in pairwise(bounds):
        indices = rows(int(lo), int(hi)).indices
        remote = indices[(indices < lo) | (indices >= hi)]
        arcs.append(int(indices.size))
        cut.append(int(remote.size))
        halos.append(int(np.unique(remote).size))
    pes, nodes = len(arcs), int(bounds[-1])
    v_cg, v_fr, v_fc = volumes(nodes, pes, sum(cut), sum(halos), dim)
    return Quality(
        dim=dim,
        nodes_per_pe=np.diff(bounds).tolist(),
        arcs_per_pe=arcs,
        imbalance=max(arcs) * pes / sum(arcs) if sum(arcs) else 1.0,
        edge_cut=sum(cut),
        halo_rows_per_pe=halos,
        v_cg=v_cg,
        v_fr=v_fr,
        v_fc=v_fc,
    )
