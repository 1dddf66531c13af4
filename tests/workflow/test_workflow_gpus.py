"""The workflow takes the GPUs of a host without being told to: on stand-ins for them."""

import shutil
import sys
from pathlib import Path

import pytest
from support.ranks import changed_environment
from support.workflow import Folder
from support.workflow.gpu_workflow import assert_takes_gpus

FAKE = Path(__file__).parents[1] / "support" / "fake_gpu" / "run.py"

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels for the host"),
]


@pytest.mark.parametrize(("pes", "gpus"), [(1, 1), (2, 2), (2, 1)])
def test_workflow_uses_the_gpus(folder: Folder, pes: int, gpus: int):
    folder.program("nvidia-smi", "#!/bin/sh\n")
    folder.program("mgg", f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" -m mgg.cli "$@"\n')
    tests = changed_environment({})["PYTHONPATH"]
    shared = {"FAKE_GPUS": str(gpus), "MGG_SHARED_GPUS": str(int(gpus < pes))}
    assert_takes_gpus(folder, "digits", pes, gpus, "Fake H200", PYTHONPATH=tests, **shared)
