"""Partition schemes: one module a scheme, found by itself.

A scheme is a module of this package with a function ``split(graph, pes)`` that returns a :class:`Split`; its name is
the module's. Adding a scheme means adding one file to this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from mgg.errors import InputError
from mgg.graph.store import Graph
from mgg.schema import nearest


@dataclass(frozen=True)
class Split:
    """Which PE owns which nodes: a permutation of the nodes and P - 1 split points.

    Attributes:
        bounds: int64 [P + 1], ascending from 0 to n; PE p owns the positions ``bounds[p] .. bounds[p + 1]``.
        order: int32 (int64 from 2^31 nodes on) [n], the position of each node, or None where every node stays where
            it is. The nodes of a PE keep their order.
    """

    bounds: np.ndarray
    order: np.ndarray | None = None

    def owners(self) -> np.ndarray:
        """The PE that owns each node, uint16 [n]."""
        owners = np.repeat(np.arange(len(self.bounds) - 1, dtype=np.uint16), np.diff(self.bounds))
        return owners if self.order is None else owners[self.order]


Scheme = Callable[[Graph, int], Split]


@cache
def schemes() -> dict[str, Scheme]:
    """Every scheme of this package by its config value."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").split for name in names}


def scheme(name: str) -> Scheme:
    """The scheme called ``name``; raises InputError with the nearest names."""
    if name not in schemes():
        raise InputError(f"partition scheme {name!r}: unknown; {nearest(name, schemes())}")
    return schemes()[name]
