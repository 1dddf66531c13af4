"""bfloat16 embeddings: the product of the rounded inputs in float32, half the bytes; techniques that lack it say so."""

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout, random_csr
from support.measured import measure
from support.products import worst
from support.spmm_program import VARIANTS, products
from support.strict import StrictWorld

from mgg import layout
from mgg.aggregate import all_techniques, oracle, prepare
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.kernel.bf16 import from_bf16, to_bf16

ABLE = [name for name, plan in all_techniques().items() if "bf16" in plan.dtypes]
CASES = [(name, pes) for name in ABLE for pes in (1, 3) if pes == 1 or not all_techniques()[name].single_pe]


def test_these_take_bf16():
    assert ABLE == ["halo", "local"]


@pytest.mark.parametrize("world_of", [lambda world: world, StrictWorld], ids=["host", "device"])
@pytest.mark.parametrize(("technique", "pes"), CASES)
@pytest.mark.parametrize("graph", ["weighted", "empty rows", "more PEs than nodes"])
def test_the_product_is_that_of_the_rounded_inputs(tmp_path, graph, technique, pes, world_of):
    csr = awkward_graphs()[graph]
    folder = make_layout(tmp_path, csr, pes)
    rounded = from_bf16(to_bf16(oracle.embeddings(np.arange(csr.rows), 7))).astype(np.float64)
    expected = csr.to_scipy(np.float64) @ rounded

    def program(raw):
        world, part = world_of(raw), layout.load(folder, raw.rank)
        plan = prepare(technique, world, part, "forward", 9, dtype="bf16")
        plan.write(7, world.upload(oracle.embeddings(part.node_ids, 7)))
        found = world.download(plan(7))
        plan.close()
        return found

    found = np.concatenate(simulated.run(pes, program))
    assert found.dtype == np.float32 and np.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_half_the_bytes_and_another_tolerance(tmp_path):
    folder = make_layout(tmp_path, random_csr(300, 4_000), 3)

    def records(world, dtype):
        part = layout.load(folder, world.rank)
        protocol = {"direction": "forward", "warmup": 0, "iterations": 1, "check": True, "dtype": dtype}
        return measure(world, part, "halo", dims=[5], options={}, **protocol)[0]

    wide, narrow = (simulated.run(3, lambda world: records(world, dtype))[0] for dtype in ("fp32", "bf16"))  # noqa: B023
    assert narrow.bytes_wire * 2 == wide.bytes_wire == narrow.v_fc * 2 == wide.v_fc
    assert narrow.dtype == "bf16" and narrow.tolerance == 1e-2
    assert wide.error < 1e-6 < narrow.error < 1e-2


def test_techniques_without_it_say_so(tmp_path):
    folder = make_layout(tmp_path, random_csr(30, 100), 1)

    def program(world):
        with pytest.raises(InputError, match="technique mgg: takes no bf16 embeddings; those that do: halo, local"):
            prepare("mgg", world, layout.load(folder, 0), "forward", 4, dtype="bf16")

    simulated.run(1, program)


@pytest.mark.parametrize("pes", [1, 3, 4])
def test_the_variants_of_the_gpu_tests_have_each_of_them(tmp_path, pes):
    """In one workgroup of any number of PEs, too; arrays that are no NumPy arrays stand for a GPU's."""
    wanted = {"halo:bf16", "halo:1-bf16", *(["local:bf16"] if pes == 1 else []), *(["halo:2-bf16"] if pes == 4 else [])}
    csr, labels = random_csr(300, 4_000, weighted=True), [label for label in VARIANTS if label.endswith("bf16")]
    folder = make_layout(tmp_path, csr, pes)
    parts = simulated.run(pes, lambda world: products(StrictWorld(world), folder, [41, 128], only=labels))
    assert {key.split(" ")[0] for key in parts[0]} == wanted
    assert worst(csr, parts, "bf16") <= (1e-5,)
