"""Seeded random graphs: one module per generator, found automatically.

A module registers its graphs with :func:`generator`. To add a generator, add one file to this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mgg.graph.sources import GraphData, StreamedGraph
from mgg.registry import Registry


@dataclass(frozen=True)
class Generator:
    """A seeded random graph: ``make(scale, seed, shuffle)``, the default seed, and whether its nodes have labels.

    ``nodes``, ``arcs`` (at most) and ``features`` are the counts at scale 1, which decide the memory and time of jobs.
    ``streamed``: the whole graph is never in memory.
    """

    name: str
    make: Callable[[float, int, bool], GraphData | StreamedGraph]
    seed: int
    labels: bool = False
    nodes: int = 0
    arcs: int = 0
    features: int = 0
    streamed: bool = False


#: The generators that ``generator`` has registered.
GENERATORS: Registry[Generator] = Registry(__name__, "generator", "generator", unknown="unknown {what} {name!r}")


def generator(made: Generator) -> None:
    """Register a generator."""
    GENERATORS.add(made.name, made, getattr(made.make, "func", made.make).__module__)


def generators() -> dict[str, Generator]:
    """Return every generator by name."""
    return GENERATORS.all()
