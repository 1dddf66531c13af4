"""Rows fetched from other PEs and gradients given back, against the whole matrix."""

import numpy as np
import pytest
from support.devices.late import LateWorld
from support.devices.strict import StrictArrays, StrictWorld
from support.graphs import awkward_graphs, make_layout

from mgg import layout
from mgg.backend import launch
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.model.arrays import HostArrays
from mgg.model.halo import FetchedHalo, NoHalo
from mgg.model.halo.of_product import ProductHalo

GRAPHS = awkward_graphs()
WIDTH = 6


def positions(part):
    """The layout's position of each of this PE's rows and halo rows."""
    product = part.forward
    owners = np.repeat(np.arange(part.size), np.diff(product.halo_ptr))
    return np.concatenate([part.node_ids, part.bounds[owners] + product.halo_rows])


def by_product(technique, **options):
    def made(world, part, dtype, real):
        arrays = StrictArrays() if isinstance(world, StrictWorld) else HostArrays()
        return ProductHalo(world, part, technique, options, WIDTH, dtype, arrays)

    return made


#: What brings a halo, and whether each row comes once to each PE.
MADE = {
    "fetched": (lambda world, part, dtype, real: FetchedHalo(world, part, WIDTH, dtype, real), True),
    "mgg": (by_product("mgg"), True),
    "cola": (by_product("cola"), True),
    "halo in workgroups": (by_product("halo", workgroup=2), False),
    "ring": (by_product("ring"), False),
    "1.5D": (by_product("broadcast", replication=2), False),
}


def both_ways(world, part, x, columns, dtype, made, real):
    """What ``fetch`` brings, what ``give_back`` makes of this PE's gradients, and those; twice, to use memory again."""
    halo = made(world, part, dtype, real)
    mine = positions(part)
    ids = halo.host(part.source_ids)
    gradients = np.random.default_rng(part.rank).normal(size=(len(mine), columns)).astype(real)
    for _ in range(2):
        fetched = world.download(halo.fetch(world.upload(x[part.lo : part.hi, :columns].copy())))
        returned = world.download(halo.give_back(world.upload(gradients.copy())))
    halo.close()
    return fetched, returned, gradients, mine, ids, world.counters.embeddings()


#: (what brings it, columns, type of the rows, type of the numbers)
WAYS = [
    ("fetched", 1, "fp32", np.float32), ("fetched", WIDTH, "fp32", np.float32), ("fetched", WIDTH, "bf16", np.float32),
    ("fetched", WIDTH, "fp32", np.float64), ("halo in workgroups", 1, "bf16", np.float32),
    *((how, WIDTH, "fp32", np.float32) for how in MADE if how != "fetched"),
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("name", ["directed", "empty rows", "no arcs", "more PEs than nodes"])
def test_rows_are_fetched_and_gradients_returned(name, strict, tmp_path):
    """In bf16 rows come rounded, this PE's own as well; gradients do not."""
    pes, csr = 4, GRAPHS[name]
    folder = make_layout(tmp_path, csr, pes)
    parts = [layout.load(folder, pe) for pe in range(pes)]
    for how, columns, dtype, real in WAYS:
        made, once = MADE[how]
        x = np.random.default_rng(9).normal(size=(csr.rows, WIDTH)).astype(real)

        def program(world, x=x, columns=columns, dtype=dtype, made=made, real=real):
            wrapped = StrictWorld(world) if strict else world
            return both_ways(wrapped, parts[world.rank], x, columns, dtype, made, real)

        results = launch("simulated", lambda: pes, program)
        expected = np.zeros((csr.rows, columns))
        for fetched, _, gradients, mine, ids, _ in results:
            brought = x[mine, :columns]
            right = from_bf16(to_bf16(brought)) if dtype == "bf16" else brought
            np.testing.assert_array_equal(fetched, right, err_msg=how)
            np.testing.assert_array_equal(ids, mine, err_msg=how)
            np.add.at(expected, mine, gradients)
        for part, (_, returned, *_, moved) in zip(parts, results, strict=True):
            rounding = {"rtol": 1e-5, "atol": 1e-6} if real is np.float32 else {"rtol": 1e-13, "atol": 1e-14}
            np.testing.assert_allclose(returned, expected[part.lo : part.hi], err_msg=how, **rounding)
            # Twice: each halo row here, and each row that others have of this PE.
            size = np.dtype(real).itemsize
            fetched = (2 if dtype == "bf16" else size) * part.forward.halo
            assert not once or moved == 2 * columns * (fetched + size * len(part.forward.send_rows)), how


def test_own_rows_are_computed_during_a_return(tmp_path):
    """The halo's rows travel while this PE computes its own; two returns may be under way."""
    folder = make_layout(tmp_path, GRAPHS["directed"], 3)
    parts = [layout.load(folder, pe) for pe in range(3)]

    def program(world):
        part, world = parts[world.rank], LateWorld(world)
        halo, mine = FetchedHalo(world, part, WIDTH), positions(part)
        gradients = np.random.default_rng(part.rank).normal(size=(len(mine), WIDTH)).astype(np.float32)
        given = [gradients.copy(), 2 * gradients[:, :2]]
        for each in given:
            each[: part.rows] = np.nan
        started = [halo.start_return(each) for each in given]
        assert world.pending, "nothing is submitted aside"
        given[0][: part.rows], given[1][: part.rows] = gradients[: part.rows], 2 * gradients[: part.rows, :2]
        returned = [halo.finish_return(each) for each in started]
        assert not world.pending
        halo.close()
        return returned, gradients, mine

    results = launch("simulated", lambda: 3, program)
    expected = np.zeros((GRAPHS["directed"].rows, WIDTH))
    for _, gradients, mine in results:
        np.add.at(expected, mine, gradients)
    for part, ((whole, two), *_) in zip(parts, results, strict=True):
        np.testing.assert_allclose(whole, expected[part.lo : part.hi], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(two, 2 * expected[part.lo : part.hi, :2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strict", [False, True], ids=["host", "device"])
def test_single_pe_rounds_like_several(strict):
    x = np.random.default_rng(9).normal(size=(5, WIDTH)).astype(np.float32)

    def fetched(world):
        world = StrictWorld(world) if strict else world
        return [world.download(NoHalo(world, dtype).fetch(world.upload(x.copy()))) for dtype in ("fp32", "bf16")]

    [(plain, rounded)] = launch("simulated", lambda: 1, fetched)
    np.testing.assert_array_equal(plain, x)
    np.testing.assert_array_equal(rounded, from_bf16(to_bf16(x)))
