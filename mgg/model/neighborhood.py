"""The graph as models see it: products with the bare A and its transpose, degrees, node ids, and sums over all PEs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgg import aggregate
from mgg.aggregate import Plan
from mgg.backend.api import Array, World
from mgg.graph.csr import Csr
from mgg.layout import PeLayout
from mgg.model.arrays import Arrays, HostArrays, arrays_of


@dataclass
class Neighborhood:
    """One PE's part of the graph.

    Attributes:
        nodes: number of nodes of all PEs.
        node_ids: int64 [rows] on the device, what the source calls this PE's nodes: the same for any order and
            partition.
        degrees: float64 [rows] on the host, row sums of A: weighted in-degrees, without self-loops added.
        plan: aggregation with A (collective).
        transposed: aggregation with the transpose of A (collective).
        total: sum of an array over the PEs in rank order, on every PE (collective).
        arrays: what the PE's device computes row by row.
        dtype: type of the embeddings that the plans take: ``fp32``, or ``bf16``, to which ``plan.write`` rounds.
    """

    nodes: int
    node_ids: Array
    degrees: np.ndarray
    plan: Plan
    transposed: Plan
    total: Callable[[Array], Array]
    arrays: Arrays = field(default_factory=HostArrays)
    dtype: str = "fp32"

    @classmethod
    def prepare(
        cls, world: World, layout: PeLayout, technique: str, options: dict[str, Any], width: int, dtype: str = "fp32"
    ) -> Neighborhood:
        """Prepare both directions of ``technique`` for up to ``width`` columns of type ``dtype`` (collective)."""
        return cls(
            nodes=layout.manifest.nodes,
            node_ids=world.upload(layout.source_ids),
            degrees=_row_sums(layout.forward.local) + _row_sums(layout.forward.remote),
            plan=aggregate.prepare(technique, world, layout, "forward", width, options, dtype),
            transposed=aggregate.prepare(technique, world, layout, "transpose", width, options, dtype),
            # One PE's sum is the total: on a GPU the all-reduce would wait for it.
            total=world.all_reduce if world.size > 1 else lambda values: values,
            arrays=arrays_of(world),
            dtype=dtype,
        )

    def close(self) -> None:
        """Free the plans' symmetric arrays (collective)."""
        self.plan.close()
        self.transposed.close()


def _row_sums(csr: Csr) -> np.ndarray:
    """float64 [rows]."""
    if csr.weights is None:
        return np.diff(csr.indptr).astype(np.float64)
    return np.asarray(csr.to_scipy(np.float64).sum(axis=1)).ravel()
