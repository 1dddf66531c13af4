"""What the best weights say about every node, in the source's own ids: the table of ``predictions.parquet``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mgg.backend.api import World
from mgg.layout import PeLayout

#: Bytes of rows that travel together.
BLOCK_BYTES = 20 * 2**20
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


def collect(world: World, layout: PeLayout, predicted: np.ndarray) -> pa.Table | None:
    """Bring the predictions of all PEs to rank 0 (collective).

    They travel a block at a time through the broadcast, which is what every backend has for data of this size; rank 0
    needs 20 bytes a node (12 + 5 a task), and as much again to sort them.

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
    mine = _packed(layout, predicted)
    step = max(1, BLOCK_BYTES // (4 * mine.shape[1]))
    blocks = []
    for root, rows in enumerate(np.diff(layout.bounds)):
        for lo in range(0, rows, step):
            block = np.empty((min(step, rows - lo), mine.shape[1]), np.int32)
            if world.rank == root:
                block[:] = mine[lo : lo + step]
            # The bits of whole numbers as those of float32, the only type that worlds move; they are copied only.
            world.broadcast(block.view(np.float32), root)
            if world.rank == 0:
                blocks.append(block)
    if world.rank:
        return None
    packed = np.concatenate(blocks)
    nodes = np.ascontiguousarray(packed[:, :2]).view(np.int64).ravel()
    order = np.argsort(nodes)
    table = _classes if predicted.ndim == 1 else _tasks
    return table(nodes[order], packed[order, 2].astype(np.uint8), packed[order, 3:], predicted.shape[-1])


def _packed(layout: PeLayout, predicted: np.ndarray) -> np.ndarray:
    """int32 [rows, ...]: the two halves of the id, the split, the prediction, the label; labels of tasks are bytes."""
    assert layout.splits is not None
    ids = np.ascontiguousarray(layout.source_ids).view(np.int32).reshape(-1, 2)
    if predicted.ndim == 1:
        assert layout.labels is not None
        columns = [ids, layout.splits[:, None], predicted[:, None], layout.labels[:, None]]
    else:
        assert layout.tasks is not None
        answers = np.pad(layout.tasks, ((0, 0), (0, -layout.tasks.shape[1] % 4)))
        bits = np.ascontiguousarray(predicted, np.float32).view(np.int32)
        columns = [ids, layout.splits[:, None], bits, np.ascontiguousarray(answers).view(np.int32)]
    return np.concatenate([column.astype(np.int32, copy=False) for column in columns], axis=1)


def _classes(nodes: np.ndarray, splits: np.ndarray, rest: np.ndarray, _: int) -> pa.Table:
    columns = [nodes, rest[:, 0], rest[:, 1], splits]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def _tasks(nodes: np.ndarray, splits: np.ndarray, rest: np.ndarray, tasks: int) -> pa.Table:
    logits = np.ascontiguousarray(rest[:, :tasks]).view(np.float32)
    answers = np.ascontiguousarray(rest[:, tasks:]).view(np.uint8)[:, :tasks]
    schema = task_schema(tasks)
    lists = [
        pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=schema.field(name).type)
        for name, values in (("logit", logits), ("label", answers))
    ]
    return pa.table([pa.array(nodes), *lists, pa.array(splits)], schema=schema)
