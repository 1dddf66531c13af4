"""An SPMD program that checks every method of World; ``python world_program.py [BACKEND]`` runs it on MPI ranks."""

from __future__ import annotations

import os
import sys

import numpy as np

from mgg.backend import World, job_fields, job_size, launch


def program(world: World) -> str:
    """Assert what each method documents; returns ``ok``."""
    rank, size = world.rank, world.size
    right, left = (rank + 1) % size, (rank - 1) % size
    array = world.symmetric(60)
    rows = array.view(10, 6)
    assert not world.download(array.local).any()
    rows.local[:] = world.upload(_content(rank))
    world.barrier()
    _gets(world, rows, right)
    world.barrier()
    _puts(world, array.view(15, 4), right, left)
    _sends(world, right, left)
    _broadcast(world)
    _shift(world)
    _team(world)
    _exchange(world)
    _side_stream(world)
    _reduce(world)
    _clock(world)
    _usage(world)
    world.free(array)
    # A new array is zero, whatever the freed one held; arrays may be empty.
    again, empty = world.symmetric(60), world.symmetric(0)
    assert not world.download(again.local).any() and len(empty.local) == 0
    return "ok"


def _content(rank: int) -> np.ndarray:
    return (100 * rank + np.arange(60).reshape(10, 6)).astype(np.float32)


def _full(world: World, shape: tuple[int, int], value: float):
    return world.upload(np.full(shape, value, np.float32))


def _gets(world: World, rows, right: int) -> None:
    for wanted in (np.array([9, 0, 9, 4], np.int32), np.array([], np.int32), np.array([3], np.int64)):
        out = _full(world, (len(wanted), 6), np.nan)
        before = world.counters.bytes.get("get", 0)
        world.get_rows(rows, right, world.upload(wanted), out)
        assert np.array_equal(world.download(out), _content(right)[wanted])
        moved = world.counters.bytes.get("get", 0) - before
        assert moved == (len(wanted) * 6 * 4 if right != world.rank else 0)
    for first, last in ((2, 7), (3, 3), (9, 10)):
        out = _full(world, (last - first, 6), np.nan)
        world.get_rows(rows, right, range(first, last), out)
        assert np.array_equal(world.download(out), _content(right)[first:last])
    before = dict(world.counters.bytes)
    world.get_rows(rows, right, world.upload(np.array([2, 5])), _full(world, (2, 6), 0), "get_between")
    found = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
    assert {name: count for name, count in found.items() if count} == (
        {"get_between": 2 * 6 * 4} if right != world.rank else {}
    )


def _puts(world: World, rows, right: int, left: int) -> None:
    for round_ in range(3):
        world.put_rows(rows, right, 2, _full(world, (5, 4), 10 * world.rank + round_))
        world.put_rows(rows, right, 0, _full(world, (0, 4), 0))
        world.signal(right)
        world.wait_signal(left)
        assert (world.download(rows.local[2:7]) == 10 * left + round_).all()
        world.barrier()
    assert world.counters.bytes.get("put", 0) == (3 * 5 * 4 * 4 if right != world.rank else 0)


def _sends(world: World, right: int, left: int) -> None:
    """Rows put into arrays that peers cannot address, as float32 and as 2-byte values that begin between two floats."""
    alone, source = world.symmetric(30, [world.rank]), world.symmetric(30, [world.rank])
    assert list(alone.peers) == [world.rank] and set(alone.peers) <= set(world.addressable)
    for columns, dtype in ((4, np.float32), (3, np.uint16)):
        rows, sent = alone.view(7, columns, dtype), source.view(7, columns, dtype)
        before = world.counters.bytes.get("put", 0)
        for round_ in range(3):
            sent.local[:5] = world.upload(np.full((5, columns), 10 * world.rank + round_, dtype))
            world.put_rows(rows, right, 1, sent.local[:5])
            world.put_rows(rows, right, 0, sent.local[:0])
            world.signal(right)
            world.wait_signal(left)
            found = world.download(rows.local)
            assert (found[1:6] == 10 * left + round_).all() and not found[0].any() and not found[6].any()
            world.barrier()
        wanted, out = world.upload(np.array([2, 1])), sent.local[5:7]
        try:
            world.get_rows(rows, right, wanted, out)
            assert not world.gpu or right == world.rank, "fetched without an address"
            assert (world.download(out) == 10 * world.rank + 2).all()
        except ValueError as error:
            assert world.gpu and f"does not address the memory of PE {right}" in str(error)
        world.barrier()
        moved = world.counters.bytes.get("put", 0) - before
        assert moved == (3 * 5 * columns * np.dtype(dtype).itemsize if right != world.rank else 0)
        rows.local[:] = world.upload(np.zeros((7, columns), dtype))
        world.barrier()
    world.free(source)
    world.free(alone)


def _broadcast(world: World) -> None:
    source = world.symmetric(30).view(10, 3)
    source.local[:] = _full(world, (10, 3), world.rank)
    for root in range(world.size):
        host = np.full((7, 3), world.rank, np.float32)
        world.broadcast(host, root)
        assert (host == root).all()
        empty, values = _full(world, (0, 3), 0), source.local[:7]
        world.broadcast(empty, root)
        if world.rank != root:
            values = _full(world, (7, 3), world.rank)
        world.broadcast(values, root)
        assert (world.download(values) == root).all()
    world.barrier()
    assert world.counters.bytes.get("broadcast", 0) == 2 * (world.size - 1) * 7 * 3 * 4


def _shift(world: World) -> None:
    """PE q sends q rows, also to itself, and PE 0 sends none."""
    rank, size = world.rank, world.size
    expected = 0
    for step in (1, size - 1, size + 1, 0, -1):
        source = (rank - step) % size
        received = _full(world, (source, 2), np.nan)
        world.shift(_full(world, (rank, 2), rank), received, step)
        assert (world.download(received) == source).all()
        expected += source * 2 * 4 if source != rank else 0
    assert world.counters.bytes.get("shift", 0) == expected


def _team(world: World) -> None:
    """Teams of even PEs and of odd ones in reverse order; of single PEs; of all PEs."""
    rank, size = world.rank, world.size
    mates = [pe for pe in range(size) if pe % 2 == rank % 2][:: 1 if rank % 2 == 0 else -1]
    for pes in (mates, [rank], list(range(size)), mates):
        team, others = world.team(pes), len(pes) - 1
        assert team.pes == tuple(pes)
        before = dict(world.counters.bytes)
        for root in pes:
            values = _full(world, (3, 2), rank)
            team.broadcast(values, root)
            assert (world.download(values) == root).all()
        gathered = _full(world, (len(pes), 3, 2), np.nan)
        team.all_gather(_full(world, (3, 2), rank), gathered)
        assert np.array_equal(world.download(gathered)[:, 1, 1], pes)
        parts = world.upload(np.array([[[rank, pe, 1.0]] for pe in pes], np.float32))
        total = _full(world, (1, 3), np.nan)
        team.reduce_scatter(parts, total)
        assert world.download(total).tolist() == [[sum(pes), rank * len(pes), len(pes)]]
        arrived, place = _full(world, (3, 2), np.nan), pes.index(rank)
        team.shift(_full(world, (3, 2), rank), arrived, 1)
        assert (world.download(arrived) == pes[place - 1]).all()
        moved = {name: count - before.get(name, 0) for name, count in world.counters.bytes.items()}
        found = [moved.get(name, 0) for name in ("broadcast", "all_gather", "reduce_scatter", "shift")]
        assert found == [others * 24, others * 24, others * 12, 24 if others else 0]


def _exchange(world: World) -> None:
    received = world.exchange([(world.rank, np.full(pe, world.rank)) for pe in range(world.size)])
    assert [sender for sender, _ in received] == list(range(world.size))
    for sender, values in received:
        assert len(values) == world.rank and (values == sender).all()


def _side_stream(world: World) -> None:
    """Work on the side stream sees earlier work, and its results are there after ``wait``."""
    values = _full(world, (4, 2), world.rank)
    for root in range(world.size):
        with world.side_stream() as work:
            world.broadcast(values, root)
        work.wait()
        assert (world.download(values) == root).all()
        world.barrier()
        values[:] = _full(world, (4, 2), world.rank)


def _reduce(world: World) -> None:
    for dtype in (np.float32, np.float64, np.int64):
        values = np.array([[world.rank, 1]], dtype)
        on_device = world.download(world.all_reduce(world.upload(values)))
        for total in (world.all_reduce(values), on_device):
            assert total.dtype == dtype and total.tolist() == [[world.size * (world.size - 1) / 2, world.size]]
    for count, dtype in ((5, np.float32), (2**18 + 5, np.float32), (2**18 + 5, np.float64)):
        every = [np.random.default_rng(pe).random(count).astype(dtype) for pe in range(world.size)]
        expected = every[0].astype(np.float64)
        for values in every[1:]:  # in the order of ranks: another order rounds differently
            expected += values
        values = every[world.rank]
        for total in (world.all_reduce(values), world.download(world.all_reduce(world.upload(values)))):
            assert np.array_equal(total, expected.astype(dtype))
    for empty in (np.zeros((0, 3)), world.upload(np.zeros((0, 3)))):
        assert world.all_reduce(empty).shape == (0, 3)
    assert world.gather({"rank": world.rank}) == [{"rank": rank} for rank in range(world.size)]


def _clock(world: World) -> None:
    clock = world.clock()
    clock.start()
    world.barrier()
    assert 0 <= clock.stop() < 60


def _usage(world: World) -> None:
    """Memory is summed over all processes; a Python with NumPy and MPI takes more than 20 MiB."""
    processes = len(set(world.gather(os.getpid())))
    fields = job_fields(world)
    assert (fields["backend"], fields["pes"], fields["machine"].hosts) == (world.name, world.size, 1)
    assert world.gather(fields["used"]) == [fields["used"]] * world.size
    assert processes * 20 * 2**20 < fields["used"].memory and fields["used"].cpu_seconds > 0


if __name__ == "__main__":
    print(launch(sys.argv[1] if len(sys.argv) > 1 else "mpi", job_size, program)[0], flush=True)
