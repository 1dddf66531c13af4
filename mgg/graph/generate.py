"""Stage graph, generated: a seeded random graph -> a graph folder."""

from __future__ import annotations

import math
from pathlib import Path

from mgg.config import nearest
from mgg.errors import InputError, MachineError
from mgg.files import refuse_foreign
from mgg.graph.manifest import KIND, Manifest
from mgg.graph.sources import generators
from mgg.graph.store import write_graph


def generate(
    name: str, out: str | Path, *, scale: float | None = None, seed: int | None = None, shuffle: bool = False
) -> Manifest:
    """Make the graph folder ``out`` with a generator, in memory.

    Args:
        name: planted, reddit-like, products-like, orkut-like or web-like.
        out: the graph folder; one that exists is replaced when the new one is whole.
        scale: size as a share of the full graph, 1 by default.
        seed: of the random draws; the generator's own by default.
        shuffle: permute the node ids, which hides the communities.

    Raises:
        InputError: unknown name (with the nearest ones), or a scale or seed that cannot be.
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
    refuse_foreign(Path(out), KIND)
    try:
        data = known[name].make(scale, seed, shuffle)
    except MemoryError:
        raise MachineError(f"{name} at scale {scale}: does not fit into this machine's memory") from None
    return write_graph(
        out,
        data.csr,
        name=name,
        source={"generator": name, "scale": scale, "seed": seed, "shuffle": shuffle},
        features=data.features,
        labels=data.labels,
        splits=data.splits,
        classes=data.classes,
        symmetric=data.symmetric,
    )
