"""The check that precedes every timing: a float64 SciPy product of the same arcs and embeddings."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from mgg.kernel.random import uniform
from mgg.layout import PeLayout, Product

#: Largest allowed max |C - C*| / (|A| |B|), elementwise, by type of the embeddings.
TOLERANCE = {"fp32": 1e-6}
SEED = 2023


def embeddings(nodes: np.ndarray, dim: int) -> np.ndarray:
    """Test embeddings of global ``nodes``: float32 [len(nodes), dim] in [-1, 1), the same on any PE."""
    return uniform(SEED, 0, nodes, dim) * np.float32(2) - np.float32(1)


def relative_error(layout: PeLayout, direction: str, result: np.ndarray) -> float:
    """max |C - C*| / (|A| |B|) over this PE's rows; infinite where a result must be zero and is not, or is not finite.

    Args:
        layout: this PE's layout.
        direction: ``forward`` or ``transpose``.
        result: float32 [rows, dim], what a technique made of ``embeddings``.
    """
    product = layout.product(direction)
    nodes = np.concatenate((layout.node_ids, halo_nodes(layout, product)))
    inputs = embeddings(nodes, result.shape[1]).astype(np.float64)
    matrix = sparse.hstack([product.local.to_scipy(np.float64), product.remote.to_scipy(np.float64)], format="csr")
    # The last subnormal bit is no rounding error of a product: below it, float32 has no numbers.
    error = np.maximum(np.abs(result - matrix @ inputs) - np.finfo(np.float32).smallest_subnormal, 0)
    scale = abs(matrix) @ abs(inputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(scale > 0, error / scale, np.where(error == 0, 0.0, np.inf))
    return float(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf).max(initial=0.0))


def halo_nodes(layout: PeLayout, product: Product) -> np.ndarray:
    """Global node ids of the halo, int64 [H]."""
    owners = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    return layout.bounds[owners] + product.halo_rows
