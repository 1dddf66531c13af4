"""Permutations of the nodes."""

from __future__ import annotations

import numpy as np


def inverse(order: np.ndarray) -> np.ndarray:
    """Return the inverse of a permutation, integers [n]: given each node's position, the node at each position."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order), dtype=order.dtype)
    return found
