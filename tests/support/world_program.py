"""An SPMD program that uses every method of World; ``python world_program.py`` runs it on MPI ranks."""

from __future__ import annotations

import numpy as np

from mgg.backend import World, job_size, launch


def program(world: World) -> str:
    """Returns ``ok``; asserts what each method promises."""
    rank, size = world.rank, world.size
    right, left = (rank + 1) % size, (rank - 1) % size
    array = world.symmetric(60)
    rows = array.view(10, 6)
    assert not array.local.any()
    rows.local[:] = 100 * rank + np.arange(60).reshape(10, 6)
    world.barrier()
    _gets(world, rows, right)
    world.barrier()
    _puts(world, array.view(15, 4), right, left)
    _broadcast(world)
    _reduce(world)
    world.free(array)
    # The next array does not remember the last one's content.
    again = world.symmetric(60)
    assert not again.local.any()
    return "ok"


def _gets(world: World, rows, right: int) -> None:
    for wanted in (np.array([9, 0, 9, 4], np.int32), np.array([], np.int32), np.array([3], np.int64)):
        out = np.full((len(wanted), 6), np.nan, np.float32)
        before = world.counters.bytes.get("get", 0)
        world.get_rows(rows, right, wanted, out)
        assert np.array_equal(out, 100 * right + np.arange(60).reshape(10, 6)[wanted])
        moved = world.counters.bytes.get("get", 0) - before
        assert moved == (len(wanted) * 6 * 4 if right != world.rank else 0)


def _puts(world: World, rows, right: int, left: int) -> None:
    for round_ in range(3):
        world.put_rows(rows, right, 2, np.full((5, 4), 10 * world.rank + round_, np.float32))
        world.put_rows(rows, right, 0, np.empty((0, 4), np.float32))
        world.signal(right)
        world.wait_signal(left)
        assert (rows.local[2:7] == 10 * left + round_).all()
        world.barrier()
    assert world.counters.bytes.get("put", 0) == (3 * 5 * 4 * 4 if right != world.rank else 0)


def _broadcast(world: World) -> None:
    for root in range(world.size):
        values = np.full((7, 3), world.rank, np.float32)
        world.broadcast(values, root)
        assert (values == root).all()
    assert world.counters.bytes.get("broadcast", 0) == (world.size - 1) * 7 * 3 * 4


def _reduce(world: World) -> None:
    for dtype in (np.float32, np.float64, np.int64):
        total = world.all_reduce(np.array([[world.rank, 1]], dtype))
        assert total.dtype == dtype and total.tolist() == [[world.size * (world.size - 1) / 2, world.size]]
    assert world.gather({"rank": world.rank}) == [{"rank": rank} for rank in range(world.size)]


if __name__ == "__main__":
    print(launch("mpi", job_size, program)[0], flush=True)
