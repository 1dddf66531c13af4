"""The check before every timing: a float64 SciPy product of the same arcs and embeddings."""

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
    """Return test embeddings of global ``nodes``: float32 [len(nodes), dim] in [-1, 1), the same on any PE."""
    return uniform(SEED, 0, nodes, dim) * np.float32(2) - np.float32(1)


@dataclass(frozen=True)
class Reference:
    """The expected result of one PE: C* and |A| |B| in float64, [rows, dim]."""

    product: np.ndarray
    scale: np.ndarray

    def error(self, result: np.ndarray) -> float:
        """Return max |C - C*| / (|A| |B|); infinite if a result that must be zero is not, or is not finite.

        Args:
            result: float32 [rows, dim], a technique's product with ``embeddings``.
        """
        return float(self._errors(result, self.scale).max(initial=0.0))

    def judged(self, result: np.ndarray, tolerance: float, beyond: np.ndarray | None) -> tuple[float, float, bool]:
        """Check that every error is at most ``tolerance`` of |A| |B| plus ``beyond``.

        Args:
            result: as in ``error``.
            tolerance: allowed share of |A| |B|.
            beyond: further allowed difference per entry, float64 [rows, dim]; None: 0.

        Returns:
            An error, the allowed error, and whether all entries pass. If all pass, the first two are the largest of
            each; else they belong to the entry that exceeds its allowance most. With ``beyond``, which stays large
            where |A| |B| is tiny, both are relative to the row's largest |A| |B|.
        """
        if beyond is None:
            error = self.error(result)
            return error, tolerance, error <= tolerance
        largest = self.scale.max(axis=1, keepdims=True, initial=0.0)
        errors = self._errors(result, largest)
        allowed = (tolerance * self.scale + beyond) / np.where(largest > 0, largest, 1.0)
        excess = errors - allowed
        if excess.max(initial=0.0) <= 0:
            return float(errors.max(initial=0.0)), float(allowed.max(initial=0.0)), True
        worst = np.unravel_index(np.argmax(excess), errors.shape)
        return float(errors[worst]), float(allowed[worst]), False

    def _errors(self, result: np.ndarray, scale: np.ndarray) -> np.ndarray:
        # Ignore the last subnormal bit: float32 has no smaller numbers, so it is no rounding error of a product.
        error = np.maximum(np.abs(result - self.product) - np.finfo(np.float32).smallest_subnormal, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(scale > 0, error / scale, np.where(error == 0, 0.0, np.inf))
        return np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)


def reference(layout: PeLayout, direction: str, dim: int, product: Product | None = None) -> Reference:
    """Return the float64 product of this PE's rows, ``forward`` or ``transpose``, at ``dim`` columns.

    ``product`` replaces the layout's weights.
    """
    product = product or layout.product(direction)
    nodes = np.concatenate((layout.node_ids, halo_nodes(layout, product)))
    inputs = embeddings(nodes, dim).astype(np.float64)
    matrix = sparse.hstack([product.local.to_scipy(np.float64), product.remote.to_scipy(np.float64)], format="csr")
    return Reference(matrix @ inputs, abs(matrix) @ abs(inputs))


def halo_nodes(layout: PeLayout, product: Product) -> np.ndarray:
    """Return the global node ids of the halo, int64 [H]."""
    owners = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    return layout.bounds[owners] + product.halo_rows
