"""Techniques keep host and device arrays apart: with device arrays that refuse to mix, every product is the same."""

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout, random_csr
from support.measured import measure
from support.spmm_program import products
from support.strict import StrictArray, StrictWorld
from support.world_program import program

from mgg import layout
from mgg.aggregate import all_techniques
from mgg.backend import simulated

GRAPHS = {
    name: csr
    for name, csr in awkward_graphs().items()
    if name in ("directed", "weighted", "empty rows", "no arcs", "more PEs than nodes", "no remote arcs")
}


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_device_arrays_give_the_bits_of_host_arrays(tmp_path, name, pes):
    folder = make_layout(tmp_path, GRAPHS[name], pes)
    plain = simulated.run(pes, lambda world: products(world, folder, [1, 41]))
    strict = simulated.run(pes, lambda world: products(StrictWorld(world), folder, [1, 41]))
    for expected, found in zip(plain, strict, strict=True):
        assert expected.keys() == found.keys()
        for key in expected:
            if key.startswith("seastar"):  # its kernels are generated for GPUs alone, and sum in another order
                assert np.allclose(expected[key], found[key], rtol=1e-5, atol=1e-5), key
            else:
                assert np.array_equal(expected[key], found[key]), key


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if not plan.single_pe])
def test_measuring_keeps_them_apart_too(tmp_path, technique):
    folder = make_layout(tmp_path, random_csr(200, 2_000, weighted=True), 3)
    arguments = {"dims": [3, 16], "direction": "transpose", "options": {}, "warmup": 1, "iterations": 2, "check": True}

    def act(world):
        return measure(StrictWorld(world), layout.load(folder, world.rank), technique, **arguments)

    first, second = simulated.run(3, act)[0]
    assert first.error <= 1e-6 and second.error <= 1e-6
    assert first.machine.gpus == ["strict"] * 3


@pytest.mark.parametrize("pes", [1, 3])
def test_a_world_of_device_arrays_keeps_its_promises(pes):
    assert simulated.run(pes, lambda world: program(StrictWorld(world))) == ["ok"] * pes


@pytest.mark.parametrize(
    "mixes",
    [
        lambda device, host: device + host,
        lambda device, host: host + device,
        np.add,
        lambda device, host: device.__setitem__(slice(0, 3), host),
        lambda device, host: host.__setitem__(slice(0, 3), device),
        lambda device, host: host[device],
        lambda device, host: device[host],
        lambda device, host: device[device[0] :],
        lambda device, host: np.asarray(device),
        lambda device, host: int(device[0]),
        lambda device, host: list(device),
    ],
)
def test_strict_arrays_are_strict(mixes):
    with pytest.raises(TypeError):
        mixes(StrictArray(np.arange(3)), np.arange(3))
