"""The GPU memory of a technique, array by array; each technique adds up its own arrays (``Plan.need``).

Predictions aim to be within a fifth of the peak; kernels, contexts and allocator rounding are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg.aggregate.options import TechniqueOptions
from mgg.kernel.bf16 import ELEMENTS
from mgg.kernel.column_tiles import WARP
from mgg.kernel.narrow_row_schedule import NARROW, bundle_bytes, lanes_of
from mgg.kernel.pitch import row_pitch
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.layout import PeLayout, Product

FLOAT, DOUBLE, POINTER = 4, 8, 8
#: Bytes of a neighbor partition: its row, its first arc, and the end of its arcs.
PARTITION = 24
#: Rows of partial sums are padded to the widest vector load, which is bfloat16's.
VECTOR = 8
#: Bytes of a piece and of a task of a row-wise product (mgg/kernel/schedule.py).
PIECE, TASK = 12, 8


@dataclass(frozen=True)
class PlanMemory:
    """Bytes of GPU memory on one PE.

    Attributes:
        layout: the product's arrays in the layout's order, if the technique uses them.
        columns: matrices: input, result, buffers.
        arcs: the technique's own arrays of arcs.
        schedules: the cuts of row-wise products, with their partial sums.
        guests: memory of other PEs that may all migrate to this GPU.
    """

    layout: int
    columns: int
    arcs: int = 0
    schedules: int = 0
    guests: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.layout + self.columns + self.arcs + self.schedules + self.guests


class MemoryCase:
    """One PE's part of a product at a width, and the sizes of its arrays.

    Args:
        layout: the PE's part of the graph.
        dim: largest number of embedding columns.
        widths: number of widths that the plan keeps at a time; ``dim`` is the largest.
        padded: whether rows of embeddings are padded, as on GPUs (``Plan.pitched``).

    Attributes:
        arcs_back: for each PE, the arcs from other PEs' rows to its own, int64 [P]; None: not in the layout.
        told: what every PE reported about itself (``Plan.exchanged_sizes``); None: the PEs exchanged nothing.
    """

    def __init__(
        self, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions, dtype: str = "fp32",
        widths: int = 1, padded: bool = True,
    ):  # fmt: skip
        self.layout, self.dim, self.dtype, self.widths = layout, dim, dtype, widths
        self.options: Any = options  # of the technique's own class
        self.exchanged_sizes: Sequence[Any] | None = None
        self._element = np.dtype(ELEMENTS[dtype]).itemsize
        self._pitch = row_pitch(dim, self._element) if padded else dim
        self.direction = direction
        self.product: Product = layout.product(direction)
        self.counts = layout.manifest.direction(direction)
        self.arcs_back: np.ndarray | None = None
        if layout.transpose is not layout.forward:  # it has a separate transposed product
            back = {"forward": "transpose", "transpose": "forward"}[direction]
            self.arcs_back = np.array(layout.manifest.direction(back).remote_arcs)
        self.rows, self.size, self.rank = self.product.rows, layout.size, layout.rank
        self.heights = np.diff(layout.bounds)
        self.ids = self.product.local.indices.dtype.itemsize
        self.weight = 0 if self.product.local.weights is None else FLOAT
        self.arc = self.ids + self.weight

    def matrix(self, rows: int) -> int:
        """Return the bytes of a float32 matrix of ``rows``."""
        return FLOAT * int(rows) * self.dim

    def rounded(self, rows: int) -> int:
        """Return the bytes of a float32 matrix of ``rows`` before rounding; 0 if embeddings are float32."""
        return 0 if self._element == FLOAT else self.matrix(rows)

    def sent(self, rows: int) -> int:
        """Return the bytes of ``rows`` embeddings in transit, without the padding that rows have in memory."""
        return self._element * int(rows) * self.dim

    def embeddings(self, rows: int) -> int:
        """Return the bytes of a matrix of ``rows`` embeddings."""
        return self._element * int(rows) * self._pitch

    def pointers(self, rows: int) -> int:
        """Return the bytes of the row pointers of a CSR."""
        return POINTER * (int(rows) + 1)

    def base(self) -> PlanMemory:
        """Return what most plans hold: the local arcs, the input and one result."""
        local = self.pointers(self.rows) + self.arc * self.product.local.arcs
        return PlanMemory(local, self.embeddings(self.heights.max()) + self.matrix(self.rows))

    def remote_by_owner(self) -> np.ndarray:
        """Return the remote arcs by the PE that owns their column, int64 [P]."""
        product = self.product
        ends = np.concatenate(([0], np.cumsum(np.bincount(product.remote.indices, minlength=product.halo))))
        return np.diff(ends[product.halo_ptr])

    def cut(self, lengths: np.ndarray) -> int:
        """Return the bytes of the cut of a row-wise product with rows of ``lengths`` arcs, and of its partial sums."""
        pieces = np.maximum(-(-lengths // LARGEST_TASK), 1)
        tasks = int(lengths.sum()) / LARGEST_TASK + int(pieces.sum()) / PIECES_PER_TASK
        return PIECE * int(pieces.sum()) + int(TASK * tasks) + _partial_sums(lengths, self.dim)

    def row_wise(self, lengths: np.ndarray) -> int:
        """Return the bytes of the cut for ``spmm_rows`` on GPUs, which orders its work differently for short rows of B;
        with several widths, of both orders.
        """
        vector = next(each for each in (8, 4, 2, 1) if each * self._element <= 16 and self._pitch % each == 0)
        if lanes := lanes_of(self.dim, vector):
            return bundle_bytes(lengths, WARP // lanes) + _partial_sums(lengths, self.dim)
        return self.cut(lengths) + (bundle_bytes(lengths, WARP // NARROW) if self.widths > 1 else 0)

    def local_cut(self) -> int:
        """Return the bytes of the cut of the local arcs."""
        return self.row_wise(np.diff(self.product.local.indptr))


def _partial_sums(lengths: np.ndarray, dim: int) -> int:
    """Return the bytes of the partial sums of rows that are cut, for rows of ``lengths`` arcs."""
    pieces = -(-lengths // LARGEST_TASK)
    return FLOAT * int(pieces[pieces > 1].sum()) * -(-dim // VECTOR) * VECTOR
