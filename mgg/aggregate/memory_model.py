"""What a technique takes of a GPU's memory, array by array: each adds up its own (``Plan.need``) from what is here.

Predictions are meant to be within a fifth of the peak: kernels, contexts and the rounding of allocators are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg.aggregate.options import TechniqueOptions
from mgg.kernel.bf16 import ELEMENTS
from mgg.kernel.bundles import NARROW, bundle_bytes, lanes_of
from mgg.kernel.pitch import row_pitch
from mgg.kernel.schedule import LARGEST_TASK, PIECES_PER_TASK
from mgg.kernel.tiles import WARP
from mgg.layout import PeLayout, Product

FLOAT, DOUBLE, POINTER = 4, 8, 8
#: Bytes of a neighbor partition: its row, its first arc and the one past its last.
PARTITION = 24
#: Partial sums have rows of whole vectors of the widest load, of bfloat16.
VECTOR = 8
#: Bytes of a piece and of a task of a row-wise product (mgg/kernel/schedule.py).
PIECE, TASK = 12, 8


@dataclass(frozen=True)
class Need:
    """Bytes of GPU memory on one PE.

    Attributes:
        layout: the product's arrays as the layout has them, where the technique works on these.
        columns: matrices: input, result, buffers.
        arcs: what the technique makes of the arcs.
        schedules: the cuts of row-wise products, with their partial sums.
        guests: what belongs to other PEs and may all come to this GPU.
    """

    layout: int
    columns: int
    arcs: int = 0
    schedules: int = 0
    guests: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.layout + self.columns + self.arcs + self.schedules + self.guests


class Case:
    """One PE's part of a product at a width, and what arrays of it take.

    Args:
        layout: what the PE holds.
        direction: ``forward`` or ``transpose``.
        dim: most embedding columns.
        options: of the technique.
        dtype: type of the embeddings.
        widths: how many widths the plan keeps at a time, ``dim`` the widest of them.
        padded: whether the rows of embeddings are, as on GPUs (``Plan.pitched``).

    Attributes:
        arcs_back: of each PE the arcs of other PEs' rows to its own, int64 [P]; None: the layout does not hold them.
        told: what every PE said of itself (``Plan.told``); None: nobody was asked.
    """

    def __init__(
        self, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions, dtype: str = "fp32",
        widths: int = 1, padded: bool = True,
    ):  # fmt: skip
        self.layout, self.dim, self.options, self.dtype, self.widths = layout, dim, options, dtype, widths
        self.told: Sequence[Any] | None = None
        self._element = np.dtype(ELEMENTS[dtype]).itemsize
        self._pitch = row_pitch(dim, self._element) if padded else dim
        self.direction = direction
        self.product: Product = layout.product(direction)
        self.counts = layout.manifest.direction(direction)
        self.arcs_back: np.ndarray | None = None
        if layout.transpose is not layout.forward:  # it has a transposed product of its own
            back = {"forward": "transpose", "transpose": "forward"}[direction]
            self.arcs_back = np.array(layout.manifest.direction(back).remote_arcs)
        self.rows, self.size, self.rank = self.product.rows, layout.size, layout.rank
        self.heights = np.diff(layout.bounds)
        self.ids = self.product.local.indices.dtype.itemsize
        self.weight = 0 if self.product.local.weights is None else FLOAT
        self.arc = self.ids + self.weight

    def matrix(self, rows: int) -> int:
        """A float32 matrix of ``rows``."""
        return FLOAT * int(rows) * self.dim

    def rounded(self, rows: int) -> int:
        """A float32 matrix of ``rows`` that are rounded to embeddings; none where these are float32."""
        return 0 if self._element == FLOAT else self.matrix(rows)

    def sent(self, rows: int) -> int:
        """So many embeddings on their way: without what pads their rows in memory."""
        return self._element * int(rows) * self.dim

    def embeddings(self, rows: int) -> int:
        """A matrix of ``rows`` embeddings."""
        return self._element * int(rows) * self._pitch

    def pointers(self, rows: int) -> int:
        """The row pointers of a CSR."""
        return POINTER * (int(rows) + 1)

    def base(self) -> Need:
        """What most plans hold: the local arcs, the input and one result."""
        local = self.pointers(self.rows) + self.arc * self.product.local.arcs
        return Need(local, self.embeddings(self.heights.max()) + self.matrix(self.rows))

    def remote_by_owner(self) -> np.ndarray:
        """Remote arcs by the PE that owns their column, int64 [P]."""
        product = self.product
        ends = np.concatenate(([0], np.cumsum(np.bincount(product.remote.indices, minlength=product.halo))))
        return np.diff(ends[product.halo_ptr])

    def cut(self, lengths: np.ndarray) -> int:
        """The cut of a row-wise product whose rows have ``lengths`` arcs, and its partial sums."""
        pieces = np.maximum(-(-lengths // LARGEST_TASK), 1)
        tasks = int(lengths.sum()) / LARGEST_TASK + int(pieces.sum()) / PIECES_PER_TASK
        return PIECE * int(pieces.sum()) + int(TASK * tasks) + _partial_sums(lengths, self.dim)

    def row_wise(self, lengths: np.ndarray) -> int:
        """The same of ``spmm_rows`` on GPUs, which has another order of work where rows of B are short: with several
        widths, of such ones, too.
        """
        vector = next(each for each in (8, 4, 2, 1) if each * self._element <= 16 and self._pitch % each == 0)
        if lanes := lanes_of(self.dim, vector):
            return bundle_bytes(lengths, WARP // lanes) + _partial_sums(lengths, self.dim)
        return self.cut(lengths) + (bundle_bytes(lengths, WARP // NARROW) if self.widths > 1 else 0)

    def local_cut(self) -> int:
        """The cut of the local arcs."""
        return self.row_wise(np.diff(self.product.local.indptr))

    def owner_cuts(self) -> int:
        """The cuts of the remote arcs of each owner; rows without arcs have no piece there."""
        arcs = self.remote_by_owner()
        return int(sum(PIECE * min(self.rows, count) + TASK * count // PIECES_PER_TASK for count in arcs))

    def owner_parts(self) -> int:
        """The remote CSR cut by owner, every part with all rows."""
        return self.size * self.pointers(self.rows) + self.arc * self.product.remote.arcs


def _partial_sums(lengths: np.ndarray, dim: int) -> int:
    """Those of rows of so many arcs that are cut."""
    pieces = -(-lengths // LARGEST_TASK)
    return FLOAT * int(pieces[pieces > 1].sum()) * -(-dim // VECTOR) * VECTOR
