"""What the best weights say about every node, in the source's own ids: the table of ``predictions.parquet``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mgg.backend.api import World
from mgg.layout import PeLayout

#: Nodes that travel together.
BLOCK = 2**20
SCHEMA = pa.schema(
    [
        pa.field("node", pa.int64(), nullable=False),
        pa.field("prediction", pa.int32(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("split", pa.uint8(), nullable=False),
    ]
)


def collect(world: World, layout: PeLayout, classes: np.ndarray) -> pa.Table | None:
    """Bring the predictions of all PEs to rank 0 (collective).

    They travel a block at a time through the broadcast, which is what every backend has for data of this size; rank 0
    needs 20 bytes a node, and as much again to sort them.

    Args:
        world: the PEs.
        layout: what this PE holds; it has labels and splits.
        classes: integers [rows], the class predicted for each of this PE's rows.

    Returns:
        On rank 0 the table: ``node`` (int64, the source's own id), ``prediction`` (int32), ``label`` (int32, -1:
        none), ``split`` (uint8: 0 none, 1 train, 2 validation, 3 test), by ascending node. None on the other PEs.
    """
    mine = _packed(layout, classes)
    blocks = []
    for root, rows in enumerate(np.diff(layout.bounds)):
        for lo in range(0, rows, BLOCK):
            block = np.empty((min(BLOCK, rows - lo), mine.shape[1]), np.int32)
            if world.rank == root:
                block[:] = mine[lo : lo + BLOCK]
            # The bits of whole numbers as those of float32, the only type that worlds move; they are copied only.
            world.broadcast(block.view(np.float32), root)
            if world.rank == 0:
                blocks.append(block)
    return _table(np.concatenate(blocks)) if world.rank == 0 else None


def _packed(layout: PeLayout, classes: np.ndarray) -> np.ndarray:
    """int32 [rows, 5]: the two halves of the id, prediction, label, split."""
    assert layout.labels is not None and layout.splits is not None
    packed = np.empty((layout.rows, 5), np.int32)
    packed[:, :2] = np.ascontiguousarray(layout.source_ids).view(np.int32).reshape(-1, 2)
    for column, values in enumerate((classes, layout.labels, layout.splits), 2):
        packed[:, column] = values
    return packed


def _table(packed: np.ndarray) -> pa.Table:
    nodes = np.ascontiguousarray(packed[:, :2]).view(np.int64).ravel()
    order = np.argsort(nodes)
    columns = [nodes[order], *(packed[order, column] for column in (2, 3)), packed[order, 4].astype(np.uint8)]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)
