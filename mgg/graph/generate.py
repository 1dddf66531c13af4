"""Stage graph, generated: a seeded random graph -> a graph folder."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from mgg.config import nearest
from mgg.errors import InputError, MachineError
from mgg.files import refuse_foreign
from mgg.graph.check import split_vector
from mgg.graph.manifest import KIND, Manifest
from mgg.graph.sources import GraphData, generators
from mgg.graph.store import write_graph


def generate(
    name: str,
    out: str | Path,
    *,
    scale: float | None = None,
    seed: int | None = None,
    shuffle: bool = False,
    features: int | None = None,
    classes: int | None = None,
) -> Manifest:
    """Make the graph folder ``out`` with a generator, in memory.

    Args:
        name: planted, reddit-like, products-like, orkut-like or web-like.
        out: the graph folder; one that exists is replaced when the new one is whole.
        scale: size as a share of the full graph, 1 by default.
        seed: of the random draws; the generator's own by default.
        shuffle: permute the node ids, which hides the communities.
        features, classes: for a graph that has neither, so many columns of random features and random labels of so
            many classes; both or none. Training on them takes its time and learns nothing.

    Raises:
        InputError: unknown name (with the nearest ones), a scale or seed that cannot be, one of features and classes
            without the other, or both for a graph that has its own.
        MachineError: the graph does not fit into memory.
    """
    known = generators()
    if name not in known:
        raise InputError(f"unknown generator {name!r}; {nearest(name, known)}")
    scale = 1.0 if scale is None else float(scale)
    seed = known[name].seed if seed is None else seed
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"{name}: scale must be above 0, found {scale}")
    if seed < 0:
        raise InputError(f"{name}: seed must not be negative, found {seed}")
    if (features is None) != (classes is None):
        raise InputError(f"{name}: features and classes are given together or not at all")
    if features and known[name].labels:
        raise InputError(f"{name}: has features and classes of its own")
    refuse_foreign(Path(out), KIND)
    source = {"generator": name, "scale": scale, "seed": seed, "shuffle": shuffle}
    try:
        data = known[name].make(scale, seed, shuffle)
        if features and classes:
            data = _with_noise(data, name, seed, features, classes)
            source |= {"features": features, "classes": classes}
    except MemoryError:
        raise MachineError(f"{name} at scale {scale}: does not fit into this machine's memory") from None
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


def _with_noise(data: GraphData, name: str, seed: int, features: int, classes: int) -> GraphData:
    """``data`` with normal noise for features, labels drawn evenly, and half the nodes to train on."""
    n = data.csr.rows
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    order = rng.permutation(n)
    parts = {"train": order[: n // 2], "validation": order[n // 2 : 3 * n // 4], "test": order[3 * n // 4 :]}
    return replace(
        data,
        features=rng.standard_normal((n, features), np.float32),
        labels=rng.integers(0, classes, n, np.int32),
        splits=split_vector(n, name, **parts),
        classes=classes,
    )
