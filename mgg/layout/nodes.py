"""The data of each PE's nodes: features, labels, tasks, splits and where each node comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mgg.graph.store import Graph
from mgg.layout import store

#: Bytes of features that are read at a time.
FEATURE_BYTES = 2**26


def save(folder: Path, graph: Graph, parts: Sequence[np.ndarray], *, permuted: bool) -> None:
    """Write the node data of every PE into the folders of a layout that is being made.

    Args:
        folder: the layout; the PEs' folders exist.
        graph: where the data come from.
        parts: for each PE the graph's nodes that it owns, ascending integers.
        permuted: whether positions differ from nodes, so that the nodes themselves are stored.
    """
    nodes = graph.manifest.nodes
    labels, splits, ids = graph.labels(0, nodes), graph.splits(0, nodes), graph.ids(0, nodes)
    tasks = graph.tasks(0, nodes)
    for pe, mine in enumerate(parts):
        store.save_node_data(
            folder / store.pe_folder(pe),
            labels=None if labels is None else labels[mine],
            tasks=None if tasks is None else tasks[mine],
            splits=None if splits is None else splits[mine],
            nodes=mine.astype(graph.manifest.index_dtype) if permuted else None,
            ids=None if ids is None else ids[mine],
        )
    if graph.manifest.features:
        _save_features(folder, graph, parts)


def _save_features(folder: Path, graph: Graph, parts: Sequence[np.ndarray]) -> None:
    """Read the features once, a block of nodes at a time, and add to each PE's array what is the PE's."""
    files = [folder / store.pe_folder(pe) / "features.npy" for pe in range(len(parts))]
    for file, mine in zip(files, parts, strict=True):
        store.begin_rows(file, "<f4", (len(mine), graph.manifest.features))
    for lo, block in _feature_blocks(graph):
        for file, mine in zip(files, parts, strict=True):
            here = mine[np.searchsorted(mine, lo) : np.searchsorted(mine, lo + len(block))]
            if len(here):
                store.add_rows(file, block[here - lo])


def _feature_blocks(graph: Graph) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, FEATURE_BYTES // (4 * graph.manifest.features))
    for lo in range(0, graph.manifest.nodes, step):
        block = graph.features(lo, min(lo + step, graph.manifest.nodes))
        assert block is not None
        yield lo, block
