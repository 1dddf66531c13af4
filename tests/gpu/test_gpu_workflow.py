"""``snakemake --profile profiles/local`` on a host with GPUs: a real graph through all stages."""

import os

import pytest
from support.devices.gpus import taken
from support.workflow import Folder
from support.workflow.gpu_workflow import assert_takes_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("MGG_DATA_DIR" not in os.environ, reason="MGG_DATA_DIR is not set: no real data here"),
]


@pytest.mark.parametrize("pes", [1, 2])
def test_workflow_uses_the_gpus(tmp_path, pes):
    assert_takes_gpus(Folder(tmp_path), "cora", pes, taken(pes))
