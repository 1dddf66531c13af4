"""The check that precedes every timing: a float64 SciPy product of the same arcs and embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from mgg.kernel.random import uniform
from mgg.layout import PeLayout, Product

#: Largest allowed max |C - C*| / (|A| |B|), elementwise, by type of the embeddings.
TOLERANCE = {"fp32": 1e-6, "bf16": 1e-2}
SEED = 2023


def embeddings(nodes: np.ndarray, dim: int) -> np.ndarray:
    """Test embeddings of global ``nodes``: float32 [len(nodes), dim] in [-1, 1), the same on any PE."""
    return uniform(SEED, 0, nodes, dim) * np.float32(2) - np.float32(1)


@dataclass(frozen=True)
class Reference:
    """What a technique must compute: C* and |A| |B| in float64, [rows, dim] of one PE."""

    product: np.ndarray
    scale: np.ndarray

    def error(self, result: np.ndarray) -> float:
        """max |C - C*| / (|A| |B|); infinite where a result must be zero and is not, or is not finite.

        Args:
            result: float32 [rows, dim], what a technique made of ``embeddings``.
        """
        # The last subnormal bit is no rounding error of a product: below it, float32 has no numbers.
        error = np.maximum(np.abs(result - self.product) - np.finfo(np.float32).smallest_subnormal, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.scale > 0, error / self.scale, np.where(error == 0, 0.0, np.inf))
        return float(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf).max(initial=0.0))


def reference(layout: PeLayout, direction: str, dim: int) -> Reference:
    """The float64 product of this PE's rows, ``forward`` or ``transpose``, at ``dim`` columns."""
    product = layout.product(direction)
    nodes = np.concatenate((layout.node_ids, halo_nodes(layout, product)))
    inputs = embeddings(nodes, dim).astype(np.float64)
    matrix = sparse.hstack([product.local.to_scipy(np.float64), product.remote.to_scipy(np.float64)], format="csr")
    return Reference(matrix @ inputs, abs(matrix) @ abs(inputs))


def halo_nodes(layout: PeLayout, product: Product) -> np.ndarray:
    """Global node ids of the halo, int64 [H]."""
    owners = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    return layout.bounds[owners] + product.halo_rows
