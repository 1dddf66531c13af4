"""Renumbers a graph's nodes: arcs, features, labels, tasks and splits follow, and the old ids are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from mgg.graph.csr import inverse
from mgg.graph.sources import Arcs, FeatureStream, StreamedGraph
from mgg.graph.store.nodes import feature_rows


def relabeled(graph: StreamedGraph, rank: np.ndarray, scratch: Path) -> StreamedGraph:
    """Return the graph with node v renumbered to ``rank[v]``.

    Args:
        graph: a graph with a known number of nodes.
        rank: integers [nodes], a permutation.
        scratch: folder for a copy of the features, which are needed in another order than they come.
    """
    old = inverse(rank)

    def moved(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[old]

    def read() -> Iterator[Arcs]:
        for arcs in graph.arcs.read():
            yield replace(arcs, targets=rank[arcs.targets], sources=rank[arcs.sources])

    return StreamedGraph(
        arcs=replace(graph.arcs, read=read),
        features=None if graph.features is None else _gathered(graph.features, old, scratch / "features.bin"),
        labels=moved(graph.labels),
        splits=moved(graph.splits),
        classes=graph.classes,
        tasks=moved(graph.tasks),
        ids=old.astype(np.int64) if graph.ids is None else graph.ids[old],
    )


def _gathered(features: FeatureStream, old: np.ndarray, path: Path) -> FeatureStream:
    """Return the feature rows in the order ``old``, through a plain file of all rows."""
    width = features.width

    def read() -> Iterator[np.ndarray]:
        with path.open("wb") as written:
            for block in features.read():
                written.write(np.ascontiguousarray(block, np.float32).data)
        with path.open("rb", buffering=0) as file:
            for lo in range(0, len(old), feature_rows(width)):
                yield _rows_of(file.fileno(), old[lo : lo + feature_rows(width)], width)
        path.unlink()

    return FeatureStream(read, width)


def _rows_of(file: int, nodes: np.ndarray, width: int) -> np.ndarray:
    """Read rows of a plain file, float32 [nodes, width], one by one: mapped pages would count as memory."""
    block = np.empty((len(nodes), width), np.float32)
    views = block.data.cast("B")
    size = 4 * width
    for place in np.argsort(nodes, kind="stable").tolist():
        os.preadv(file, [views[place * size : (place + 1) * size]], int(nodes[place]) * size)
    return block
