"""Node data of a graph folder: features, labels, tasks, splits and the source's own ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import check_features, check_labels, check_splits, check_tasks
from mgg.graph.manifest import Shard
from mgg.graph.sources import FeatureStream
from mgg.graph.store import shards
from mgg.graph.store.shards import Kind


@dataclass(frozen=True)
class NodeData:
    """The data of all nodes.

    Attributes:
        features: float32 [nodes, columns], a stream of such blocks, or None.
        labels: integers [nodes], -1: unlabeled, or None.
        splits: uint8 [nodes] (0 none, 1 train, 2 validation, 3 test) or None.
        classes: number of classes, or None for the largest label + 1.
        tasks: uint8 [nodes, tasks] (0, 1, 255: unknown) or None.
        ids: int64 [nodes], the source's own ids, or None if they equal the graph's ids.
    """

    features: np.ndarray | FeatureStream | None = None
    labels: np.ndarray | None = None
    splits: np.ndarray | None = None
    classes: int | None = None
    tasks: np.ndarray | None = None
    ids: np.ndarray | None = None

    @property
    def width(self) -> int:
        """Return the number of feature columns, 0: none."""
        if self.features is None:
            return 0
        return self.features.width if isinstance(self.features, FeatureStream) else self.features.shape[1]

    def checked(self, nodes: int, name: str) -> NodeData:
        """Return the checked data with its number of classes; InputError names the wrong node (streams: at writing)."""
        if isinstance(self.features, np.ndarray):
            check_features(self.features, nodes, name)
        if self.tasks is not None:
            check_tasks(self.tasks, nodes, name)
        if self.splits is not None:
            check_splits(self.splits, nodes, name)
        if self.ids is not None and self.ids.shape != (nodes,):
            raise InputError(f"{name}: {len(self.ids)} ids for {nodes} nodes")
        if self.labels is None:
            return replace(self, classes=None)
        return replace(self, classes=check_labels(self.labels, nodes, self.classes, name))


def feature_rows(width: int, itemsize: int = 4) -> int:
    """Return the number of vertices per part, for rows of ``width`` numbers."""
    return max(1, min(shards.VERTICES_PER_PART, shards.FEATURE_BYTES_PER_PART // (itemsize * width)))


def write_nodes(folder: Path, data: NodeData, nodes: int, name: str) -> Iterator[tuple[str, Shard]]:
    """Write the parts of ``data``, which must be checked, into the new graph folder; yield their manifest entries.

    Raises:
        InputError: a stream of features ends early or late, or has a number that is not finite; names the node.
    """
    if data.features is not None:
        blocks: Iterable[np.ndarray] = (
            _checked(data.features, nodes, name) if isinstance(data.features, FeatureStream) else [data.features]
        )
        yield from write_column(folder, "features", _even(blocks, feature_rows(data.width)))
    if data.tasks is not None:
        yield from write_column(folder, "tasks", _even([data.tasks], feature_rows(data.tasks.shape[1], 1)))
    columns: dict[Kind, np.ndarray | None] = {"labels": data.labels, "splits": data.splits, "ids": data.ids}
    for kind, values in columns.items():
        if values is not None:
            yield from write_column(folder, kind, _even([values], shards.VERTICES_PER_PART))


def write_column(folder: Path, kind: Kind, blocks: Iterable[np.ndarray]) -> Iterator[tuple[str, Shard]]:
    """Write one part per block of a kind of node data, in the order of the nodes; yield their manifest entries."""
    first = 0
    for number, block in enumerate(blocks):
        values = block.astype(shards.DTYPES[kind], copy=False)
        yield shards.write_part(folder, kind, number, values, first=first, rows=len(block))
        first += len(block)


def _checked(stream: FeatureStream, nodes: int, name: str) -> Iterator[np.ndarray]:
    first = 0
    for block in stream.read():
        if block.ndim != 2 or block.shape[1] != stream.width:
            raise InputError(f"{name}: node {first} has features of shape {block.shape[1:]}, expected {stream.width}")
        bad = np.argwhere(~np.isfinite(block))
        if bad.size:
            row, column = (int(i) for i in bad[0])
            raise InputError(f"{name}: feature of node {first + row}, column {column} is {block[row, column]}")
        first += len(block)
        yield block
    if first != nodes:
        raise InputError(f"{name}: features of {first} nodes for {nodes} nodes")


def _even(blocks: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Yield the same rows in blocks of ``rows``; the last block has the rest."""
    pending: list[np.ndarray] = []
    held = 0
    for block in blocks:
        start = 0
        while held + len(block) - start >= rows:
            pending.append(block[start : start + rows - held])
            start += rows - held
            yield pending[0] if len(pending) == 1 else np.concatenate(pending)
            pending, held = [], 0
        if start < len(block):
            pending.append(block[start:].copy())
            held += len(block) - start
    if pending:
        yield np.concatenate(pending)
