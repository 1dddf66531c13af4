"""A small graph for vertex programs with all edge cases, and arrays for their inputs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mgg.vertex.interpret import ArcGraph
from mgg.vertex.ir import P, Value, walk

VERTICES, TYPES = 6, 4
IDS = (40, 7, 23, 5, 61, 12)
#: (target, source, type). Vertex 0 has in-arcs only, 4 out-arcs only, 5 none; 1 joins itself; three arcs lead from 2 to
#: 0, two of them of one type; no arc has type 3. Sources in the order of their ids: 3, 1, 2, 4.
ARCS = (
    (2, 4, 0), (0, 2, 1), (1, 1, 0), (0, 2, 2), (3, 4, 1), (0, 1, 0),
    (0, 2, 1), (2, 3, 2), (1, 4, 2), (0, 3, 1), (3, 2, 1),
)  # fmt: skip


def awkward() -> ArcGraph:
    """The graph of ``ARCS``."""
    targets, sources, types = np.array(ARCS).T
    return ArcGraph.of(VERTICES, targets, sources, types, TYPES, np.array(IDS))


def drawn(values: Iterable[Value], graph: ArcGraph, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal numbers for every input of ``values``, by its name."""
    rng = np.random.default_rng(seed)
    return {
        value["name"]: rng.standard_normal((*(() if value.space is P else (graph.rows(value.space),)), *value.shape))
        for value in walk(values)
        if value.op == "input"
    }
