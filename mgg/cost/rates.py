"""Measure the rates of operators in the job: each term on CPUs, the ratio to H200 on GPUs (docs/concepts/costs.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from mgg.backend import World
from mgg.backend.compiling import compile_ahead
from mgg.cost.links import fit, world_seed
from mgg.cost.product import RATE_TERMS, Rate, terms
from mgg.kernel import wire
from mgg.kernel.compile import build_of
from mgg.kernel.random import Draws

#: Rows of the probe's graph, arcs per row, and columns; their variation separates the coefficients. A probe takes about
#: a millisecond, so that some round has the core to itself even on a busy machine.
ROWS, DEGREES, WIDTHS = 2048, (2, 16), (16, 64, 128)
#: Rows of the matrix that is read (or, column-wise, written) at random: larger than a core's caches.
TABLE = 32768
REPEATS = 12
#: Most rows that are packed, and the bits per value: 8, 4 and 2 take about the same time.
PACKED, BITS = 512, 8

#: The probe of GPUs: rows, arcs per row, and the widths at which the work on arcs and their bytes dominate.
GPU_ROWS, GPU_DEGREE, GPU_WIDTHS = 2**20, 24, (16, 128)
#: One in ``ANYWHERE`` of its arcs leads anywhere, the others to rows at most ``NEAR`` away, as in a graph with
#: communities.
ANYWHERE, NEAR = 8, 2048
#: Arcs per neighbor partition in the GPU probe.
GPU_PS = 8
#: Seconds of each operator on one H200 at each of the widths (docs/results/costs.md).
ON_H200 = {"rows": (4.611e-4, 1.391e-3), "partitions": (2.05e-3, 1.809e-3), "columns": (6.11e-4, 4.138e-3)}


def measure_rates(world: World) -> dict[str, Rate]:
    """Measure the rates of all operators of CPU PEs (collective); each term is the slowest PE's."""
    room = _Room(world)
    found = [
        (name, *probe(room, indptr, indices, dim))
        for name, probe in _PROBES.items()
        for indptr, indices, dim in _graphs(room)
    ]
    taken = np.array(_rounds(world, [action for _, action, _ in found]))
    mine = {}
    for name in _PROBES:
        chosen = [place for place, (each, _, _) in enumerate(found) if each == name]
        samples = np.array([found[place][2] for place in chosen])
        mine[name] = fit(samples, taken[chosen])
    every = world.gather(mine)
    slowest = {name: np.max([each[name] for each in every], axis=0) for name in mine}
    return {name: Rate(**dict(zip(RATE_TERMS, map(float, each), strict=True))) for name, each in slowest.items()}


def compared_with_h200(world: World) -> dict[str, tuple[float, float]]:
    """Return the ratios to H200 of operator times on this job's slowest GPU, for work and for bytes (collective).

    The operators are ``rows``, ``partitions`` and ``columns``.
    """
    seconds = gpu_seconds(world)
    return {name: (work / ON_H200[name][0], moved / ON_H200[name][1]) for name, (work, moved) in seconds.items()}


def gpu_seconds(world: World) -> dict[str, tuple[float, ...]]:
    """Return the slowest PE's seconds of each GPU operator on the probe's graph at ``GPU_WIDTHS`` (collective)."""
    compile_ahead(world, [build_of(name, 32) for name in ON_H200])
    generator = np.random.default_rng(2026)  # all GPUs need the same graph, because results are compared
    rows = np.arange(GPU_ROWS)[:, None]
    columns = (rows + generator.integers(-NEAR, NEAR, (GPU_ROWS, GPU_DEGREE))) % GPU_ROWS
    columns[:, ::ANYWHERE] = generator.integers(0, GPU_ROWS, columns[:, ::ANYWHERE].shape)
    indices = world.upload(np.sort(columns, axis=1).astype(np.int32).reshape(-1))
    bounds = np.arange(0, GPU_ROWS * GPU_DEGREE + 1, GPU_DEGREE, dtype=np.int64)
    starts = np.arange(0, GPU_ROWS * GPU_DEGREE, GPU_PS, dtype=np.int64)
    indptr, owners = world.upload(bounds), world.upload(starts // GPU_DEGREE)
    first, last = world.upload(starts), world.upload(starts + GPU_PS)
    actions: list[Callable[[], object]] = []
    operators: Any = world.operators
    for dim in GPU_WIDTHS:
        b, c = (world.upload(np.ones((GPU_ROWS, dim), np.float32)) for _ in range(2))
        actions += [
            partial(operators.spmm_pieces, indptr, indices, None, b, c, False),  # the kernel that rates were fitted to
            partial(world.operators.spmm_partitions, owners, first, last, indices, None, b, c),
            partial(world.operators.spmm_columns, indptr, indices, None, b, c),
        ]
    taken = np.max(world.gather(_rounds(world, actions)), axis=0).reshape(len(GPU_WIDTHS), len(ON_H200))
    return {name: tuple(map(float, taken[:, place])) for place, name in enumerate(ON_H200)}


def _rounds(world: World, actions: list[Callable[[], object]]) -> list[float]:
    """Return the smallest seconds of each action on all PEs at once (collective).

    Each round runs every action once, so that a temporary disturbance does not slow down a single action.
    """
    clock, least = world.clock(), [float("inf")] * len(actions)
    for number in range(REPEATS + 1):
        for place, action in enumerate(actions):
            world.barrier()
            clock.start()
            action()
            seconds = clock.stop()
            if number:  # the first round warms up
                least[place] = min(least[place], seconds)
    return least


def _graphs(room: _Room) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield row pointers, columns and width of each sample; columns are new each time, to miss the caches."""
    for rows, degree in ((8, 1), *((ROWS, degree) for degree in DEGREES)):
        for dim in WIDTHS:
            indices = room.generator.integers(0, TABLE, rows * degree).astype(np.int32)
            yield np.arange(0, rows * degree + 1, degree, dtype=np.int64), indices, dim


Probe = tuple[Callable[[], object], tuple[float, ...]]


class _Room:
    """Matrices shared by all probes, by number of columns."""

    def __init__(self, world: World) -> None:
        self.operators = world.operators
        self.generator = np.random.default_rng(world_seed(world))
        self._read = {dim: self.generator.random((TABLE, dim), np.float32) for dim in WIDTHS}
        self._written = {dim: np.ones((TABLE, dim), np.float32) for dim in WIDTHS}
        self._summed = {dim: world.operators.accumulator(TABLE, dim) for dim in WIDTHS}
        for sums in self._summed.values():
            sums[...] = 0

    def read(self, rows: int, dim: int) -> np.ndarray:
        """Return a float32 [rows, dim] matrix to read."""
        return self._read[dim][:rows]

    def sums(self, rows: int, dim: int) -> np.ndarray:
        """Return an accumulator [rows, dim] at a random place, to miss the caches."""
        return self._part(self._summed[dim], rows)

    def result(self, rows: int, dim: int) -> np.ndarray:
        """Return a float32 [rows, dim] matrix to write, at a random place."""
        return self._part(self._written[dim], rows)

    def _part(self, matrix: np.ndarray, rows: int) -> np.ndarray:
        first = int(self.generator.integers(0, TABLE - rows + 1))
        return matrix[first : first + rows]


def _rows(room: _Room, indptr: np.ndarray, indices: np.ndarray, dim: int) -> Probe:
    rows = len(indptr) - 1
    source, sums = room.read(TABLE, dim), room.sums(rows, dim)
    return (
        lambda: room.operators.spmm_rows(indptr, indices, None, source, sums, False),
        terms(len(indices), rows, 4 * dim, 4 * dim),
    )


def _partitions(room: _Room, indptr: np.ndarray, indices: np.ndarray, dim: int) -> Probe:
    rows = len(indptr) - 1
    source, sums, owners = room.read(TABLE, dim), room.sums(rows, dim), np.arange(rows)
    return (
        lambda: room.operators.spmm_partitions(owners, indptr[:-1], indptr[1:], indices, None, source, sums),
        terms(len(indices), rows, 4 * dim, 4 * dim),
    )


def _columns(room: _Room, indptr: np.ndarray, indices: np.ndarray, dim: int) -> Probe:
    columns = len(indptr) - 1
    source, sums = room.read(columns, dim), room.sums(TABLE, dim)
    return (
        lambda: room.operators.spmm_columns(indptr, indices, None, source, sums),
        terms(len(indices), columns, 4 * dim, 4 * dim),
    )


def _finish(room: _Room, indptr: np.ndarray, indices: np.ndarray, dim: int) -> Probe:
    rows = len(indptr) - 1
    result, sums = room.result(rows, dim), room.sums(rows, dim)
    return lambda: room.operators.finish(sums, result), terms(0, rows, 0, 4 * dim)


def _packed(room: _Room, indptr: np.ndarray, indices: np.ndarray, dim: int) -> Probe:
    rows = min(len(indptr) - 1, PACKED)
    source, result, chosen = room.read(TABLE, dim), room.result(rows, dim), indices[:rows]
    words, ids, draws = np.empty((rows, wire.words(dim, BITS)), np.uint32), np.arange(rows), Draws(0, 0, 0)

    def there_and_back() -> None:
        room.operators.pack_rows(source, chosen, ids, draws, BITS, words)
        room.operators.unpack_rows(words, BITS, result)

    return there_and_back, terms(0, rows, 0, 4 * dim)


_PROBES = {"rows": _rows, "partitions": _partitions, "columns": _columns, "finish": _finish, "packed": _packed}
