"""Measure the time of a transfer by its size, row by row (fine) and at once (coarse), on this job's links.

Reproduces CoLa's table 4. By its footnote 2, fine is a get of a row of 32 floats by each warp, and coarse is one get
of all bytes that the host issues.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mgg.backend import World
from mgg.backend.machine.facts import job_fields
from mgg.cost.links import REPEATS, Probe, partners
from mgg.errors import InputError
from mgg.records.latency import Grain, LatencyRecord

#: Bytes of the transfers: 0.25 to 8 MiB, as in the paper.
SIZES = tuple(2**k for k in range(18, 24))
#: Seconds after which a transfer is not repeated again: a fine one over MPI may take seconds.
LONGEST = 2.0
#: Columns of a row (128 bytes), as in the paper.
COLUMNS = 32


def measure(world: World) -> list[LatencyRecord]:
    """Measure both grains over each class of links of this job (collective); the result is the same on every PE.

    Raises:
        InputError: the job has only one PE.
        MachineError: a GPU has too little free memory.
    """
    if world.size == 1:
        raise InputError(
            "links: --latency takes two PEs or more, this job has one: --pes 2, or mpiexec -n 2"
        ).on_every_pe()
    probe = Probe(world, max(SIZES))
    taken = {}
    for link, grain, size, action in _actions(world, probe):
        if size == min(SIZES):  # loads or compiles kernels
            action()
        taken[link, grain, size] = _taken(world, action)
    probe.close()
    fields = job_fields(world)
    return [
        LatencyRecord(
            link=link, grain=grain, bytes=size, row_bytes=4 * COLUMNS, seconds=seconds,
            median=statistics.median(seconds), **fields,
        )
        for (link, grain, size), seconds in taken.items()
    ]  # fmt: skip


def _taken(world: World, action: Callable[[], object]) -> list[float]:
    """Return the slowest PE's seconds of each repetition of ``action`` on all PEs at once (collective).

    The first repetition does not count, unless it alone takes longer than ``LONGEST``.
    """
    clock, seconds = world.clock(), list[float]()
    while len(seconds) <= REPEATS and sum(seconds) < LONGEST:
        world.barrier()
        clock.start()
        action()
        seconds.append(max(world.gather(clock.stop())))
    return seconds[1:] or seconds


def _actions(world: World, probe: Probe) -> Iterator[tuple[str, Grain, int, Callable[[], object]]]:
    """Yield class of link, grain, size and the transfer, in the same order on every PE."""
    near, far = partners(world, probe)
    gpu = bool(world.gpu)
    moves: list[tuple[str, Callable[[Grain, int], Callable[[], object]]]] = []
    if near is not None:
        moves.append(("nvlink" if gpu else "shared_memory", lambda grain, size: _near(world, probe, near, grain, size)))
    if far is not None:
        put = ("network", lambda grain, size: _put(world, probe, grain, size))
        moves.append(put if gpu else ("mpi", lambda grain, size: _get(world, probe, far, grain, size)))
    for link, move in moves:
        for size in SIZES:
            yield link, "fine", size, move("fine", size)
            yield link, "coarse", size, move("coarse", size)


def _views(probe: Probe, size: int) -> tuple[Any, Any, int]:
    """Return the other PE's rows, the buffer for them, and their number."""
    rows = size // (4 * COLUMNS)
    whole = max(SIZES) // (4 * COLUMNS)
    return probe.array.view(whole, COLUMNS), probe.out.reshape(whole, COLUMNS)[:rows], rows


def _near(world: World, probe: Probe, pe: int, grain: Grain, size: int) -> Callable[[], object]:
    """Return a transfer from memory that this PE addresses: rows as techniques fetch them, or one copy."""
    view, out, rows = _views(probe, size)
    copy = view.copy_of(pe)
    every = world.upload(np.arange(rows, dtype=np.int32))

    def all_at_once() -> None:
        out[:] = copy[:rows]

    return all_at_once if grain == "coarse" else lambda: world.get_rows(view, pe, every, out)


def _get(world: World, probe: Probe, pe: int, grain: Grain, size: int) -> Callable[[], object]:
    """Return a transfer by one-sided MPI gets, one per row or one in all; each get is waited for separately."""
    view, out, rows = _views(probe, size)
    every, step = np.arange(rows, dtype=np.int32), rows if grain == "coarse" else 1

    def move() -> None:
        for row in range(0, rows, step):
            world.get_rows(view, pe, every[row : row + step], out[row : row + step])

    return move


def _put(world: World, probe: Probe, grain: Grain, size: int) -> Callable[[], object]:
    """Return a transfer by GPU puts between hosts, one per row or one in all; only a final signal is awaited."""
    half, (view, _, rows) = world.size // 2, _views(probe, size)
    target, source = (world.rank + half) % world.size, (world.rank - half) % world.size
    step = rows if grain == "coarse" else 1

    def move() -> None:
        for row in range(0, rows, step):
            world.put_rows(view, target, row, view.local[row : row + step], alone=grain == "coarse")
        world.signal(target)
        world.wait_signal(source)

    return move
