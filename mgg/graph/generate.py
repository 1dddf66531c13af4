"""Stage graph for generators: make a graph folder from a seeded random graph."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from mgg.errors import InputError, memory_error
from mgg.files import check_output
from mgg.graph.budget import limited
from mgg.graph.build import build
from mgg.graph.check import split_vector
from mgg.graph.external import Memory
from mgg.graph.external.memory import usable_cores
from mgg.graph.generators import GENERATORS, generators
from mgg.graph.manifest import KIND, Manifest
from mgg.graph.source import Source
from mgg.graph.sources import GraphData, StreamedGraph
from mgg.graph.store import write_graph
from mgg.graph.user_files import check_name


def generate(
    generator: str,
    out: str | Path,
    *,
    name: str | None = None,
    scale: float | None = None,
    seed: int | None = None,
    shuffle: bool = False,
    features: int | None = None,
    classes: int | None = None,
    memory: Memory | None = None,
) -> Manifest:
    """Make the graph folder ``out`` with a generator: in memory, or within a memory budget if the generator streams.

    Args:
        generator: planted, or a stand-in for a real graph: reddit-like, products-like and so on.
        out: the graph folder; the finished folder replaces an existing one.
        name: the graph's name, by default the generator's; not that of a data set or another generator.
        scale: size as a share of the full graph, 1 by default.
        seed: seed of the random draws; the generator's own by default.
        shuffle: permute the node ids, which hides the communities.
        features, classes: numbers of columns of random features and of classes of random labels, for a graph that has
            neither; both or none. Training on them takes realistic time but learns nothing.
        memory: limit of memory and threads, for generators that stream.

    Raises:
        InputError: the generator is unknown (the message has the nearest names), the name is taken, the scale or seed
            is invalid, only one of features and classes is given, the graph already has them, or memory is given for a
            generator that works in memory.
        MachineError: the graph does not fit into memory.
    """
    known = generators()
    name = name_of(generator, name)
    scale = 1.0 if scale is None else float(scale)
    seed = known[generator].seed if seed is None else seed
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"{name}: scale must be above 0, found {scale}")
    if seed < 0:
        raise InputError(f"{name}: seed must not be negative, found {seed}")
    if (features is None) != (classes is None):
        raise InputError(f"{name}: features and classes are given together or not at all")
    if features and known[generator].labels:
        raise InputError(f"{name}: has features and classes of its own")
    if memory is not None and not known[generator].streamed:
        raise InputError(f"{name}: is made in memory, whole: --memory and --workers do not belong to it")
    memory = memory or Memory(workers=usable_cores())
    check_output(out, KIND)
    source = {"generator": generator, "scale": scale, "seed": seed, "shuffle": shuffle}
    try:
        with limited(memory.limit):
            data = known[generator].make(scale, seed, shuffle)
        if isinstance(data, StreamedGraph):
            return build(Source(name, data, source), out, memory=memory)
        if features and classes:
            data = _with_noise(data, name, seed, features, classes)
            source |= {"features": features, "classes": classes}
    except MemoryError:
        raise memory_error(f"{generator} at scale {scale} does not fit") from None
    return write_graph(
        out,
        data.csr,
        name=name,
        source=source,
        features=data.features,
        labels=data.labels,
        splits=data.splits,
        classes=data.classes,
        symmetric=data.symmetric,
    )


def name_of(generator: str, name: str | None) -> str:
    """Return the name of a graph of ``generator``: ``name``, else the generator's.

    Raises:
        InputError: there is no such generator (names the nearest); or see ``check_name``.
    """
    GENERATORS.find(generator)
    if name is None or name == generator:
        return generator
    check_name(name)
    return name


def _with_noise(data: GraphData, name: str, seed: int, features: int, classes: int) -> GraphData:
    """Add normal noise as features, uniformly drawn labels, and a split with half the nodes for training.

    If chance leaves a class without training nodes, the first training nodes get one label of each class.
    """
    n = data.csr.rows
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    order = rng.permutation(n)
    parts = {"train": order[: n // 2], "validation": order[n // 2 : 3 * n // 4], "test": order[3 * n // 4 :]}
    columns, labels = rng.standard_normal((n, features), np.float32), rng.integers(0, classes, n, np.int32)
    if not np.bincount(labels[parts["train"]], minlength=classes).all():
        first = parts["train"][:classes]
        labels[first] = np.arange(len(first))
    return replace(data, features=columns, labels=labels, splits=split_vector(n, name, **parts), classes=classes)
