"""The source's own order."""

from __future__ import annotations

from mgg.graph.reorder import order
from mgg.graph.store import Graph


@order("natural", lambda nodes, arcs, symmetric: 0)
def rank(graph: Graph) -> tuple[str, None]:
    """Move nothing."""
    return "natural", None
