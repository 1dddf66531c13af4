"""Launches on stand-ins for CuPy, in one process.

How columns are dealt to lanes; streams, graphs and the driver; of the kernels of cola and halo the parameters in their
order and types, what is launched when, and what that computes.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import changed_environment

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def done():
    command = [sys.executable, str(SUPPORT / "fake_gpu" / "run.py"), str(SUPPORT / "programs" / "launches_program.py")]
    environment = changed_environment({})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("part", ["tiles", "fork", "cola", "halo beside", "halo in turn"])
def test_prepared_launches_match_direct_ones(done, part):
    assert f"{part}: ok" in done.stdout.splitlines(), done.stderr
