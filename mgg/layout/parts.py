"""The parts of one PE's layout, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgg.graph.csr import Csr

if TYPE_CHECKING:
    from mgg.layout.store import LayoutManifest


@dataclass(frozen=True)
class Product:
    """One direction of the aggregation on one PE: C = A B (forward) or C = A^T B (transpose).

    Attributes:
        local: CSR of the arcs whose column this PE owns; columns are offsets into this PE's rows.
        remote: CSR of the other arcs; columns are positions in the halo.
        halo_ptr: int64 [P + 1]; halo rows of owner q are ``halo_ptr[q] .. halo_ptr[q + 1]``.
        halo_rows: int32 or int64 [H]; offset of each halo row in its owner's rows, ascending for each owner.
        send_ptr: int64 [P + 1]; rows that PE q needs from here are ``send_rows[send_ptr[q] : send_ptr[q + 1]]``.
        send_rows: offsets into this PE's rows, ascending for each PE.
        send_first: int64 [P]; position in PE q's halo of the first row from here.
    """

    local: Csr
    remote: Csr
    halo_ptr: np.ndarray
    halo_rows: np.ndarray
    send_ptr: np.ndarray
    send_rows: np.ndarray
    send_first: np.ndarray

    @property
    def rows(self) -> int:
        """Rows of C on this PE."""
        return self.local.rows

    @property
    def halo(self) -> int:
        """Number of halo rows."""
        return len(self.halo_rows)

    def halo_of(self, pe: int) -> np.ndarray:
        """Offsets in PE ``pe``'s rows of the halo rows that it owns."""
        return self.halo_rows[self.halo_ptr[pe] : self.halo_ptr[pe + 1]]

    def sends_to(self, pe: int) -> np.ndarray:
        """Offsets in this PE's rows of the rows that PE ``pe`` needs."""
        return self.send_rows[self.send_ptr[pe] : self.send_ptr[pe + 1]]


@dataclass(frozen=True)
class PeLayout:
    """All that one PE holds of a graph.

    Attributes:
        manifest: facts about the graph and the whole partition.
        rank: this PE.
        forward, transpose: the two products.
        features: float32 [rows, F] or None; labels: int32 [rows] or None, -1 = none; splits: uint8 [rows] or None
            (0 none, 1 train, 2 validation, 3 test).
        tasks: uint8 [rows, tasks] or None: yes-or-no labels, 0, 1, or 255 where unknown.
        graph_nodes: int32 or int64 [rows], the graph's node of each row, or None where the partition moves none.
        ids: int64 [rows], the source's own id of each row's node, or None where the source counts as the graph does.
        folder: of its arrays, beside which what is worked out of them is kept; None: it was not loaded.
    """

    manifest: LayoutManifest
    rank: int
    forward: Product
    transpose: Product
    features: np.ndarray | None
    labels: np.ndarray | None
    splits: np.ndarray | None
    graph_nodes: np.ndarray | None = None
    ids: np.ndarray | None = None
    tasks: np.ndarray | None = None
    folder: Path | None = None

    @cached_property
    def leaving(self) -> dict[Any, Any]:
        """What was worked out of it about rows and sums that leave this PE, by what that depends on."""
        return {}

    @property
    def size(self) -> int:
        """Number of PEs."""
        return self.manifest.pes

    @property
    def bounds(self) -> np.ndarray:
        """int64 [P + 1]: PE p owns the positions ``bounds[p] .. bounds[p + 1]``."""
        return np.asarray(self.manifest.bounds, np.int64)

    @property
    def lo(self) -> int:
        """First position of this PE."""
        return self.manifest.bounds[self.rank]

    @property
    def hi(self) -> int:
        """One past the last position of this PE."""
        return self.manifest.bounds[self.rank + 1]

    @property
    def rows(self) -> int:
        """Nodes of this PE."""
        return self.hi - self.lo

    @property
    def nodes(self) -> int:
        """Nodes of the whole graph."""
        return self.manifest.nodes

    @property
    def node_ids(self) -> np.ndarray:
        """Positions of this PE's rows in the layout's order, int64 [rows]; halo rows are positions, too."""
        return np.arange(self.lo, self.hi, dtype=np.int64)

    @property
    def source_ids(self) -> np.ndarray:
        """What the source calls this PE's nodes, int64 [rows]: the same for any order and partition of a graph."""
        for ids in (self.ids, self.graph_nodes):
            if ids is not None:
                return np.asarray(ids, np.int64)
        return self.node_ids

    def product(self, direction: str) -> Product:
        """``forward`` or ``transpose``."""
        return self.forward if direction == "forward" else self.transpose
