"""On GPUs the rows of embeddings are padded, but where whole blocks of them are sent; on CPUs one follows the other."""

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.strict import StrictWorld

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated
from mgg.kernel.bf16 import ELEMENTS
from mgg.kernel.pitch import row_pitch

WORLDS = {"host": lambda world: world, "device": StrictWorld}
DIM = 41
CASES = [(name, dtype) for name, plan in all_techniques().items() for dtype in plan.dtypes]


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_rows_of_inputs(name, dtype, kind, tmp_path):
    plan, pes = all_techniques()[name], 1 if all_techniques()[name].single_pe else 2
    folder = make_layout(tmp_path, random_csr(60, 300), pes)

    def distance(world):
        plan = prepare(name, WORLDS[kind](world), layout.load(folder, world.rank), "forward", DIM, dtype=dtype)
        given = plan.input(DIM)
        found = given.strides[0] / given.dtype.itemsize
        plan.close()
        return found

    padded = kind == "device" and plan.pitched
    expected = row_pitch(DIM, np.dtype(ELEMENTS[dtype]).itemsize) if padded else DIM
    assert expected == {True: 44 if dtype == "fp32" else 48, False: 41}[padded]
    assert simulated.run(pes, distance) == [expected] * pes


def test_blocks_that_are_sent_are_not_padded():
    assert {name for name, plan in all_techniques().items() if not plan.pitched} == {
        "broadcast", "broadcast_pipelined", "features", "ring", "zero_copy"
    }  # fmt: skip
