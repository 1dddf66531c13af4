"""Step sizes over the epochs against closed forms."""

import math

import pytest

from mgg.model import settings_of
from mgg.model.learning_rate import learning_rate


def rates(epochs, **values):
    settings = settings_of("gcn", {"learning_rate": 0.5, **values})
    return [learning_rate(settings, epoch, epochs) for epoch in range(1, epochs + 1)]


def test_constant_is_the_default():
    assert rates(7) == [0.5] * 7


def test_cosine_is_sgdr_without_restarts():
    expected = [0.25 * (1 + math.cos(math.pi * t / 10)) for t in range(10)]
    assert rates(10, schedule="cosine") == pytest.approx(expected)


def test_step_halves_every_50_epochs():
    found = rates(120, schedule="step")
    assert found == [0.5] * 50 + [0.25] * 50 + [0.125] * 20


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_warm_up_grows_to_the_full_rate(schedule):
    found = rates(20, schedule=schedule, warmup=5)
    assert found[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert max(found) == 0.5 and min(found) > 0
    assert schedule in {"constant", "step"} or found[5] < 0.5


def test_warm_up_may_be_longer_than_the_run():
    assert rates(3, schedule="cosine", warmup=10) == pytest.approx([0.05, 0.1, 0.15])
