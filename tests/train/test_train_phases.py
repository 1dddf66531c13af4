"""The time of an epoch by phase: it adds up, and counting changes no number."""

import numpy as np
import pyarrow.parquet
import pytest
from support.train_program import result_arrays, run

from mgg.aggregate import techniques
from mgg.backend.api import HostTimeline
from mgg.record import EpochRecord, read_run
from mgg.train.phases import PHASES

OPTIONS = {"model": "gcn", "epochs": 4}


@pytest.mark.parametrize("technique", [name for name, plan in techniques().items() if not plan.single_pe])
def test_phases_add_up_and_change_nothing(technique, layouts, tmp_path):
    folder, options = layouts("planted", 2), {**OPTIONS, "technique": technique}
    counted = run("simulated", folder, 2, phases=True, out=tmp_path / "run", **options)[0]
    plain = run("simulated", folder, 2, **options)[0]
    for epoch in counted.epochs:
        parts = [getattr(epoch, phase) for phase in PHASES]
        assert min(parts) > 0
        # The mean of the PEs is at most what the slowest took, but for the time between two readings of the clock.
        assert sum(parts) <= epoch.seconds + 0.1
    assert all(getattr(epoch, phase) is None for epoch in plain.epochs for phase in PHASES)
    fields = set(PHASES) | {"seconds"}
    curves = [[epoch.model_dump(exclude=fields) for epoch in result.epochs] for result in (counted, plain)]
    assert curves[0] == curves[1]
    for name, array in plain.weights.items():
        np.testing.assert_array_equal(counted.weights[name], array)
    assert read_run(tmp_path / "run")[1] == counted.epochs


def test_one_pe_waits_for_nobody_and_communicates_little(layouts):
    found = run("simulated", layouts("planted", 1), 1, technique="halo", phases=True, **OPTIONS)[0].epochs[-1]
    assert found.communication < found.aggregate + found.dense + found.other


def test_metrics_are_a_table_too(layouts, tmp_path):
    found = run("simulated", layouts("planted", 1), 1, technique="halo", out=tmp_path / "run", **OPTIONS)[0]
    table = pyarrow.parquet.read_table(tmp_path / "run" / "metrics.parquet")
    assert table.schema.names == list(EpochRecord.model_fields)
    assert [EpochRecord(**row) for row in table.to_pylist()] == found.epochs


def test_an_inner_phase_does_not_count_for_the_outer_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("mgg.backend.api.time.perf_counter", lambda: now[0])
    timeline = HostTimeline()

    def after(seconds, change, *args):
        now[0] += seconds
        return change(*args)

    after(1, timeline.enter, "aggregate")
    after(2, timeline.enter, "communication")
    after(4, timeline.leave)
    after(8, timeline.leave)
    assert after(16, timeline.collect) == {"other": 17, "aggregate": 10, "communication": 4}
    assert after(32, timeline.collect) == {"other": 32}


def test_counted_arrays_are_those_that_are_not(layouts):
    options = {**OPTIONS, "model": "gin", "technique": "halo", "settings": {"hidden": 8}}
    first, second = (run("simulated", layouts("planted", 2), 2, phases=p, **options)[0] for p in (True, False))
    expected = result_arrays(second)
    for name in first.weights:
        np.testing.assert_array_equal(first.weights[name], expected[name])
