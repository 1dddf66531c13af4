"""How large the graph of a data set will be, before it is made: what jobs ask a cluster for follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from mgg.config import DatasetConfig
from mgg.graph.datasets import find
from mgg.graph.sources import generators


@dataclass(frozen=True)
class Size:
    """Nodes, arcs and feature columns; no count is below the graph's own, apart from what a source does not state."""

    nodes: int
    arcs: int
    features: int


def expected_size(name: str, options: DatasetConfig, scale: float = 1.0) -> Size:
    """The size of data set or generator ``name``, as stated by its publisher or meant by its generator.

    Args:
        name: a data set of ``config/datasets.yaml`` or a generator, or the name that its graph gets.
        options: how it is made.
        scale: ``graph.scale`` of the config, a factor on the scale of generators.

    Raises:
        InputError: unknown name.
    """
    generator = options.generator or name
    if generator in generators():
        made = generators()[generator]
        share = (options.scale or 1.0) * scale
        return Size(int(made.nodes * share), int(made.arcs * share), options.features or made.features)
    dataset = find(name)
    listed = dataset.edges if dataset.edges is not None else dataset.arcs or 0
    stored = dataset.arcs if dataset.arcs is not None else listed * (2 if dataset.undirected else 1)
    doubled = options.symmetrize and not dataset.undirected
    return Size(dataset.nodes, stored * (2 if doubled else 1), dataset.features or 0)
