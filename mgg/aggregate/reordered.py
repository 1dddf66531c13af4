"""Weights of arcs for techniques that keep these in an order of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgg.backend import World
from mgg.backend.api import Array
from mgg.graph.csr import Csr


class Reordered:
    """Weights in the order of the layout, brought into another one.

    Args:
        world: the PE's.
        order: int64 [arcs], the numbers (``numbered``) of the arcs in that order.
    """

    def __init__(self, world: World, order: np.ndarray) -> None:
        self._order, self._given = world.upload(order), world.xp.empty(len(order), np.float32)

    def __call__(self, local: Array, remote: Array, weights: Array) -> None:
        """Write those of ``local`` and ``remote`` arcs to ``weights``."""
        self._given[: len(local)], self._given[len(local) :] = local, remote
        weights[...] = self._given[self._order]


def numbered(local: Csr, remote: Csr) -> tuple[Csr, Csr]:
    """Both with their arcs' numbers, int64, for weights: local ones first, then remote ones."""
    arcs = local.arcs + remote.arcs
    return (
        replace(local, weights=np.arange(local.arcs, dtype=np.int64)),
        replace(remote, weights=np.arange(local.arcs, arcs, dtype=np.int64)),
    )
