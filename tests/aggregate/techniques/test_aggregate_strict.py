"""Device arrays that refuse to mix with host arrays do so; products with them: test_aggregate_techniques.py."""

import numpy as np
import pytest
from support.devices.strict import StrictArray, StrictWorld
from support.programs.world_program import program

from mgg.backend import simulated


@pytest.mark.parametrize("pes", [1, 3])
def test_strict_world_behaves_like_world(pes):
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
def test_strict_arrays_refuse_to_mix(mixes):
    with pytest.raises(TypeError):
        mixes(StrictArray(np.arange(3)), np.arange(3))
