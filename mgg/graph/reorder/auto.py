"""Reorder only where it promises to pay: the test of GNNAdvisor (OSDI'21), section 5.1."""

from __future__ import annotations

import numpy as np

from mgg.graph.reorder import find_order, order, rabbit
from mgg.graph.reorder.span import averaged_edge_span, pays
from mgg.graph.store import Graph


def choose(graph: Graph) -> str:
    """Rabbit order where the averaged edge span is long, else the natural order.

    The test looks at the graph as it is and does not compare it with what would come out.
    """
    return "rabbit" if pays(averaged_edge_span(graph), graph.manifest.nodes) else "natural"


@order("auto", rabbit.memory, choose)
def rank(graph: Graph) -> tuple[str, np.ndarray | None]:
    """Number by the order that :func:`choose` gives."""
    return find_order(choose(graph)).rank(graph)
