"""Every method of World, on GPUs."""

import pytest
from support.programs import world_program
from support.ranks import succeeded

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_world_methods_do_as_documented(pes):
    done = succeeded(pes, [world_program.__file__, "nvshmem"])
    assert done.stdout.count("ok") == pes
