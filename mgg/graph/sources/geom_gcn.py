"""The files of Geom-GCN: H. Pei et al., "Geom-GCN: Geometric Graph Convolutional Networks", ICLR 2020."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import SPLITS
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.npz import Npz
from mgg.graph.io.text import LineFormat, TextColumn, lines, read_rows
from mgg.graph.source_description import SOURCE_FILE
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader

EDGES, NODES = "out1_graph_edges.txt", "out1_node_feature_label.txt"
_PAIRS = LineFormat((TextColumn("source"), TextColumn("target")))
_MASKS = {"train_mask": "train", "val_mask": "validation", "test_mask": "test"}
_log = logging.getLogger(__name__)


@loader("geom_gcn")
def load(path: Path) -> StreamedGraph:
    """Read a folder with ``out1_graph_edges.txt``, ``out1_node_feature_label.txt`` and, optionally, a split.

    A line of edges has source and target. A node's features are its row of numbers; if rows differ in length (film),
    they are the numbers of the columns that are 1. Of several files ``*_split_*.npz`` the first by name is read; the
    others are listed as ignored.

    Raises:
        InputError: names the file and the line that is malformed, repeats a node or names one that does not exist.
    """
    edges = path / EDGES
    features, labels = _nodes(path / NODES)
    nodes = len(labels)

    def read() -> Iterator[Arcs]:
        for part in read_rows(edges, _PAIRS, 1):
            yield Arcs(part.ids(1, 0, nodes - 1), part.ids(0, 0, nodes - 1))

    splits, of_splits = _splits(path, nodes)
    known = (EDGES, NODES, SOURCE_FILE)
    others = sorted(
        file.name
        for file in path.iterdir()
        if file.name not in known and file.suffix != ".npz" and not file.name.startswith(".")
    )
    columns = what_is_read(nodes=of_splits, files={"ignored": others})
    stream = FeatureStream(lambda: iter([features]), features.shape[1])
    return StreamedGraph(ArcStream(read, nodes), stream, labels, splits, columns=columns)


def _nodes(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the features, float32 [nodes, columns], and labels, int32 [nodes]."""
    rows: dict[int, list[float]] = {}
    labels: dict[int, int] = {}
    for number, line in lines(file):
        if number == 1 or not line.strip():
            continue
        try:
            node, row, label = line.split("\t")
            at = int(node)
            values, rows[at], labels[at] = rows.get(at), [float(word) for word in row.split(",")], int(label)
        except ValueError:
            raise InputError(f"{file}: line {number}: expected node, features divided by commas, and label") from None
        if values is not None:
            raise InputError(f"{file}: line {number}: node {at} is there twice")
    if not rows or set(rows) != set(range(len(rows))):
        raise InputError(f"{file}: nodes are not 0 to {max(len(rows) - 1, 0)}, each once")
    listed = [rows[node] for node in range(len(rows))]
    lengths = {len(row) for row in listed}
    if len(lengths) == 1:
        made = np.array(listed, np.float32)
    else:
        _log.warning("%s: rows differ in length: features are taken as the columns that are 1", file)
        if any(word != int(word) or word < 0 for row in listed for word in row):
            raise InputError(f"{file}: rows of features differ in length, and are no columns from 0")
        made = np.zeros((len(rows), int(max(map(max, listed))) + 1), np.float32)
        for place, ones in enumerate(listed):
            made[place, np.array(ones, np.int64)] = 1
    bad = np.argwhere(~np.isfinite(made))
    if bad.size:
        raise InputError(f"{file}: feature of node {bad[0, 0]}, column {bad[0, 1]} is not a finite float32")
    return made, np.array([labels[node] for node in range(len(rows))], np.int32)


def _splits(folder: Path, nodes: int) -> tuple[np.ndarray | None, dict[str, Any]]:
    """Return the split of the first split file, uint8 [nodes] or None, and the files read and ignored."""
    files = sorted(folder.glob("*_split_*.npz"))
    others = sorted(file.name for file in folder.glob("*.npz") if file not in files[:1])
    if not files:
        return None, {"ignored": others}
    splits = np.zeros(nodes, np.uint8)
    with Npz(files[0]) as file:
        for key, name in _MASKS.items():
            mask = file.array(key)
            if mask.shape != (nodes,) or not np.isin(mask, (0, 1)).all() or (splits[mask != 0] != 0).any():
                raise InputError(f"{files[0]}: {key}: expected a mask of {nodes} nodes, apart from the others")
            splits[mask != 0] = SPLITS[name]
        others = [*others, *(f"{files[0].name}: {key}" for key in sorted(file.keys - _MASKS.keys()))]
    return splits, {"split": files[0].name, "ignored": others}
