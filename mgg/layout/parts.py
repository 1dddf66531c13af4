"""One PE's layout in memory, and its parts."""

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
        halo_rows: int32 or int64 [H]; offset of each halo row in its owner's rows, ascending per owner.
        send_ptr: int64 [P + 1]; PE q needs this PE's rows ``send_rows[send_ptr[q] : send_ptr[q + 1]]``.
        send_rows: offsets into this PE's rows, ascending per receiving PE.
        send_first: int64 [P]; position in PE q's halo of the first row from this PE.
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
        """Return the halo rows that PE ``pe`` owns, as offsets in its rows."""
        return self.halo_rows[self.halo_ptr[pe] : self.halo_ptr[pe + 1]]

    def sends_to(self, pe: int) -> np.ndarray:
        """Return the rows that PE ``pe`` needs, as offsets in this PE's rows."""
        return self.send_rows[self.send_ptr[pe] : self.send_ptr[pe + 1]]


@dataclass(frozen=True)
class PeLayout:
    """One PE's part of a graph.

    Attributes:
        manifest: facts about the graph and the whole partition.
        rank: this PE.
        forward, transpose: the two products.
        features: float32 [rows, F] or None; labels: int32 [rows] or None, -1 = none; splits: uint8 [rows] or None
            (0 none, 1 train, 2 validation, 3 test).
        tasks: uint8 [rows, tasks] or None: yes-or-no labels, 0, 1, or 255 for unknown.
        graph_nodes: int32 or int64 [rows], the graph's node of each row, or None if the partition moves no nodes.
        ids: int64 [rows], the source's own id of each row's node, or None if source and graph number nodes alike.
        folder: folder of the PE's arrays, which also caches results derived from them; None: the layout was not
            loaded.
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
        """Cache of derived facts about rows and sums that leave this PE, by their inputs."""
        return {}

    @property
    def size(self) -> int:
        """Number of PEs."""
        return self.manifest.pes

    @property
    def bounds(self) -> np.ndarray:
        """Bounds of the PEs, int64 [P + 1]: PE p owns positions ``bounds[p] .. bounds[p + 1]``."""
        return np.asarray(self.manifest.bounds, np.int64)

    @property
    def lo(self) -> int:
        """First position of this PE."""
        return self.manifest.bounds[self.rank]

    @property
    def hi(self) -> int:
        """The position after the last one of this PE."""
        return self.manifest.bounds[self.rank + 1]

    @property
    def rows(self) -> int:
        """Number of this PE's nodes."""
        return self.hi - self.lo

    @property
    def nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return self.manifest.nodes

    @property
    def node_ids(self) -> np.ndarray:
        """Positions of this PE's rows in the layout's order, int64 [rows]."""
        return np.arange(self.lo, self.hi, dtype=np.int64)

    @property
    def source_ids(self) -> np.ndarray:
        """The source's ids of this PE's nodes, int64 [rows]; they do not depend on a graph's order and partition."""
        for ids in (self.ids, self.graph_nodes):
            if ids is not None:
                return np.asarray(ids, np.int64)
        return self.node_ids

    def product(self, direction: str) -> Product:
        """Return the product of ``direction``, ``forward`` or ``transpose``."""
        return self.forward if direction == "forward" else self.transpose
