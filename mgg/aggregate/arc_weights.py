"""Arc weights for techniques that store arcs in their own order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgg.backend import World
from mgg.backend.api import Array
from mgg.graph.csr import Csr


class Reordered:
    """Brings weights from the layout's order into another one.

    Args:
        order: int64 [arcs], the arc numbers (``numbered``) in the other order.
    """

    def __init__(self, world: World, order: np.ndarray) -> None:
        self._order, self._given = world.upload(order), world.xp.empty(len(order), np.float32)

    def __call__(self, local: Array, remote: Array, weights: Array) -> None:
        """Write the weights of ``local`` and ``remote`` arcs to ``weights`` in the other order."""
        self._given[: len(local)], self._given[len(local) :] = local, remote
        weights[...] = self._given[self._order]


def numbered(local: Csr, remote: Csr) -> tuple[Csr, Csr]:
    """Return both matrices with arc numbers, int64, as weights: local arcs first, then remote arcs."""
    arcs = local.arcs + remote.arcs
    return (
        replace(local, weights=np.arange(local.arcs, dtype=np.int64)),
        replace(remote, weights=np.arange(local.arcs, arcs, dtype=np.int64)),
    )
