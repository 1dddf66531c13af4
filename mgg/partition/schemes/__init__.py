"""Partition schemes: each module of this package is one, discovered automatically.

A scheme is a module with a function ``split(graph, pes)`` that returns a :class:`Split`; the module's name is the
scheme's. To add a scheme, add a file to this folder.
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
    """The assignment of nodes to PEs: a permutation of the nodes, and the bounds of PEs.

    Attributes:
        bounds: int64 [P + 1], ascending from 0 to n; PE p owns positions ``bounds[p] .. bounds[p + 1]``.
        order: int32 (int64 from 2^31 nodes on) [n], the position of each node, or None if no node moves. The nodes of a
            PE keep their order.
    """

    bounds: np.ndarray
    order: np.ndarray | None = None

    def owners(self) -> np.ndarray:
        """Return the PE that owns each node, uint16 [n]."""
        owners = np.repeat(np.arange(len(self.bounds) - 1, dtype=np.uint16), np.diff(self.bounds))
        return owners if self.order is None else owners[self.order]


Scheme = Callable[[Graph, int], Split]


def _scheme_of(module: ModuleType) -> dict[str, Scheme]:
    if not callable(getattr(module, "split", None)):
        raise lacking(module, "a partition scheme needs a function split(graph, pes)")
    return {module.__name__.rpartition(".")[2]: module.split}


#: The ``split`` functions by scheme.
SCHEMES: Registry[Scheme] = Registry(__name__, "partition scheme", "function split", _scheme_of)


def schemes() -> dict[str, Scheme]:
    """Return all schemes of this package by their config values."""
    return SCHEMES.all()


def scheme(name: str) -> Scheme:
    """Return the scheme ``name``; raise InputError with the nearest names, or with the problem of its file."""
    return SCHEMES.find(name)
