"""Collect the predictions for every node, by the source's own ids: the table of ``predictions.parquet``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from mgg.backend.api import World
from mgg.graph.io.arrow import to_arrow
from mgg.layout import PeLayout

#: Bytes of rows that are sent together, and of rows that are encoded together.
BLOCK_BYTES, GROUP_BYTES = 20 * 2**20, 32 * 2**20
#: Bytes of a node's id, of a predicted class, of a written class, and of a task's logit.
ID, CLASS, LABEL, FLOAT = 8, 8, 4, 4


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()])


SCHEMA = _schema(node=pa.int64(), prediction=pa.int32(), label=pa.int32(), split=pa.uint8())


def task_schema(tasks: int) -> pa.Schema:
    """Return the schema for nodes that have ``tasks`` yes-or-no labels."""
    logit, label = (pa.list_(pa.field("item", type_, nullable=False), tasks) for type_ in (pa.float32(), pa.uint8()))
    return _schema(node=pa.int64(), logit=logit, label=label, split=pa.uint8())


def memory(layout: PeLayout, *, first: bool) -> int:
    """Return the host bytes that a PE needs to collect and write the table; ``first``: the PE is rank 0.

    By then the training's memory is free again.
    """
    tasks = 0 if layout.tasks is None else layout.tasks.shape[1]
    predicted = layout.rows * (ID + (FLOAT * tasks or CLASS))
    table = layout.manifest.nodes * (ID + ((FLOAT + 1) * tasks or 2 * LABEL) + 1)
    # Measured: encoding takes two more row groups for lists, a quarter of one for numbers.
    encoded = min(table, GROUP_BYTES) * (8 if tasks else 1) // 4
    return predicted + (table + encoded if first else 0)


def collect(world: World, layout: PeLayout, predicted: np.ndarray) -> pa.Table | None:
    """Collect the predictions of all PEs on rank 0 (collective).

    Blocks are broadcast, the operation that every backend has for data of this size. The ids come first, and rank 0
    sorts them; then each block of the rest goes directly to its place.

    Args:
        world: the PEs.
        layout: this PE's part of the graph, with splits, and labels or tasks.
        predicted: integers [rows], the predicted class of each of this PE's rows; or float32 [rows, tasks], the
            logit of yes for each task.

    Returns:
        On rank 0 the table, by ascending node: ``node`` (int64, the source's own id); ``prediction`` and ``label``
        (int32, -1: none), or for tasks lists of ``logit`` (float32) and ``label`` (uint8, 255: unknown);
        ``split`` (uint8: 0 none, 1 train, 2 validation, 3 test). None on the other PEs.
    """
    source, at = layout.source_ids, 0
    nodes = np.empty(layout.manifest.nodes if world.rank == 0 else 0, np.int64)
    for block in _blocks(world, layout, 2, lambda rows: _halves(source[rows])):
        nodes[at : at + len(block)] = _whole(block)
        at += len(block)
    nodes.sort()
    table = _Tasks(layout, predicted, nodes) if predicted.ndim == 2 else _Classes(layout, predicted, nodes)
    for block in _blocks(world, layout, table.width, lambda rows: _packed(source, layout.splits, table, rows)):
        places = np.searchsorted(nodes, _whole(block[:, :2]))
        table.splits[places] = block[:, 2]
        table.place(places, block[:, 3:])
    return None if world.rank else table.finished()


def _blocks(world: World, layout: PeLayout, width: int, packed: Callable[[slice], np.ndarray]) -> Iterator[np.ndarray]:
    """Yield blocks of all PEs' rows, int32 [rows, width], on rank 0; none on other PEs (collective)."""
    step = max(1, BLOCK_BYTES // (4 * width))
    for root, rows in enumerate(np.diff(layout.bounds)):
        for lo in range(0, rows, step):
            block = np.empty((min(step, rows - lo), width), np.int32)
            if world.rank == root:
                block[:] = packed(slice(lo, lo + step))
            # Worlds transfer only float32, so the integers' bits are sent as float32; they are only copied.
            world.broadcast(block.view(np.float32), root)
            if world.rank == 0:
                yield block


def _halves(ids: np.ndarray) -> np.ndarray:
    """Return int64 [rows] as int32 [rows, 2]."""
    return np.ascontiguousarray(ids, np.int64).view(np.int32).reshape(-1, 2)


def _whole(halves: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(halves).view(np.int64).ravel()


def _packed(source: np.ndarray, splits: np.ndarray | None, table: _Classes | _Tasks, rows: slice) -> np.ndarray:
    """Return int32 [rows, width]: the two halves of the id, the split, and the table's columns."""
    assert splits is not None
    columns = [_halves(source[rows]), splits[rows, None], *table.packed(rows)]
    return np.concatenate([column.astype(np.int32, copy=False) for column in columns], axis=1)


class _Classes:
    """Columns of nodes that have one class each."""

    width = 5

    def __init__(self, layout: PeLayout, predicted: np.ndarray, nodes: np.ndarray) -> None:
        assert layout.labels is not None
        self._mine = predicted, layout.labels
        self._nodes, self.splits = nodes, np.empty(len(nodes), np.uint8)
        self._found = [np.empty(len(nodes), np.int32) for _ in self._mine]

    def packed(self, rows: slice) -> list[np.ndarray]:
        """Return prediction and label of this PE's ``rows``, integers [rows, 1] each."""
        return [column[rows, None] for column in self._mine]

    def place(self, places: np.ndarray, block: np.ndarray) -> None:
        """Store a block that ``packed`` made in rows ``places``."""
        for found, column in zip(self._found, block.T, strict=True):
            found[places] = column

    def finished(self) -> pa.Table:
        columns = [self._nodes, *self._found, self.splits]
        return pa.table([to_arrow(column) for column in columns], schema=SCHEMA)


class _Tasks:
    """Columns of nodes that have yes-or-no labels; labels are sent as bytes, four per int32."""

    def __init__(self, layout: PeLayout, predicted: np.ndarray, nodes: np.ndarray) -> None:
        assert layout.tasks is not None
        self._logits, self._answers, self._tasks = predicted, layout.tasks, predicted.shape[1]
        self._pad = -self._tasks % 4
        self.width = 3 + self._tasks + (self._tasks + self._pad) // 4
        self._nodes, self.splits = nodes, np.empty(len(nodes), np.uint8)
        self._found = np.empty((len(nodes), self._tasks), np.float32)
        self._known = np.empty((len(nodes), self._tasks), np.uint8)

    def packed(self, rows: slice) -> list[np.ndarray]:
        """Return the bits of logits, and the labels, of this PE's ``rows``, int32 [rows, ...] each."""
        answers = np.pad(self._answers[rows], ((0, 0), (0, self._pad)))
        logits = np.ascontiguousarray(self._logits[rows], np.float32)
        return [logits.view(np.int32), np.ascontiguousarray(answers).view(np.int32)]

    def place(self, places: np.ndarray, block: np.ndarray) -> None:
        """Store a block that ``packed`` made in rows ``places``."""
        self._found[places] = np.ascontiguousarray(block[:, : self._tasks]).view(np.float32)
        answers = np.ascontiguousarray(block[:, self._tasks :]).view(np.uint8)
        self._known[places] = answers[:, : self._tasks]

    def finished(self) -> pa.Table:
        schema = task_schema(self._tasks)
        lists = [
            pa.FixedSizeListArray.from_arrays(to_arrow(values.ravel()), type=schema.field(name).type)
            for name, values in (("logit", self._found), ("label", self._known))
        ]
        return pa.table([to_arrow(self._nodes), *lists, to_arrow(self.splits)], schema=schema)
