"""Launches of a job: rounds on plans prepared anew, their statistics by hand, and what is done once."""

from collections import Counter
from collections.abc import Callable
from threading import get_ident
from types import SimpleNamespace

import pytest
from support.graphs import make_layout, random_csr

from mgg import layout
from mgg.aggregate import measure, oracle, parse_options
from mgg.aggregate.measure import Protocol, sweep
from mgg.backend import simulated
from mgg.errors import MachineError

CSR = random_csr(60, 500, weighted=True)


class Timed:
    """A World whose clock tells ``seconds`` one after the other."""

    def __init__(self, world, seconds):
        self._world, self._left = world, iter(seconds)

    def __getattr__(self, name):
        return getattr(self._world, name)

    def clock(self):
        return SimpleNamespace(start=lambda: None, stop=lambda: next(self._left))


def run(tmp_path, pes, techniques=("halo", "cola"), dims=(3, 16), seconds=None, auto=False, **protocol):
    """Records and refusals of every PE; ``seconds`` are what the clock of each tells."""
    folder = make_layout(tmp_path, CSR, pes)
    chosen = [(name, parse_options(name, {})) for name in techniques]
    protocol = {"direction": "forward", "warmup": 1, "iterations": 2, "check": True, "launches": 3} | protocol

    def program(world):
        told = Timed(world, seconds[world.rank]) if seconds else world
        mine = layout.load(folder, world.rank)
        return sweep(told, mine, chosen, dims=list(dims), protocol=Protocol(**protocol), auto=auto)

    return simulated.run(pes, program)


@pytest.fixture
def watched(monkeypatch) -> Callable[[], list[tuple[str, str]]]:
    """Plans of PE 0 as they are prepared and closed."""
    events, plans, real = [], [], measure.prepare

    def prepare(name, world, *arguments):
        plan = real(name, world, *arguments)
        if world.rank == 0:
            assert all(plan is not earlier for earlier in plans)
            plans.append(plan)
            events.append(("prepared", name))
            closing = plan.close

            def close():
                events.append(("closed", name))
                closing()

            plan.close = close
        return plan

    monkeypatch.setattr(measure, "prepare", prepare)
    return lambda: events


@pytest.mark.parametrize("pes", [1, 2])
def test_every_round_prepares_every_plan_anew(tmp_path, watched, pes):
    """So that the launches of a technique lie apart in time: another one's plan is between them."""
    parts = run(tmp_path, pes)
    one = [(what, name) for name in ("halo", "cola") for what in ("prepared", "closed")]
    assert watched() == one * 3
    for records, refused in parts:
        assert not refused and records == parts[0][0]
        assert [(r.technique, r.dim) for r in records] == [("halo", 3), ("halo", 16), ("cola", 3), ("cola", 16)]
        assert all(len(r.launches) == 3 and len(r.seconds) == 6 and r.warmup == 1 for r in records)


def test_the_spread_is_between_launches_and_the_quartiles_are_of_all_products(tmp_path):
    """Two PEs; launches of 2 products whose slower PE takes 1 and 3, 2 and 6, 10 and 20 seconds."""
    seconds = [[1, 2, 2, 1, 10, 20], [0.5, 3, 1, 6, 9, 5]]
    for [record], _ in run(tmp_path, 2, ["halo"], [3], seconds):
        assert record.seconds == [1, 3, 2, 6, 10, 20]
        assert record.launches == [2, 4, 15]
        assert (record.low, record.median, record.high) == (2, 4, 15)
        # Of 1, 2, 3, 6, 10, 20: a quarter and three quarters of the way from the first to the last.
        assert (record.q1, record.q3) == (2.25, 9)


def test_one_launch_has_no_spread(tmp_path):
    [([record], _)] = run(tmp_path, 1, ["halo"], [3], [[4, 1, 3]], iterations=3, launches=1)
    assert (record.launches, record.low, record.median, record.high, record.seconds) == ([3], 3, 3, 3, [4, 1, 3])


@pytest.mark.parametrize("pes", [1, 2])
def test_the_first_launch_is_checked_all_are_taken_apart_and_the_reference_made_once(tmp_path, monkeypatch, pes):
    made, checked, apart = [], [], []

    def counted(of, calls, key):
        def call(*arguments):
            calls.append(key(*arguments))
            return of(*arguments)

        return call

    monkeypatch.setattr(oracle, "reference", counted(oracle.reference, made, lambda part, way, dim: (part.rank, dim)))
    of = (measure._checked, measure.parts_alone)
    monkeypatch.setattr(measure, "_checked", counted(of[0], checked, lambda *a: (a[0].rank, a[2].name, a[3])))
    monkeypatch.setattr(measure, "parts_alone", counted(of[1], apart, lambda *a: (a[0].rank, a[1].name, a[2])))
    records, _ = run(tmp_path, pes, breakdown=True)[0]
    each = [(pe, name, dim) for pe in range(pes) for name in ("cola", "halo") for dim in (3, 16)]
    assert sorted(made) == [(pe, dim) for pe in range(pes) for dim in (3, 16)]
    assert sorted(checked) == each
    assert sorted(apart) == sorted(each * 3 if pes > 1 else [])  # one PE moves nothing
    assert all(r.error is not None and r.error <= r.tolerance for r in records)
    assert [r.compute is not None for r in records] == [pes > 1] * 4


def test_parts_are_medians_over_launches(tmp_path, monkeypatch):
    """Those of the first launch beside the median of all would differ by what that launch was slower."""
    seen = Counter()

    def parts_alone(world, plan, dim, protocol):
        seen[world.rank, plan.name, dim] += 1
        return {"compute": (5.0, 1.0, 2.0)[seen[world.rank, plan.name, dim] - 1]}

    monkeypatch.setattr(measure, "parts_alone", parts_alone)
    records, _ = run(tmp_path, 2, breakdown=True)[0]
    assert [(r.compute, r.transfer) for r in records] == [(2.0, None)] * 4


def test_preparing_a_plan_is_timed_on_the_slowest_pe(tmp_path, monkeypatch):
    """By a clock of each thread, which stands still but for plans."""
    clocks, launches, plans = Counter(), Counter(), measure.prepare

    def prepare(technique, world, *arguments):
        launches[world.rank, technique] += 1
        took = {0: (4.0, 1.0, 2.0), 1: (3.0, 5.0, 1.0)}[world.rank]
        clocks[get_ident()] += took[launches[world.rank, technique] - 1]
        return plans(technique, world, *arguments)

    monkeypatch.setattr(measure, "prepare", prepare)
    monkeypatch.setattr(measure, "perf_counter", lambda: clocks[get_ident()])
    records, _ = run(tmp_path, 2)[0]
    assert [r.prepare for r in records] == [4.0] * 4  # the median of 4, 5 and 2


def test_what_is_refused_is_told_once_and_not_tried_again(tmp_path, monkeypatch):
    tried, real = [], measure.accepted

    def accepted(name, world, *arguments):
        tried.append((name, world.rank))
        return real(name, world, *arguments)

    monkeypatch.setattr(measure, "accepted", accepted)
    for records, refused in run(tmp_path, 2, ["local", "halo"], [3]):
        assert [(r.technique, len(r.launches)) for r in records] == [("halo", 3)]
        assert [str(error).split(":")[0] for error in refused] == ["local, D = 3"]
    assert sorted(tried) == sorted([("local", pe) for pe in (0, 1)] + [("halo", pe) for pe in (0, 1)] * 3)


def test_what_a_later_launch_lacks_is_told_and_the_launches_before_stay(tmp_path, monkeypatch):
    prepared, real = [], measure.prepare

    def prepare(name, world, part, direction, max_dim, *arguments):
        if world.rank == 0:
            prepared.append(max_dim)
        if max_dim == 16 and world.gather(len(prepared))[0] > 1:
            raise MachineError("not enough memory: of the second launch").on_every_pe()
        return real(name, world, part, direction, max_dim, *arguments)

    monkeypatch.setattr(measure, "prepare", prepare)
    for records, refused in run(tmp_path, 2, ["halo"]):
        assert [(r.dim, len(r.launches), len(r.seconds)) for r in records] == [(3, 3, 6), (16, 1, 2)]
        assert [str(error) for error in refused] == ["not enough memory: halo, D = 16, launch 2: of the second launch"]
    assert prepared == [16, 16, 3, 3]


def test_autos_pick_is_made_once(tmp_path, monkeypatch):
    asked, real = [], measure.forecast

    def forecast(world, *arguments):
        asked.append(world.rank)
        return real(world, *arguments)

    monkeypatch.setattr(measure, "forecast", forecast)
    records, _ = run(tmp_path, 2, ["halo", "cola", "mgg", "broadcast"], [3], auto=True)[0]
    assert sorted(asked) == [0, 1]
    assert sum(r.chosen for r in records) == 1
    assert all(len(r.launches) == 3 for r in records) and any(r.predicted for r in records)
