"""How long PEs have not moved, by looks at given times."""

from types import SimpleNamespace

import pytest

from mgg.backend import watchdog


@pytest.fixture
def looks(monkeypatch):
    """``looks((time, signs), ...)``: what was seen at those seconds, looks being meant to be one second apart."""
    clock = [0.0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def make(*seen):
        clock[0] = 0.0
        made = watchdog.StandStills()
        for clock[0], signs in seen:
            made.look(signs, 1.0)
        return made

    return make


def test_stall_begins_when_a_sign_was_first_seen(looks):
    found = looks((1, {0: "a", 1: "a"}), (2, {0: "a", 1: "b"}), (3, {0: "a", 1: "b"}))
    assert found.longer_than(1.5) == [0]
    assert found.longer_than(0.5) == [0, 1]
    assert found.longer_than(2) == [], "it has been still for as long, and no longer"


def test_recurring_sign_counts_as_progress(looks):
    assert looks((1, {0: "a"}), (2, {0: "b"}), (3, {0: "a"})).longer_than(0) == []


def test_late_look_counts_as_two_periods(looks):
    """An hour in which the process itself was stopped is no PE's fault."""
    found = looks((1, {0: "a"}), (2, {0: "a"}), (3602, {0: "a"}))
    assert found.longer_than(2.5) == [0]
    assert found.longer_than(3) == []


def test_absent_pe_is_not_named_and_starts_afresh(looks):
    seen = [(1, {0: "a", 1: "a"}), (3, {0: "a", 1: "a"}), (4, {0: "a"})]
    assert looks(*seen).longer_than(1) == [0]
    assert looks(*seen, (5, {0: "a", 1: "a"}), (6, {0: "a", 1: "a"})).longer_than(1) == [0]
