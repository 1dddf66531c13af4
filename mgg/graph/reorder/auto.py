"""Reorders only if that is likely to pay off: the test of GNNAdvisor (OSDI'21), section 5.1."""

from __future__ import annotations

import numpy as np

from mgg.graph.reorder import find_order, order, rabbit
from mgg.graph.reorder.span import averaged_edge_span, pays
from mgg.graph.store import Graph


def choose(graph: Graph) -> str:
    """Choose rabbit order if the averaged edge span is long, else the natural order.

    The test examines the current numbering and does not compare it with the result.
    """
    return "rabbit" if pays(averaged_edge_span(graph), graph.manifest.nodes) else "natural"


@order("auto", rabbit.memory, choose)
def rank(graph: Graph) -> tuple[str, np.ndarray | None]:
    """Number by the order that :func:`choose` returns."""
    return find_order(choose(graph)).rank(graph)
