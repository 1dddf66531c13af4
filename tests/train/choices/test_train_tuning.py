"""Settings of MGG's kernel in trainings: searched in the first epochs, or the table's; kept, resumed, recorded."""

import logging

import pytest
from support.programs.train_program import checkpoint_files, run, tables
from support.ranks.stopped import BASE, stop_at

from mgg.aggregate import technique, tuning
from mgg.aggregate.measure import TimingProtocol
from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.layout import load
from mgg.train.tuning import Tuner
from mgg.tune.search import Search
from mgg.tune.setting import START, Setting

BEST, DEFAULT = Setting(2, 1, 2), Setting(32, 16, 4)
EPOCHS = {**BASE, "technique": "mgg", "options": {"tune": "epochs"}, "model": "gcn"}


def seconds(setting):
    """Of an epoch: fastest at BEST, slower with every doubling away from it."""
    return 1.0 + sum(abs(a.bit_length() - b.bit_length()) for a, b in zip(setting, BEST, strict=True))


#: What the search tries by these seconds, in its order: so many epochs more than settings, of its start and before.
TRIED = list(Search(last=DEFAULT).run(lambda at: [seconds(at)]))
LAST = len(TRIED) + 2


@pytest.fixture
def clock(monkeypatch):
    """Epochs take what ``seconds`` says; notes which setting each computed by, on PE 0."""
    computed = []
    after = Tuner.after

    def fake(tuner, _):
        if tuner._world.rank == 0:
            computed.append(None if tuner.state.done else tuner._now)
        after(tuner, 0.0 if tuner._now is None else seconds(tuner._now))

    monkeypatch.setattr(Tuner, "after", fake)
    return computed


def same(one, other):
    """The tables of two runs, but for the seconds in which plans were made ready."""
    for each in (one, other):
        each[0]["tuning"].pop("preparing")
        each[0]["tuning"].pop("cost")
    assert one == other


def test_each_epoch_tries_a_setting_and_the_fastest_is_kept(layouts, clock, tmp_path):
    first, other = run("simulated", layouts("planted", 2), 2, out=tmp_path / "run", **EPOCHS | {"epochs": 30})
    assert clock[:LAST] == [START, START, START, *TRIED[1:]] and set(clock[LAST:]) == {None}
    found = first.record.tuning
    assert found == other.record.tuning and found.done
    assert found.forward.setting == found.transpose.setting == BEST == found.chosen()
    assert [each.setting for each in found.tried] == TRIED and TRIED[-1] == DEFAULT
    assert [len(each.seconds) for each in found.tried] == [2] + [1] * (len(TRIED) - 1)
    assert found.epochs == LAST
    spent = 2 * seconds(START) + sum(map(seconds, TRIED))
    assert found.seconds == spent and found.cost == pytest.approx(found.preparing + spent - LAST * seconds(BEST))
    assert first.record.options["tune"] == "epochs"


@pytest.mark.slow
@pytest.mark.parametrize(("pes", "epoch"), [(1, 1), (2, 5), (2, 11)])
def test_resumed_run_continues_the_search(layouts, clock, tmp_path, monkeypatch, pes, epoch):
    monkeypatch.setattr("mgg.train.tuning.Search", lambda *args, **kwargs: Search(*args, **kwargs, budget=6))
    folder = layouts("planted", pes)
    run("simulated", folder, pes, out=tmp_path / "whole", **EPOCHS)
    whole = [*clock]
    assert whole[7] is not None and whole[8:] == [None] * 4, "eight epochs of search, of twelve"
    clock.clear()
    stop_at(epoch, folder, pes, out=tmp_path / "run", **EPOCHS)
    run("simulated", folder, pes, out=tmp_path / "run", resume=True, **EPOCHS)
    assert clock == whole and not checkpoint_files(tmp_path / "run")
    same(tables(tmp_path / "run"), tables(tmp_path / "whole"))


def test_epochs_are_captured_only_after_the_search(layouts, clock, monkeypatch):
    asked = []

    def repeated(world, *_):
        if world.rank == 0:
            asked.append(len(clock))

    monkeypatch.setattr(simulated.SimulatedWorld, "repeated", repeated)
    run("simulated", layouts("planted", 1), 1, **EPOCHS | {"epochs": LAST + 2})
    assert asked == [LAST, LAST + 1]


def test_too_few_epochs_for_the_search_are_reported(layouts, clock, caplog):
    (result,) = run("simulated", layouts("planted", 1), 1, **EPOCHS | {"epochs": 4})
    assert not result.record.tuning.done and result.record.tuning.forward is None
    assert "option tune: epochs: the 4 epochs ended before the search did: nothing was chosen" in caplog.text


@pytest.mark.slow
def test_arc_wise_models_tune_their_halo(layouts, clock, monkeypatch):
    taken = []
    take = Partitioned.take
    monkeypatch.setattr(Partitioned, "take", lambda plan, setting: (taken.append(setting), take(plan, setting)))
    result, _ = run("simulated", layouts("planted", 2), 2, **EPOCHS | {"model": "gat", "epochs": 30})
    assert result.record.tuning.done and result.record.tuning.forward is None and BEST in taken
    with pytest.raises(InputError, match="this model does not use the technique on these PEs: leave it out"):
        run("simulated", layouts("planted", 1), 1, **EPOCHS | {"model": "gat"})


@pytest.mark.slow
def test_tuned_setting_survives_changes_of_the_table(layouts, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, options = layouts("planted", 2), EPOCHS | {"options": {"tune": "cached"}}

    def tune(best, direction):
        monkeypatch.setattr(tuning, "_measured", lambda *given: [1.0 if given[4] == best else 2.0])
        protocol = TimingProtocol(direction, 0, 1, check=False)
        widest = 8
        simulated.run(
            2, lambda world: tuning.tune(
                world, load(folder, world.rank), direction, widest, protocol=protocol, refresh=True
            ),
        )  # fmt: skip

    with caplog.at_level(logging.WARNING):
        tune(Setting(2, 1, 1), "forward")
        tune(Setting(1, 2, 1), "transpose")
        whole = run("simulated", folder, 2, out=tmp_path / "whole", **options)
        assert not caplog.messages
    found = whole[0].record.tuning
    assert (found.tune, found.done, found.tried, found.cost) == ("cached", True, (), None)
    assert (found.forward.setting, found.transpose.setting) == ((2, 1, 1), (1, 2, 1))
    stop_at(5, folder, 2, out=tmp_path / "run", **options)
    tune(START, "forward")
    run("simulated", folder, 2, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


def test_memory_is_predicted_for_the_smallest_partitions_searched():
    plan = technique("mgg")
    assert [plan.finest(plan.Options(tune=each)) for each in ("none", "cached", "epochs")] == [32, 1, 1]
