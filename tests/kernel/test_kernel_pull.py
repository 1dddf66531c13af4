"""The halo is pulled row by row, and told of chunk by chunk: kernels/aggregate/pull.cu, compiled for the host."""

import ctypes

import numpy as np
import pytest
from support.devices.on_host import build, launch

THREADS = 64
TYPES = {"fp32": np.float32, "bf16": np.uint16}
#: Columns, elements from row to row, elements a load, lanes a row.
SHAPES = {
    "fp32": [(1, 1, 1, 1), (3, 3, 1, 4), (6, 6, 2, 4), (64, 64, 4, 16), (130, 132, 4, 32), (602, 604, 4, 32)],
    "bf16": [(1, 1, 1, 1), (5, 6, 2, 4), (64, 64, 8, 8), (130, 136, 8, 32), (300, 304, 8, 32)],
}


@pytest.fixture(scope="module", params=TYPES)
def built(request):
    """The type of embeddings and the library of kernels for it."""
    define = "#define MGG_BF16 1" if request.param == "bf16" else ""
    library = build("pull", define)
    library.host_copied.restype = ctypes.c_long
    return request.param, library


@pytest.fixture(autouse=True)
def forgetful(built):
    """After a test nobody is told any more, and nothing has been copied."""
    yield
    built[1].host_copied()
    built[1].host_tell(None)
    built[1].host_tell_start(None)


class Job:
    """PE 1 of three, and what it pulls from the others."""

    def __init__(self, dtype, stride, halo, chunks=5):
        rng = np.random.default_rng(halo)
        self.rank, self.size, self.first = 1, 3, 70
        height = self.first + halo
        kind = TYPES[dtype]
        self.matrices = [
            rng.integers(1, 2**15, height * stride + 8).astype(kind)[:-8].reshape(height, stride) for _ in range(3)
        ]
        owners = rng.choice([0, 2], halo).astype(np.uint64)
        rows = rng.integers(0, self.first, halo).astype(np.uint64)
        self.expected = [self.matrices[owner][row].copy() for owner, row in zip(owners, rows, strict=True)]
        self.sources = np.append(owners << np.uint64(48) | rows, [0]).astype(np.uint64)  # never empty
        self.chunk = -(-max(1, -(-halo // chunks)) // 32) * 32
        self.halo = halo
        self.arrived = np.zeros(-(-halo // self.chunk) + 2, np.int32)
        self.flags = [np.zeros(2 * self.size, np.int32) for _ in range(self.size)]
        self.numbers = np.zeros(2, np.uint32)
        self.rows_of = np.array([each.ctypes.data for each in self.matrices], np.uint64)
        self.flags_of = np.array([each.ctypes.data for each in self.flags], np.uint64)

    def pull(self, library, name, blocks, columns):
        launch(
            library, name, (blocks, 1), THREADS, self.sources, np.int32(self.halo), np.int32(self.chunk), self.arrived,
            self.rows_of, self.flags_of, np.int32(self.rank), np.int32(self.size), self.numbers,
            self.matrices[self.rank], np.int32(self.matrices[self.rank].shape[1]), np.int64(self.first),
            np.int32(columns),
        )  # fmt: skip


@pytest.mark.parametrize("halo", [0, 1, 33, 500])
@pytest.mark.parametrize("blocks", [1, 3])
def test_rows_are_pulled_and_chunks_announced(built, blocks, halo):
    dtype, library = built
    for columns, stride, vector, lanes in SHAPES[dtype]:
        job = Job(dtype, stride, halo)
        mine = job.matrices[job.rank]
        before, warps = mine.copy(), blocks * THREADS // 32
        raises_by_counter = np.zeros(len(job.arrived), int)

        def raised(
            counter, value, job=job, mine=mine, columns=columns, warps=warps, raises_by_counter=raises_by_counter
        ):
            number = (counter - job.arrived.ctypes.data) // 4
            raises_by_counter[number] += 1
            rows = range(number * job.chunk, min((number + 1) * job.chunk, job.halo))
            if value == (warps if number < len(job.arrived) - 1 else blocks) * (int(job.numbers[0]) + 1):
                assert number >= len(job.arrived) - 2 or all(
                    np.array_equal(mine[job.first + row, :columns], job.expected[row][:columns]) for row in rows
                )
                raises_by_counter[number] += 1000

        hook = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int)(raised)
        library.host_tell(hook)
        for turn in (1, 2):
            mine[job.first :] = 0
            # The others have come as far, and have read this PE's rows.
            job.flags[job.rank][:] = turn
            job.pull(library, f"halo_pull_{lanes}_{vector}", blocks, columns)
            assert job.numbers.tolist() == [turn, turn]
            # Each row crosses once, in whole loads: with what pads it to one.
            assert library.host_copied() == halo * -(-columns // vector) * vector * mine.itemsize
            for pe in (0, 2):
                assert job.flags[pe][job.rank] == job.flags[pe][job.size + job.rank] == turn
            raises = [warps] * (len(raises_by_counter) - 1) + [blocks]
            assert job.arrived.tolist() == [turn * count for count in raises]
            assert raises_by_counter.tolist() == [turn * (1000 + count) for count in raises]
            job.flags[job.rank][:] = 0
            for row, expected in enumerate(job.expected):
                assert np.array_equal(mine[job.first + row, :columns], expected[:columns])
        assert np.array_equal(mine[: job.first], before[: job.first])


@pytest.mark.parametrize("blocks", [1, 3])
def test_dependent_launch_waits_for_all_pulling_blocks(built, blocks):
    dtype, library = built
    job, arrivals = Job(dtype, 64, 100), []
    hook = ctypes.CFUNCTYPE(None)(lambda: arrivals.append((int(job.numbers[1]), int(job.arrived[-1]))))
    library.host_tell_start(hook)
    for turn in (1, 2):
        job.flags[job.rank][:] = turn
        arrivals.clear()
        job.pull(library, "halo_pull_16_4", blocks, 64)
        # By every thread, after its block was counted; one block comes after the other here.
        assert arrivals == [(turn, (turn - 1) * blocks + block + 1) for block in range(blocks) for _ in range(THREADS)]
