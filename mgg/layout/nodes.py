"""Write the data of each PE's nodes: features, labels, tasks, splits and original ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mgg.graph.store import Graph
from mgg.graph.store.shards import VERTICES_PER_PART
from mgg.layout import store

#: Bytes of node data read at a time.
BLOCK_BYTES = 2**26


def save(folder: Path, graph: Graph, parts: Sequence[np.ndarray | range], *, permuted: bool) -> None:
    """Write the node data of every PE into the folders of a new layout, block by block.

    Args:
        folder: the layout; the PEs' folders exist.
        graph: source of the data.
        parts: the graph's nodes that each PE owns, ascending.
        permuted: whether positions differ from node numbers, so that node numbers are stored, too.
    """
    facts = graph.manifest
    for name, read, dtype, row in (
        ("features", graph.features, "<f4", (facts.features,)),
        ("labels", graph.labels, "<i4", ()),
        ("tasks", graph.tasks, "|u1", (facts.tasks,)),
        ("splits", graph.splits, "|u1", ()),
        ("ids", graph.ids, "<i8", ()),
    ):
        if facts.parts(name):
            made = [store.Growing(folder / store.pe_folder(pe) / f"{name}.npy", dtype, row) for pe in range(len(parts))]
            _deal(read, facts.nodes, parts, made, max(1, BLOCK_BYTES // (np.dtype(dtype).itemsize * max(1, *row, 1))))
    if permuted:
        for pe, mine in enumerate(parts):
            store.save(folder / store.pe_folder(pe) / "nodes.npy", np.asarray(mine, facts.index_dtype))


def _deal(
    read: Callable[[int, int], np.ndarray | None], nodes: int, parts: Sequence[np.ndarray | range],
    made: Sequence[store.Growing], step: int,
) -> None:  # fmt: skip
    """Read each row once, and append it to its PE's array."""
    step = min(step, VERTICES_PER_PART)
    for lo in range(0, nodes, step):
        block = read(lo, min(lo + step, nodes))
        assert block is not None
        for array, mine in zip(made, parts, strict=True):
            here = mine[bisect_left(mine, lo) : bisect_left(mine, lo + len(block))]
            if len(here):
                array.add(block[here.start - lo : here.stop - lo] if isinstance(here, range) else block[here - lo])
    for array in made:
        array.end()
