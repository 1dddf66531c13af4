"""What World promises, on GPUs."""

from pathlib import Path

import pytest
from support.ranks import succeeded

SCRIPT = Path(__file__).parents[1] / "support" / "programs" / "world_program.py"

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_world_methods_do_as_documented(pes):
    done = succeeded(pes, [str(SCRIPT), "nvshmem"])
    assert done.stdout.count("ok") == pes
