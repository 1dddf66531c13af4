"""halo with rows in few bits between workgroups: products, bytes, the check's bound, costs and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.devices.strict import HostsWorld
from support.graphs import expected_product, make_layout, matrix, random_csr, scaled_error
from support.graphs.crossings import crossings
from support.programs.spmm_program import inputs
from support.ranks import succeeded
from support.records.measured import record

from mgg import layout
from mgg.aggregate import parse_options, prepare
from mgg.aggregate.auto import Forecast, split_of
from mgg.backend import simulated
from mgg.cost.machines import H200
from mgg.errors import CheckError, InputError
from mgg.kernel import cpu, wire
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.random import Draws

FAKE = str(Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py")
NODES, DIM = 120, 41
CSR = random_csr(NODES, 1_500, weighted=True)
BITS = {"bf16": 16, "int8": 8, "int4": 4, "int2": 2}
#: The seed of numbers that are drawn outside of trainings.
SEED = 0x77697265


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_layout(tmp_path_factory.mktemp("wire"), CSR, 4)


def product(world, folder, options, direction="forward", dtype="fp32", dim=DIM):
    """Two equal products, and the bytes put in the second."""
    part = layout.load(folder, world.rank)
    plan = prepare("halo", world, part, direction, 48, options, dtype)
    plan.write(dim, world.upload(inputs(part.node_ids, dim)))
    first, before = world.download(plan(dim)), world.counters.bytes.get("put", 0)
    second = world.download(plan(dim))
    assert first.tobytes() == second.tobytes()
    plan.close()
    return first, world.counters.bytes["put"] - before


def crossed(rows, kind, direction):
    """What other workgroups see of ``rows`` of all nodes."""
    packed = np.empty((len(rows), wire.words(rows.shape[1], BITS[kind])), np.uint32)
    nodes, found = np.arange(len(rows)), np.empty_like(rows)
    cpu.pack_rows(rows, nodes, nodes, Draws(SEED, 0, int(direction == "transpose")), BITS[kind], packed)
    cpu.unpack_rows(packed, BITS[kind], found)
    return found


@pytest.mark.parametrize("world_of", ["ranks", "hosts"])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("direction", ["forward", "transpose"])
def test_only_rows_between_workgroups_are_packed(folder, direction, members, world_of):
    a = matrix(CSR) if direction == "forward" else matrix(CSR).T.tocsr()
    group = np.arange(NODES) // (NODES // 4 * members)
    near = a.multiply(group[:, None] == group[None, :]).tocsr()
    for kind, dtype in (*((kind, "fp32") for kind in BITS), ("int8", "bf16")):
        rows = inputs(np.arange(NODES), DIM)
        rows = from_bf16(to_bf16(rows)) if dtype == "bf16" else rows
        other = crossed(rows, kind, direction)
        # What is unpacked is an embedding again.
        other = from_bf16(to_bf16(other)) if dtype == "bf16" else other
        expected = near @ rows.astype(np.float64) + (a - near) @ other.astype(np.float64)

        def program(raw):
            world = HostsWorld(raw, members) if world_of == "hosts" else raw
            return product(world, folder, {"workgroup": members, "wire": kind}, direction, dtype)  # noqa: B023

        found, put = zip(*simulated.run(4, program), strict=True)
        assert scaled_error(np.concatenate(found), expected, abs(a) @ abs(rows)) <= 1e-6, (kind, dtype)
        between = crossings(CSR, 4, members, direction)[0]
        assert sum(put) == 4 * wire.words(DIM, BITS[kind]) * between


@pytest.mark.parametrize("split", ["rows", "cover", "columns"])
@pytest.mark.parametrize("direction", ["forward", "transpose"])
def test_tolerance_follows_from_the_scales(folder, split, direction, monkeypatch):
    def product(kind):
        options = {"workgroup": 2, "split": split, "wire": kind}
        return record(folder, 4, "halo", 64, options=options, direction=direction)

    exact, *packed = (product(kind) for kind in (None, *BITS))
    assert exact.tolerance == 1e-6 and exact.options["wire"] is None
    for kind, found in zip(BITS, packed, strict=True):
        assert 1e-6 < found.error <= found.tolerance < 1.2 and found.options["wire"] == kind
        assert found.bytes_between / exact.bytes_between == wire.words(64, BITS[kind]) / 64
    assert packed[1].tolerance < packed[2].tolerance < packed[3].tolerance
    # Two steps too far, which a tolerance for all entries would let pass where other rows are larger.
    unpack = cpu.unpack_rows

    def off(words, bits, out):
        unpack(words, bits, out)
        out[:, 0] += 2 * from_bf16(words[:, 0] & 0xFFFF)

    monkeypatch.setattr(cpu, "unpack_rows", off)
    with pytest.raises(CheckError, match="differs from the float64 product"):
        product("int8")


def test_rounding_bound_of_a_sum_is_at_most_the_sum_of_bounds():
    """What the bound of products rests on where sums of rows cross."""
    rng = np.random.default_rng(0)
    for bits in (2, 4, 8):
        rows, weights = rng.normal(size=(9, 32)), rng.normal(size=9)
        parts = [wire.step_bound(np.ptp(row), np.abs(row).max(), bits) for row in rows]
        whole = weights @ rows
        assert wire.step_bound(np.ptp(whole), np.abs(whole).max(), bits) <= np.abs(weights) @ parts


def test_cost_model_counts_packed_bytes(folder):
    whole = simulated.run(4, lambda world: split_of(world, layout.load(folder, world.rank), "forward"))[0]
    split = replace(whole, members=2, fused_rows=np.full(2, 10**6), outside_rows=10**6)
    said = Forecast(H200, split)
    slow = H200.links.links[H200.links.network]
    plain, few = (
        said.cost("halo", 64, parse_options("halo", {"wire": kind} if kind else {})) for kind in (None, "int8")
    )
    rows = max(split.fused_rows_a_pe) * max(1.0, 2 / H200.links.ports)
    assert plain.transfer - few.transfer == pytest.approx(rows * (256 - 72) / slow.bandwidth)
    assert few.arithmetic > plain.arithmetic
    assert said.pick("halo", 64).wire is None  # nothing is rounded unless somebody asks for it


def test_wider_wire_type_is_refused_and_one_workgroup_reported(folder, caplog):
    def program(world, options, dtype):
        return product(world, folder, options, dtype=dtype)

    with pytest.raises(InputError, match="option wire: fp32 is wider than embeddings, which are bf16: leave it out"):
        simulated.run(4, lambda world: program(world, {"workgroup": 1, "wire": "fp32"}, "bf16"))
    with pytest.raises(InputError, match=r"option wire: .*'fp32', 'bf16', 'int8', 'int4' or 'int2'"):
        parse_options("halo", {"wire": "int3"})

    assert record(folder, 4, "halo", 4, options={"workgroup": 4, "wire": "int8"}).tolerance == 1e-6
    warnings = [each.getMessage() for each in caplog.records if "wire" in each.getMessage()]
    assert warnings == ["technique halo: option wire changes nothing: all PEs are one workgroup"]


ON_RANKS = """
import sys
import numpy as np
from mgg import layout
from mgg.aggregate import prepare
from mgg.backend import launch
from support.programs.spmm_program import inputs

backend, folder, out = sys.argv[-3:]

def program(world):
    part = layout.load(folder, world.rank)
    for direction in ("forward", "transpose"):
        plan = prepare("halo", world, part, direction, 48, {"workgroup": 2, "wire": "int4"})
        plan.write(41, world.upload(inputs(part.node_ids, 41)))
        np.save(f"{out}/{direction}-{world.rank}.npy", world.download(plan(41)))
        plan.close()

launch(backend, lambda: 4, program)
"""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["mpi", "nvshmem"])
def test_ranks_and_simulated_gpus_round_alike(folder, tmp_path, backend):
    """A code that were another one would be off by a step: products agree to their own rounding."""
    fake = [FAKE] if backend == "nvshmem" else []
    hosts = {"FAKE_PES_A_HOST": "2", "FAKE_GPUS": "2"} if backend == "nvshmem" else {"MGG_MPI_SHARED_MEMORY": "0"}
    succeeded(4, [*fake, "-c", ON_RANKS, backend, str(folder), str(tmp_path)], **hosts)
    for direction in ("forward", "transpose"):
        a = matrix(CSR) if direction == "forward" else matrix(CSR).T.tocsr()
        expected = simulated.run(
            4,
            lambda world: product(world, folder, {"workgroup": 2, "wire": "int4"}, direction)[0],  # noqa: B023
        )
        found = np.concatenate([np.load(tmp_path / f"{direction}-{pe}.npy") for pe in range(4)])
        scale = expected_product(a, inputs(np.arange(NODES), DIM))[1]
        assert scaled_error(found, np.concatenate(expected).astype(np.float64), scale) <= 1e-6
