"""Degree order: nodes with many arcs come first, so that the rows read most often are close together."""

from __future__ import annotations

import numpy as np

from mgg.graph.csr import index_dtype, inverse
from mgg.graph.reorder import order
from mgg.graph.store import Graph


def _memory(nodes: int, arcs: int, symmetric: bool) -> int:
    # Offsets, degrees, the sort's keys, sequence and scratch, then the sequence and rank as ids.
    return nodes * (5 * 8 + 2 * index_dtype(nodes).itemsize)


@order("degree", _memory)
def rank(graph: Graph) -> tuple[str, np.ndarray]:
    """Number by descending number of arcs, in and out (counted once in a symmetric graph), then by id."""
    degree = np.diff(graph.offsets())
    if not graph.manifest.symmetric:
        for _, csr in graph.blocks():
            np.add.at(degree, csr.indices, 1)
    sequence = np.argsort(-degree, kind="stable").astype(graph.manifest.index_dtype, copy=False)
    return "degree", inverse(sequence)
