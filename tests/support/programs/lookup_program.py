"""Lookups by every side; ``python lookup_program.py BACKEND OUT`` writes their results on MPI ranks as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mgg.aggregate import oracle
from mgg.backend import World, job_size, launch
from mgg.errors import InputError
from mgg.lookup import SIDES
from mgg.lookup.samples import share
from mgg.lookup.sides import Batch
from mgg.lookup.tables import Tables

#: Rows of the tables, one of a single row among them.
SIZES = [5, 1, 300, 40, 7, 90]
#: Batch sizes: several blocks of bags per PE, few bags, fewer bags than PEs.
BATCHES = (150, 7, 1)
#: Columns: rows that are padded on GPUs, and two tiles of columns.
DIMS = (41, 130)


def samples(size: int) -> np.ndarray:
    """int64 [size, tables]: row numbers over all tables, low ones more often."""
    rng = np.random.default_rng(size)
    columns = [np.minimum((rows * rng.random(size) ** 3).astype(np.int64), rows - 1) for rows in SIZES]
    return np.stack(columns, axis=1) + np.cumsum([0, *SIZES[:-1]])


def owners(name: str, pes: int) -> np.ndarray:
    """The owner of every row, derived from the definition of the split: int64 [rows]."""
    if name != "alltoall_tables":
        return np.arange(sum(SIZES)) % pes
    return np.repeat([pe for pe, part in enumerate(np.array_split(SIZES, pes)) for _ in part], SIZES)


def lookups(world: World, sides: Any = SIDES, dims: tuple[int, ...] = DIMS) -> dict[str, Any]:
    """By side, dim and batch: error against float64, whether a repetition has the same bits, bytes and transport."""
    found: dict[str, Any] = {}
    for name in sides:
        for dim in dims:
            try:
                found |= _lookups(world, name, dim)
            except InputError as error:
                found[f"{name} {dim}"] = str(error)
    return found


def _lookups(world: World, name: str, dim: int) -> dict[str, Any]:
    kind, found, counters = SIDES[name], {}, world.counters
    tables = Tables(world, kind.split(SIZES, world.size), dim)
    side = kind(tables, len(SIZES), max(BATCHES))
    for size in BATCHES:
        first, end = share(size, world.rank, world.size)
        rows_of_pe = samples(size)[first:end]
        remote = owners(name, world.size)[rows_of_pe] != world.rank
        batch = Batch(world.upload(rows_of_pe.astype(np.int32)), size, int(remote.sum()))
        outs = [world.xp.empty((end - first, dim), np.float32) for _ in range(2)]
        before = counters.embeddings(), counters.bytes.get("ids", 0)
        side(batch, outs[0])
        moved, numbers = counters.embeddings() - before[0], counters.bytes.get("ids", 0) - before[1]
        side(batch, outs[1])
        first_result, second_result = map(world.download, outs)
        rows = oracle.embeddings(rows_of_pe.reshape(-1), dim).reshape(*rows_of_pe.shape, dim).astype(np.float64)
        found[f"{name} {dim} {size}"] = {
            "error": float((abs(first_result - rows.sum(axis=1)) / abs(rows).sum(axis=1)).max(initial=0)),
            "same": first_result.tobytes() == second_result.tobytes(),
            "embeddings": moved - numbers,
            "numbers": numbers,
            "transport": side.transport,
        }
    side.close()
    tables.close()
    return found


def run(world: World) -> list[dict[str, Any]]:
    """The results of every PE."""
    return world.gather(lookups(world))


if __name__ == "__main__":
    every = launch(sys.argv[1], job_size, run)[0]
    Path(sys.argv[2]).write_text(json.dumps(every), encoding="utf-8")
