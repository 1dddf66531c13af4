"""Products of every technique on layouts; ``python spmm_program.py BACKEND OUT LAYOUT...`` runs it on MPI ranks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mgg import layout
from mgg.aggregate import prepare, techniques
from mgg.backend import World, job_size, launch

DIMS = (1, 3, 16, 41, 64, 100, 128, 602)


def inputs(nodes: np.ndarray, dim: int) -> np.ndarray:
    """Embeddings of global nodes, float32 [len(nodes), dim]: a fixed function of node and column."""
    return np.sin(nodes[:, None] * 12.9898 + np.arange(dim) * 78.233).astype(np.float32)


def products(
    world: World,
    folder: Path,
    dims: Iterable[int],
    options: dict[str, dict[str, Any]] | None = None,
    only: Iterable[str] | None = None,
    moved: dict[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """This PE's rows of every technique, direction and width, by ``"technique direction dim"``.

    The bytes of embeddings that each product moved go into ``moved``, by the same keys.
    """
    part = layout.load(folder, world.rank)
    found = {}
    for technique in only or techniques():
        for direction in ("forward", "transpose"):
            plan = prepare(technique, world, part, direction, max(dims), (options or {}).get(technique))
            for dim in dims:
                plan.input(dim)[:] = world.upload(inputs(part.node_ids, dim))
                key, before = f"{technique} {direction} {dim}", world.counters.embeddings()
                found[key] = world.download(plan(dim))
                if moved is not None:
                    moved[key] = world.counters.embeddings() - before
            plan.close()
    return found


def _main(backend: str, out: Path, folders: list[Path]) -> None:
    def program(world: World) -> None:
        for number, folder in enumerate(folders):
            moved: dict[str, int] = {}
            np.savez(out / f"{number}-{world.rank}.npz", **products(world, folder, DIMS, moved=moved))
            (out / f"{number}-{world.rank}.json").write_text(json.dumps(moved), encoding="utf-8")

    launch(backend, job_size, program)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
