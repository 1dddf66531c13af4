"""The graph as models see it: products with the bare A and its transpose, degrees, node ids, and sums over all PEs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg import aggregate
from mgg.aggregate import Plan
from mgg.backend.api import World
from mgg.layout import PeLayout


@dataclass
class Neighborhood:
    """One PE's part of the graph.

    Attributes:
        nodes: number of nodes of all PEs.
        node_ids: int64 [rows], what the source calls this PE's nodes: the same for any order and partition.
        degrees: float64 [rows], row sums of A: weighted in-degrees, without self-loops added.
        plan: aggregation with A (collective).
        transposed: aggregation with the transpose of A (collective).
        total: sum of an array over the PEs in rank order, on every PE (collective).
    """

    nodes: int
    node_ids: np.ndarray
    degrees: np.ndarray
    plan: Plan
    transposed: Plan
    total: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def prepare(
        cls, world: World, layout: PeLayout, technique: str, options: dict[str, Any], width: int
    ) -> Neighborhood:
        """Prepare both directions of ``technique`` for up to ``width`` columns (collective)."""
        parts = (layout.forward.local, layout.forward.remote)
        degrees = sum(np.asarray(part.to_scipy(np.float64).sum(axis=1)).ravel() for part in parts)
        return cls(
            nodes=layout.manifest.nodes,
            node_ids=layout.source_ids,
            degrees=np.asarray(degrees),
            plan=aggregate.prepare(technique, world, layout, "forward", width, options),
            transposed=aggregate.prepare(technique, world, layout, "transpose", width, options),
            total=world.all_reduce,
        )

    def close(self) -> None:
        """Free the plans' symmetric arrays (collective)."""
        self.plan.close()
        self.transposed.close()
