"""Partition schemes: one module a scheme, found by itself.

A scheme is a module of this package with a function ``split(graph, pes)`` that returns a :class:`Split`; its name is
the module's. Adding a scheme means adding one file to this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from mgg.graph.store import Graph
from mgg.registry import Registry, lacking


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


def _scheme_of(module: ModuleType) -> dict[str, Scheme]:
    if not callable(getattr(module, "split", None)):
        raise lacking(module, "a partition scheme needs a function split(graph, pes)")
    return {module.__name__.rpartition(".")[2]: module.split}


#: The files' functions ``split``.
SCHEMES: Registry[Scheme] = Registry(__name__, "partition scheme", "function split", _scheme_of)


def schemes() -> dict[str, Scheme]:
    """Every scheme of this package by its config value."""
    return SCHEMES.all()


def scheme(name: str) -> Scheme:
    """The scheme called ``name``; raises InputError with the nearest names, or with what is wrong with its file."""
    return SCHEMES.find(name)
