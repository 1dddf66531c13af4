"""The time of an epoch by phase: it adds up, and counting changes no number."""

import threading

import numpy as np
import pyarrow.parquet
import pytest
from support.phases_program import PHASE_OF, TRAININGS, watch
from support.train_program import result_arrays, run

from mgg.aggregate import all_techniques
from mgg.backend.host import HostTimeline
from mgg.backend.simulated import SimulatedWorld
from mgg.model.arrays import HostArrays
from mgg.record import EpochRecord, read_run
from mgg.train.phases import PHASES

OPTIONS = {"model": "gcn", "epochs": 4}


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if not plan.single_pe])
def test_phases_change_nothing(technique, layouts, tmp_path):
    folder, options = layouts("planted", 2), {**OPTIONS, "technique": technique}
    counted = run("simulated", folder, 2, phases=True, out=tmp_path / "run", **options)[0]
    plain = run("simulated", folder, 2, **options)[0]
    assert all(getattr(epoch, phase) is not None for epoch in counted.epochs for phase in PHASES)
    assert all(getattr(epoch, phase) is None for epoch in plain.epochs for phase in PHASES)
    fields = set(PHASES) | {"seconds"}
    curves = [[epoch.model_dump(exclude=fields) for epoch in result.epochs] for result in (counted, plain)]
    assert curves[0] == curves[1]
    for name, array in plain.weights.items():
        np.testing.assert_array_equal(counted.weights[name], array)
    assert read_run(tmp_path / "run")[1] == counted.epochs


@pytest.fixture
def ticks(monkeypatch):
    """A clock of each PE that goes on by 1 when it is read."""
    clocks = threading.local()

    def read():
        clocks.now = getattr(clocks, "now", 0) + 1.0
        return clocks.now

    monkeypatch.setattr("mgg.backend.host.time.perf_counter", read)


@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize("pes", [1, 2])
def test_phases_add_up(model, pes, layouts, ticks):
    """Phases begin before an epoch and end after it; each of them is entered."""
    options = {**OPTIONS, "model": model, "technique": "halo"}
    for epoch in run("simulated", layouts("planted", pes), pes, phases=True, **options)[0].epochs:
        parts = [getattr(epoch, phase) for phase in PHASES]
        assert sum(parts) == epoch.seconds + 2 and min(parts) > 0


def test_what_goes_arc_by_arc_is_aggregation(layouts, monkeypatch):
    """All of the table's operations on arcs, and the halo but for what it fetches from other PEs."""
    here = threading.local()

    class Timeline(HostTimeline):
        def __init__(self):
            super().__init__()
            here.timeline = self

    monkeypatch.setattr("mgg.backend.host.HostTimeline", Timeline)
    seen = watch(HostArrays, SimulatedWorld, lambda: here.timeline._stack[-1], monkeypatch.setattr)
    for options in TRAININGS:
        run("simulated", layouts("planted", 2), 2, phases=True, **options)
    assert seen == {name: {phase} for name, phase in PHASE_OF.items()} | {"get_rows": {"communication"}}


def test_a_name_that_an_operation_does_not_have_any_more_is_an_error(layouts, monkeypatch):
    monkeypatch.setattr("mgg.train.phases._BY_ARC", ("arc_gone",))
    with pytest.raises(AttributeError, match="arc_gone"):
        run("simulated", layouts("planted", 1), 1, technique="halo", phases=True, **OPTIONS)


def test_one_pe_fetches_and_puts_nothing(layouts, ticks, monkeypatch):
    """The sums of an epoch are all that it communicates: every call takes a tick."""
    calls = []
    monkeypatch.setattr("mgg.train.phases._WORLD", ("get_rows", "put_rows", "shift", "broadcast"))
    for pes in (1, 2):
        options = {**OPTIONS, "technique": "halo"}
        calls.append(run("simulated", layouts("planted", pes), pes, phases=True, **options)[0].epochs[-1].communication)
    assert calls[0] == 0 < calls[1]


def test_metrics_are_a_table_too(layouts, tmp_path):
    found = run("simulated", layouts("planted", 1), 1, technique="halo", out=tmp_path / "run", **OPTIONS)[0]
    table = pyarrow.parquet.read_table(tmp_path / "run" / "metrics.parquet")
    assert table.schema.names == list(EpochRecord.model_fields)
    assert [EpochRecord(**row) for row in table.to_pylist()] == found.epochs


def test_an_inner_phase_does_not_count_for_the_outer_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("mgg.backend.host.time.perf_counter", lambda: now[0])
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
