"""How long PEs have made no progress, from observations at given times."""

from types import SimpleNamespace

import pytest

from mgg.backend import watchdog


@pytest.fixture
def observe(monkeypatch):
    """``observe((time, signs), ...)``: StandStills after looks at these seconds, with a period of one second."""
    clock = [0.0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def make(*looks):
        clock[0] = 0.0
        stalls = watchdog.StandStills()
        for clock[0], signs in looks:
            stalls.look(signs, 1.0)
        return stalls

    return make


def test_stall_begins_when_a_sign_was_first_seen(observe):
    stalls = observe((1, {0: "a", 1: "a"}), (2, {0: "a", 1: "b"}), (3, {0: "a", 1: "b"}))
    assert stalls.longer_than(1.5) == [0]
    assert stalls.longer_than(0.5) == [0, 1]
    assert stalls.longer_than(2) == [], "it has stalled for exactly 2 s"


def test_recurring_sign_counts_as_progress(observe):
    assert observe((1, {0: "a"}), (2, {0: "b"}), (3, {0: "a"})).longer_than(0) == []


def test_late_look_counts_as_two_periods(observe):
    """An hour in which the observing process was stopped is no stall of a PE."""
    stalls = observe((1, {0: "a"}), (2, {0: "a"}), (3602, {0: "a"}))
    assert stalls.longer_than(2.5) == [0]
    assert stalls.longer_than(3) == []


def test_absent_pe_is_not_named_and_starts_afresh(observe):
    looks = [(1, {0: "a", 1: "a"}), (3, {0: "a", 1: "a"}), (4, {0: "a"})]
    assert observe(*looks).longer_than(1) == [0]
    assert observe(*looks, (5, {0: "a", 1: "a"}), (6, {0: "a", 1: "a"})).longer_than(1) == [0]
