"""kernels/lookup/bags.cu, compiled for the host: every row of a bag is added once, and only remote ones are copied."""

import ctypes

import numpy as np
import pytest
from support.devices.on_host import build, launch

pytestmark = pytest.mark.slow  # a compiler works for most of it

PES, RANK, BAGS = 3, 1, 9
#: Lanes a row and floats a load; columns that end within a tile, and two tiles.
SHAPES = [(4, 1, 3), (8, 2, 30), (16, 4, 64), (32, 4, 250)]


@pytest.fixture(scope="module")
def kernels():
    library = build("bags")
    library.host_copied.restype = ctypes.c_long
    return library


@pytest.mark.parametrize(("lanes", "vector", "columns"), SHAPES)
@pytest.mark.parametrize("size", [1, 26, 70])
def test_bags_match_float64(kernels, lanes, vector, columns, size):
    """Bags of a row, of Criteo's 26, and of more than two windows and more rows than shared memory has room for."""
    rng = np.random.default_rng(size)
    stride = -(-columns // 4) * 4
    tables = [aligned(rng, 40, columns, stride) for _ in range(PES)]
    rows = np.stack([table[:, :columns] for table in tables], axis=1).reshape(-1, columns).astype(np.float64)
    ids = rng.integers(0, 40 * PES, (BAGS, size)).astype(np.int32)
    ids[0] = ids[0] // PES * PES + RANK  # nothing is remote
    ids[1] = ids[1] // PES * PES  # everything is
    addresses = np.array([table.ctypes.data for table in tables], np.uint64)
    grid = -(-BAGS // 4), -(-columns // (lanes * vector))
    copies = addresses, np.int32(PES), np.int32(RANK), np.int32(stride)
    remote, tail = int((ids % PES != RANK).sum()), (np.int32(columns + 1), np.int32(0), np.int32(columns))
    # The rows of this PE in place, the others of one more matrix.
    places = np.where(ids % PES == RANK, ids // PES, ~ids).astype(np.int32)
    other = aligned(rng, 40 * PES, columns, stride)
    other[:, :columns] = rows
    matrices = tables[RANK], np.int32(stride), other, np.int32(stride)
    kernels.host_copied()
    for name, numbers, given in (
        ("lookup_pool", places, matrices), ("lookup_direct", ids, copies), ("lookup_mgg", ids, copies)
    ):  # fmt: skip
        out = np.full((BAGS, columns + 1), np.nan, np.float32)
        launch(
            kernels, f"{name}_{lanes}_{vector}", grid, 128, numbers, np.int64(BAGS), np.int32(size), *given, out, *tail
        )
        scale = np.abs(rows[ids]).sum(axis=1)
        assert (abs(out[:, :columns] - rows[ids].sum(axis=1)) / scale).max() < 1e-6, name
        assert np.isnan(out[:, columns]).all(), name  # what pads the result stays as it was
        # Of the last columns as much as lanes load at once.
        copied = 4 * vector * -(-columns // vector) * remote if name == "lookup_mgg" else 0
        assert kernels.host_copied() == copied, name


@pytest.mark.parametrize("count", [1, 33, 300])
def test_ids_are_grouped_by_owner_without_repeats(kernels, count):
    """Each remote id is asked for once, at the place where its row is expected; nothing else is written."""
    ids = np.random.default_rng(count).integers(0, 40 * PES, count).astype(np.int32)
    numbers, places = np.full((PES, count), -7, np.int32), np.full(count, -7, np.int32)
    counts = np.zeros(PES, np.int32)
    sizes = np.int32(count), np.int32(PES), np.int32(RANK)
    launch(kernels, "lookup_group", (-(-count // 128), 1), 128, ids, *sizes, numbers, counts, places)
    remote = ids % PES != RANK
    assert counts.tolist() == [int((remote & (ids % PES == pe)).sum()) for pe in range(PES)]
    assert np.array_equal(places[~remote], ids[~remote] // PES)
    slots = ~places[remote]
    assert np.array_equal(slots // count, ids[remote] % PES)
    assert np.array_equal(numbers.reshape(-1)[slots], ids[remote] // PES)
    assert sorted(slots) == [pe * count + slot for pe in range(PES) for slot in range(counts[pe])]
    assert (np.delete(numbers, slots) == -7).all()


def aligned(rng, height, columns, stride):
    """Rows that are aligned to 16 bytes; what pads them is no number."""
    space = np.full(height * stride + 4, np.nan, np.float32)
    first = -space.ctypes.data % 16 // 4
    made = space[first : first + height * stride].reshape(height, stride)
    made[:, :columns] = rng.uniform(-1, 1, (height, columns))
    return made
