"""On GPUs the rows of embeddings are padded, but where whole blocks of them are sent; on CPUs one follows the other."""

import numpy as np
from support.devices.strict import StrictWorld
from support.graphs import make_layout, random_csr

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated
from mgg.kernel.bf16 import ELEMENTS
from mgg.kernel.pitch import row_pitch

DIM = 41


def test_input_rows_are_padded(tmp_path):
    folders = {pes: make_layout(tmp_path / str(pes), random_csr(60, 300), pes) for pes in (1, 2)}
    for name, plan in all_techniques().items():
        pes = 1 if plan.single_pe else 2

        def distance(world, world_of, dtype):
            made = prepare(name, world_of(world), layout.load(folders[pes], world.rank), "forward", DIM, dtype=dtype)  # noqa: B023
            given = made.input(DIM)
            made.close()
            return given.strides[0] / given.dtype.itemsize

        for dtype in plan.dtypes:
            for world_of, padded in ((lambda world: world, False), (StrictWorld, plan.pitched)):
                expected = row_pitch(DIM, np.dtype(ELEMENTS[dtype]).itemsize) if padded else DIM
                assert expected == {True: 44 if dtype == "fp32" else 48, False: 41}[padded]
                assert simulated.run(pes, lambda world: distance(world, world_of, dtype)) == [expected] * pes, name  # noqa: B023


def test_sent_blocks_are_not_padded():
    assert {name for name, plan in all_techniques().items() if not plan.pitched} == {
        "broadcast", "broadcast_pipelined", "features", "ring", "zero_copy"
    }  # fmt: skip
