"""Embedding lookups on GPUs: every side against float64 sums, repeated bits, and the bytes that it moves."""

import json

import pytest
from support.programs import lookup_program
from support.ranks import succeeded
from support.records.lookup_checks import check

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_every_lookup_side_is_right(tmp_path, pes):
    out = tmp_path / "found.json"
    succeeded(pes, [lookup_program.__file__, "nvshmem", str(out)])
    check(json.loads(out.read_text()), gpus=True)
