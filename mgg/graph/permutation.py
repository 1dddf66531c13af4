"""Permutations of the nodes."""

from __future__ import annotations

import numpy as np


def inverse(order: np.ndarray) -> np.ndarray:
    """The inverse of a permutation, integers [n]: of the position of each node, the node at each; of the same dtype."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order), dtype=order.dtype)
    return found
