"""Reorder only where it promises to pay: the test of GNNAdvisor (OSDI'21), section 5.1."""

from __future__ import annotations

import numpy as np

from mgg.graph.reorder import order, rabbit
from mgg.graph.reorder.span import averaged_edge_span, pays
from mgg.graph.store import Graph


@order("auto", rabbit.memory)
def rank(graph: Graph) -> tuple[str, np.ndarray | None]:
    """Rabbit order where the averaged edge span is long, else the natural order.

    The test looks at the graph as it is and does not compare it with what would come out.
    """
    if pays(averaged_edge_span(graph), graph.manifest.nodes):
        return rabbit.rank(graph)
    return "natural", None
