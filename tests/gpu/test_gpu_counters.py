"""Page faults counted by CUPTI, and occupancy measured by Nsight Compute, if the machine has these tools."""

import ctypes
import importlib.util
import shutil

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.ranks import succeeded

from mgg.aggregate.counters import ncu
from mgg.errors import MachineError
from mgg.records import AggregateRecord, read_lines

pytestmark = pytest.mark.gpu

SIZE = 64 * 2**20


@pytest.mark.skipif(importlib.util.find_spec("cupti") is None, reason="needs cupti-python: extra counters")
def test_page_faults_are_counted_once():
    import cupy

    from mgg.backend.machine import page_faults

    try:
        page_faults.begin().stop()
    except MachineError as error:
        pytest.skip(str(error))
    memory = cupy.cuda.malloc_managed(SIZE)
    values = cupy.ndarray((SIZE // 4,), np.float32, memory)
    values.sum()
    cupy.cuda.Device().synchronize()
    np.ctypeslib.as_array((ctypes.c_float * values.size).from_address(memory.ptr))[:] = 1
    counted = []
    for _ in range(2):
        counter = page_faults.begin()
        assert float(values.sum()) == values.size
        cupy.cuda.Device().synchronize()
        counted.append(counter.stop())
    first, again = counted
    assert first.faults > 0 and first.seconds > 0 and first.migrated == SIZE
    assert again == (0, 0.0, 0)


@pytest.mark.skipif(not any(map(shutil.which, ("ncu", *ncu._USUAL))), reason="needs ncu of Nsight Compute")
def test_profiled_occupancy_is_below_its_limit(tmp_path):
    folder = make_layout(tmp_path, random_csr(20_000, 2_000_000), 1)
    out = tmp_path / "records.jsonl"
    arguments = ["aggregate", str(folder), "--technique", "mgg,mgg_uvm", "--dim", "16", "--profile", "--out", str(out)]
    succeeded(1, ["-m", "mgg.cli", *arguments])
    records = read_lines(out, AggregateRecord)
    assert len(records) == 2
    for record in records:
        assert record.profile_untold is None and record.profiler
        assert 0 < record.occupancy <= record.occupancy_limit <= 1 and 0 < record.sm_utilization <= 1
