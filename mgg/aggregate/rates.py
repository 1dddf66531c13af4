"""What the operators of CPU PEs take, measured inside the job on arcs without locality (docs/model.md)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import numpy as np

from mgg.aggregate.costs import RATE_TERMS, Rate, terms
from mgg.aggregate.links import fit, world_seed
from mgg.backend import World

#: Rows of the probe's graph, arcs a row, and columns: what the coefficients are told apart by.
ROWS, DEGREES, WIDTHS = 8192, (2, 16), (16, 64, 128)
REPEATS = 5


def measure_rates(world: World) -> dict[str, Rate]:
    """The rates of ``rows``, ``partitions``, ``columns`` and ``finish`` (collective), the slowest PE's."""
    probes = {"rows": _rows, "partitions": _partitions, "columns": _columns, "finish": _finish}
    mine = {name: _fitted(world, probe) for name, probe in probes.items()}
    every = world.gather(mine)
    return {name: max((each[name] for each in every), key=lambda rate: sum(rate.values())) for name in mine}


Probe = Callable[[World, np.ndarray, np.ndarray, int], tuple[Callable[[], object], tuple[float, ...]]]


def _fitted(world: World, probe: Probe) -> Rate:
    """Coefficients >= 0 that fit the times of ``probe`` best, as ratios."""
    samples, seconds = [], []
    for indptr, indices, dim in _graphs(world):
        action, touched = probe(world, indptr, indices, dim)
        samples.append(touched)
        seconds.append(_median(world, action))
    return Rate(**dict(zip(RATE_TERMS, fit(np.array(samples), np.array(seconds)), strict=True)))


def _graphs(world: World) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    generator = np.random.default_rng(world_seed(world))
    for rows, degree in ((8, 1), *((ROWS, degree) for degree in DEGREES)):
        indices = generator.integers(0, rows, rows * degree).astype(np.int32)
        for dim in WIDTHS:
            yield np.arange(0, rows * degree + 1, degree, dtype=np.int64), indices, dim


def _median(world: World, action: Callable[[], object]) -> float:
    clock, taken = world.clock(), []
    action()
    for _ in range(REPEATS):
        world.barrier()  # all PEs at once: they share caches and memory
        clock.start()
        action()
        taken.append(clock.stop())
    return statistics.median(taken)


def _matrices(world: World, rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    sums = world.operators.accumulator(rows, dim)
    sums[...] = 0
    return np.ones((rows, dim), np.float32), sums


def _rows(
    world: World, indptr: np.ndarray, indices: np.ndarray, dim: int
) -> tuple[Callable[[], object], tuple[float, ...]]:
    rows = len(indptr) - 1
    source, sums = _matrices(world, rows, dim)
    return (
        lambda: world.operators.spmm_rows(indptr, indices, None, source, sums, False),
        terms(len(indices), rows, 4 * dim, 4 * dim),
    )


def _partitions(
    world: World, indptr: np.ndarray, indices: np.ndarray, dim: int
) -> tuple[Callable[[], object], tuple[float, ...]]:
    rows = len(indptr) - 1
    source, sums = _matrices(world, rows, dim)
    owners = np.arange(rows)
    return (
        lambda: world.operators.spmm_partitions(owners, indptr[:-1], indptr[1:], indices, None, source, sums),
        terms(len(indices), rows, 4 * dim, 4 * dim),
    )


def _columns(
    world: World, indptr: np.ndarray, indices: np.ndarray, dim: int
) -> tuple[Callable[[], object], tuple[float, ...]]:
    rows = len(indptr) - 1
    source, sums = _matrices(world, rows, dim)
    return (
        lambda: world.operators.spmm_columns(indptr, indices, None, source, sums),
        terms(len(indices), rows, 4 * dim, 4 * dim),
    )


def _finish(
    world: World, indptr: np.ndarray, indices: np.ndarray, dim: int
) -> tuple[Callable[[], object], tuple[float, ...]]:
    rows = len(indptr) - 1
    result, sums = _matrices(world, rows, dim)
    return lambda: world.operators.finish(sums, result), terms(0, rows, 0, 4 * dim)
