"""The time of an epoch by phase: it adds up, and counting changes no number."""

import threading

import numpy as np
import pyarrow.parquet
import pytest
from support.programs.phases_program import PHASE_OF, TRAININGS, watch
from support.programs.train_program import run

from mgg.backend.host import HostTimeline
from mgg.backend.simulated import SimulatedWorld
from mgg.model.arrays import HostArrays
from mgg.records import EpochRecord, read_run
from mgg.train.phases import PHASES

OPTIONS = {"model": "gcn", "epochs": 2}


@pytest.mark.parametrize("technique", ["halo", "mgg", "broadcast", "ring"])
def test_phases_do_not_change_results(technique, layouts, tmp_path):
    folder, options = layouts("planted", 2), {**OPTIONS, "technique": technique, "out": tmp_path / "run"}
    counted, plain = (run("simulated", folder, 2, phases=phases, **options)[0] for phases in (True, False))
    assert all(getattr(epoch, phase) is not None for epoch in counted.epochs for phase in PHASES)
    assert all(getattr(epoch, phase) is None for epoch in plain.epochs for phase in PHASES)
    fields = set(PHASES) | {"seconds"}
    curves = [[epoch.model_dump(exclude=fields) for epoch in result.epochs] for result in (counted, plain)]
    assert curves[0] == curves[1]
    for name, array in plain.weights.items():
        np.testing.assert_array_equal(counted.weights[name], array)
    table = pyarrow.parquet.read_table(tmp_path / "run" / "metrics.parquet")
    assert [EpochRecord(**row) for row in table.to_pylist()] == plain.epochs == read_run(tmp_path / "run")[1]


@pytest.fixture
def ticks(monkeypatch):
    """A clock of each PE that goes on by 1 when it is read."""
    clocks = threading.local()

    def read():
        clocks.now = getattr(clocks, "now", 0) + 1.0
        return clocks.now

    monkeypatch.setattr("mgg.backend.host.time.perf_counter", read)


@pytest.mark.parametrize(("model", "pes"), [("gcn", 1), pytest.param("gat", 2, marks=pytest.mark.slow)])
def test_phases_add_up(model, pes, layouts, ticks):
    """Phases begin before an epoch and end after it; each of them is entered."""
    options = {**OPTIONS, "model": model, "technique": "halo"}
    for epoch in run("simulated", layouts("planted", pes), pes, phases=True, **options)[0].epochs:
        parts = [getattr(epoch, phase) for phase in PHASES]
        assert sum(parts) == epoch.seconds + 2 and min(parts) > 0


@pytest.mark.slow
def test_arc_wise_operations_count_as_aggregation(layouts, monkeypatch):
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


def test_unknown_operation_in_a_phase_is_an_error(layouts, monkeypatch):
    monkeypatch.setattr("mgg.train.phases._BY_ARC", ("arc_gone",))
    with pytest.raises(AttributeError, match="arc_gone"):
        run("simulated", layouts("planted", 1), 1, technique="halo", phases=True, **OPTIONS)


def test_communication_of_one_pe_is_only_its_sums(layouts, ticks, monkeypatch):
    """The sums of an epoch are all that it communicates: every call takes a tick."""
    calls = []
    monkeypatch.setattr("mgg.train.phases._WORLD", ("get_rows", "put_rows", "shift", "broadcast"))
    for pes in (1, 2):
        options = {**OPTIONS, "technique": "halo"}
        calls.append(run("simulated", layouts("planted", pes), pes, phases=True, **options)[0].epochs[-1].communication)
    assert calls[0] == 0 < calls[1]


def test_inner_phase_is_not_counted_twice(monkeypatch):
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
