"""Which epoch is kept of epochs whose scores and times are given, and what a run says of their times."""

import threading
from types import SimpleNamespace

import pytest
from support.train_program import run

from mgg.train import loop
from mgg.train.targets import Scores

OPTIONS = {"model": "gcn", "technique": "halo", "settings": {"hidden": 4}}


@pytest.fixture
def told(monkeypatch):
    """Let epochs have the ``found`` validation scores and losses, and leave their number in every weight."""

    def make(found):
        def epoch(trainer, number):
            trainer.weights.flat[...] = number
            score, loss = found[number - 1]
            return 1.0, Scores(validation_loss=loss, train=0.5, validation=score, test=number / 10)

        monkeypatch.setattr(loop.Trainer, "epoch", epoch)

    return make


@pytest.mark.parametrize(
    ("selection", "found", "best"),
    [
        ("validation", [(0.5, 1.0), (0.5, 1.0), (0.5, 1.0)], 1),
        ("validation", [(0.4, 0.9), (0.5, 1.0), (0.5, 0.9), (0.5, 0.9), (0.4, 0.1)], 3),
        ("validation_loss", [(0.5, 0.9), (0.7, 0.9), (0.7, 0.9), (0.9, 1.0)], 2),
        ("last", [(0.5, 0.9), (0.4, 1.0), (0.4, 1.0)], 3),
    ],
)
def test_of_equal_epochs_the_first_is_the_best(selection, found, best, layouts, told):
    told(found)
    settings = {**OPTIONS["settings"], "selection": selection}
    for result in run("simulated", layouts("planted", 2), 2, **{**OPTIONS, "settings": settings}, epochs=len(found)):
        assert (result.record.best_epoch, result.record.test_accuracy) == (best, best / 10)
        assert {float(value) for array in result.weights.values() for value in array.flat} == {best}


def test_an_epoch_that_is_no_better_than_the_best_does_not_renew_patience(layouts, told):
    told([(0.5, 1.0), (0.6, 1.0)] + 6 * [(0.6, 1.0)])
    settings = {**OPTIONS["settings"], "patience": 3}
    record = run("simulated", layouts("planted", 1), 1, **{**OPTIONS, "settings": settings}, epochs=8)[0].record
    assert (record.best_epoch, record.epochs) == (2, 5)


def test_an_epoch_takes_as_long_as_on_its_slowest_pe(layouts, monkeypatch):
    """In each epoch another PE is the slowest; each PE has a clock of its own, which epochs alone move on."""
    took, clock = [[1.0, 4.0, 2.0], [3.0, 2.0, 5.0]], threading.local()

    def epoch(trainer, number):
        clock.now = getattr(clock, "now", 0.0) + took[trainer._world.rank][number - 1]
        return 1.0, Scores(1.0, 0.5, 0.5, 0.5)

    monkeypatch.setattr(loop.Trainer, "epoch", epoch)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: getattr(clock, "now", 0.0)))
    for result in run("simulated", layouts("planted", 2), 2, **OPTIONS, epochs=3):
        assert [each.seconds for each in result.epochs] == [3.0, 4.0, 5.0]
        assert (result.record.q1, result.record.median, result.record.q3) == (3.5, 4.0, 4.5)
