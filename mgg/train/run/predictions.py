"""What the best weights say about every node, in the source's own ids: the table of ``predictions.parquet``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from mgg.backend.api import World
from mgg.graph.io.arrow import to_arrow
from mgg.layout import PeLayout

#: Bytes of rows that travel together, and of those that are encoded together.
BLOCK_BYTES, GROUP_BYTES = 20 * 2**20, 32 * 2**20
#: Bytes of a node's id, of a class as it is predicted and as it is written, and of a task's logit.
ID, CLASS, LABEL, FLOAT = 8, 8, 4, 4
SCHEMA = pa.schema(
    [
        pa.field("node", pa.int64(), nullable=False),
        pa.field("prediction", pa.int32(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("split", pa.uint8(), nullable=False),
    ]
)


def task_schema(tasks: int) -> pa.Schema:
    """Columns for nodes that have ``tasks`` yes-or-no labels."""
    return pa.schema(
        [
            pa.field("node", pa.int64(), nullable=False),
            pa.field("logit", pa.list_(pa.field("item", pa.float32(), nullable=False), tasks), nullable=False),
            pa.field("label", pa.list_(pa.field("item", pa.uint8(), nullable=False), tasks), nullable=False),
            pa.field("split", pa.uint8(), nullable=False),
        ]
    )


def memory(layout: PeLayout, *, first: bool) -> int:
    """Bytes that collecting and writing the table takes of a PE's host, of rank 0's where it is ``first``; what was
    there for training is free again by then."""
    tasks = 0 if layout.tasks is None else layout.tasks.shape[1]
    predicted = layout.rows * (ID + (FLOAT * tasks or CLASS))
    table = layout.manifest.nodes * _row_bytes(tasks)
    # As measured: lists take two row groups beside them while they are encoded, numbers a quarter.
    encoded = min(table, GROUP_BYTES) * (8 if tasks else 1) // 4
    return predicted + (table + encoded if first else 0)


def _row_bytes(tasks: int) -> int:
    """Of the table."""
    return ID + (FLOAT + 1) * tasks + 1 if tasks else ID + 2 * LABEL + 1


def collect(world: World, layout: PeLayout, predicted: np.ndarray) -> pa.Table | None:
    """Bring the predictions of all PEs to rank 0 (collective).

    They travel a block at a time through the broadcast, which is what every backend has for data of this size: first
    the ids, which rank 0 sorts, then the rest, which goes to its place at once.

    Args:
        world: the PEs.
        layout: what this PE holds; it has splits, and labels or tasks.
        predicted: integers [rows], the class predicted for each of this PE's rows; or float32 [rows, tasks], the
            logit of each yes.

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
    """Rows of all PEs, int32 [at most so many, width], on rank 0; elsewhere none (collective)."""
    step = max(1, BLOCK_BYTES // (4 * width))
    for root, rows in enumerate(np.diff(layout.bounds)):
        for lo in range(0, rows, step):
            block = np.empty((min(step, rows - lo), width), np.int32)
            if world.rank == root:
                block[:] = packed(slice(lo, lo + step))
            # The bits of whole numbers as those of float32, the only type that worlds move; they are copied only.
            world.broadcast(block.view(np.float32), root)
            if world.rank == 0:
                yield block


def _halves(ids: np.ndarray) -> np.ndarray:
    """int32 [rows, 2] of int64 [rows]."""
    return np.ascontiguousarray(ids, np.int64).view(np.int32).reshape(-1, 2)


def _whole(halves: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(halves).view(np.int64).ravel()


def _packed(source: np.ndarray, splits: np.ndarray | None, table: _Classes | _Tasks, rows: slice) -> np.ndarray:
    """int32 [rows, width]: the two halves of the id, the split, and what the table takes."""
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
        """Integers [rows, 1] each of this PE: prediction and label."""
        return [column[rows, None] for column in self._mine]

    def place(self, places: np.ndarray, block: np.ndarray) -> None:
        """Put what was packed where it belongs."""
        for found, column in zip(self._found, block.T, strict=True):
            found[places] = column

    def finished(self) -> pa.Table:
        columns = [self._nodes, *self._found, self.splits]
        return pa.table([to_arrow(column) for column in columns], schema=SCHEMA)


class _Tasks:
    """Columns of nodes that have yes-or-no labels; labels travel as bytes, four in a number."""

    def __init__(self, layout: PeLayout, predicted: np.ndarray, nodes: np.ndarray) -> None:
        assert layout.tasks is not None
        self._logits, self._answers, self._tasks = predicted, layout.tasks, predicted.shape[1]
        self._pad = -self._tasks % 4
        self.width = 3 + self._tasks + (self._tasks + self._pad) // 4
        self._nodes, self.splits = nodes, np.empty(len(nodes), np.uint8)
        self._found = np.empty((len(nodes), self._tasks), np.float32)
        self._known = np.empty((len(nodes), self._tasks), np.uint8)

    def packed(self, rows: slice) -> list[np.ndarray]:
        """int32 [rows, ...] each of this PE: the bits of logits, and answers."""
        answers = np.pad(self._answers[rows], ((0, 0), (0, self._pad)))
        logits = np.ascontiguousarray(self._logits[rows], np.float32)
        return [logits.view(np.int32), np.ascontiguousarray(answers).view(np.int32)]

    def place(self, places: np.ndarray, block: np.ndarray) -> None:
        """Put what was packed where it belongs."""
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
