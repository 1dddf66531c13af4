"""Technique ``cola`` on GPUs: one launch fetches each row once and spreads it (kernels/aggregate/cola.cu)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgg.aggregate.workgroups.columns_by_mate import ColumnsOfMate
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.graph.csr import Csr
from mgg.kernel.cola import column_schedule


class PulledColumns:
    """The columns of one phase.

    Args:
        columns: transpose of the PE's remote arcs, in host memory.
        parts: the ranges of these columns by the PE that has their rows.
        matrix: the symmetric array of the rows; views of any width start at its beginning.
    """

    def __init__(self, world: World, columns: Csr, parts: Sequence[ColumnsOfMate], matrix: SymmetricArray) -> None:
        none = np.zeros(0, np.int64)
        chosen = np.concatenate([none, *(np.arange(part.first, part.last) for part in parts)])
        sources = [np.uint64(i << 48) | part.rows.astype(np.uint64) for i, part in enumerate(parts)]
        schedule = column_schedule(columns, chosen, np.concatenate([none.astype(np.uint64), *sources]))
        fetched = np.bincount((schedule.sources >> np.uint64(48)).astype(np.int64), minlength=len(parts))
        self._fetched: Counter[str] = Counter()  # rows per launch, by counter name
        for part, rows in zip(parts, fetched.tolist(), strict=True):
            self._fetched[part.operation] += rows
        holders = np.array([matrix.copy_of(part.mate).data.ptr for part in parts], np.uint64)
        operators: Any = world.operators  # on GPUs they have the kernel besides the table of operators
        self._kernel = operators.cola_kernel(schedule, world.upload(holders))

    def __call__(self, world: World, held: SymmetricArray, acc: Array) -> None:
        """Add the product with the rows of the mates' ``held`` [*, D] to ``acc`` [rows, D]."""
        self._kernel(held.local, acc)
        for operation, rows in self._fetched.items():
            world.counters.add(operation, 4 * rows * acc.shape[1])
