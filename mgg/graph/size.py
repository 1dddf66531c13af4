"""Predicts the size of a data set's graph before it is made, for the resources that cluster jobs request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mgg.config import DatasetConfig
from mgg.graph import user_files
from mgg.graph.datasets import find
from mgg.graph.generators import generators

#: Compressed text, Parquet and pairs of small ids take about this many bytes per arc, plain text twice as many; graphs
#: usually have more arcs per node than this.
BYTES_AN_ARC, ARCS_A_NODE = 6, 8


@dataclass(frozen=True)
class Size:
    """Nodes, arcs and feature columns; counts are upper bounds, except where a source does not state them."""

    nodes: int
    arcs: int
    features: int


def expected_size(name: str, options: DatasetConfig, scale: float = 1.0) -> Size:
    """Return the size of data set or generator ``name``, as its publisher or generator states it.

    For the user's own files it assumes ``BYTES_AN_ARC`` bytes per arc and ``ARCS_A_NODE`` arcs per node.

    Args:
        name: a data set of ``config/datasets.yaml`` or a generator, or the name of its graph.
        options: the data set's options in the config.
        scale: ``graph.scale`` of the config, a factor on the scale of generators.

    Raises:
        InputError: the name is unknown, or the source does not exist.
    """
    if options.source is not None:
        return _own_size(options.source, options.symmetrize)
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


def _own_size(source: str, symmetrize: bool) -> Size:
    """Return the size of the user's own files: from a graph folder's manifest, else a guess from their bytes."""
    made = user_files.made(source)
    if made is not None:
        return Size(made.nodes, made.arcs * (2 if symmetrize and not made.symmetric else 1), made.features)
    arcs = sum(Path(file).stat().st_size for file in user_files.files_of(source)) // BYTES_AN_ARC
    return Size(arcs // ARCS_A_NODE, arcs * (2 if symmetrize else 1), 0)
