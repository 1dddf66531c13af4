"""Where graphs come from: one module a source, found by itself.

A module registers a loader (raw files -> graph) with :func:`loader` or a generator (seed -> graph) with
:func:`generator`; adding a source means adding one file to this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from mgg.config import nearest
from mgg.errors import InputError
from mgg.graph.csr import Csr


@dataclass(frozen=True)
class GraphData:
    """A whole graph in memory, as a source hands it over.

    Attributes:
        csr: the square adjacency matrix.
        symmetric: whether it is known to equal its transpose; None: unknown.
        features: float32 [nodes, columns] or None.
        labels: integers [nodes], -1 where unlabeled, or None.
        splits: uint8 [nodes] (0 none, 1 train, 2 validation, 3 test) or None.
        classes: number of classes, or None for the largest label + 1.
    """

    csr: Csr
    symmetric: bool | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    splits: np.ndarray | None = None
    classes: int | None = None


#: Reads a file or folder; raises InputError that names the file if it is not what the loader expects.
Loader = Callable[[Path], GraphData]


@dataclass(frozen=True)
class Generator:
    """A seeded random graph: ``make(scale, seed, shuffle)``, the default seed, and whether its nodes have labels."""

    name: str
    make: Callable[[float, int, bool], GraphData]
    seed: int
    labels: bool = False


_LOADERS: dict[str, Loader] = {}
_GENERATORS: dict[str, Generator] = {}
L = TypeVar("L", bound=Loader)


def loader(name: str) -> Callable[[L], L]:
    """Decorator: register a function as the loader ``name``."""

    def register(function: L) -> L:
        _LOADERS[name] = function
        return function

    return register


def generator(made: Generator) -> None:
    """Register a generator."""
    _GENERATORS[made.name] = made


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def loaders() -> dict[str, Loader]:
    """Every loader by name."""
    _discover()
    return dict(_LOADERS)


def generators() -> dict[str, Generator]:
    """Every generator by name."""
    _discover()
    return dict(_GENERATORS)


def find_loader(name: str) -> Loader:
    """The loader ``name``; InputError with the nearest names if there is none."""
    if name not in loaders():
        raise InputError(f"unknown loader {name!r}; {nearest(name, loaders())}")
    return loaders()[name]


def shuffled(data: GraphData, order: np.ndarray) -> GraphData:
    """Give node v's features, label and split to node ``order[v]``; the adjacency is left alone."""

    def moved(values: np.ndarray | None) -> np.ndarray | None:
        if values is None:
            return None
        out = np.empty_like(values)
        out[order] = values
        return out

    return replace(data, features=moved(data.features), labels=moved(data.labels), splits=moved(data.splits))
