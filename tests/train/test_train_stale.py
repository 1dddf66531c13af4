"""Trainings whose rows of other workgroups are an epoch late (PipeGCN), beside a simulation of all PEs in NumPy."""

import numpy as np
import pytest
from support.late import LateWorld
from support.simulated_gcn import EPOCHS, GRAPHS, SETTINGS, losses_of
from support.stopped import stop_at
from support.train_program import checkpoint_files, run, tables

from mgg import layout
from mgg.backend import launch
from mgg.errors import InputError
from mgg.train import train


def simulated(name, bounds, members, late):
    """Losses; far rows are those of an epoch ago if ``late``."""
    a = GRAPHS[name]()[0].to_scipy(np.float64).toarray()
    group = (np.searchsorted(bounds, np.arange(len(a)), side="right") - 1) // members
    near, before = group[:, None] == group[None, :], {}

    def product(epoch, place, back, rows):
        matrix = a.T if back else a
        older = before.get(place, rows) if late else rows
        before[place] = rows
        return (matrix * near) @ rows + (matrix * ~near) @ older

    return losses_of(name, product)


def trained(folder, pes, members, stale, **options):
    chosen = {"workgroup": members, "stale": stale}
    common = {"model": "gcn", "technique": "halo", "epochs": EPOCHS, "seed": 2, "settings": SETTINGS}
    return run("simulated", folder, pes, **common, options=chosen, **options)


def losses(results):
    assert len({tuple(epoch.loss for epoch in each.epochs) for each in results}) == 1
    return [epoch.loss for epoch in results[0].epochs]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pes", "members"), [
    ("directed", 2, 1), ("directed", 4, 1), ("directed", 4, 2), ("few nodes", 4, 1), ("few nodes", 4, 2),
])  # fmt: skip
def test_losses_are_those_of_the_simulation(folders, name, pes, members):
    folder = folders(name, pes)
    bounds = layout.load(folder, 0).bounds
    late, exact = (simulated(name, bounds, members, each) for each in (True, False))
    found = trained(folder, pes, members, 1)
    np.testing.assert_allclose(losses(found), late, rtol=2e-5)
    options = {"workgroup": members, "split": "rows", "stale": 1, "boundary": 1.0, "wire": None}
    assert found[0].record.options == options
    # The first epoch has nothing older.
    assert losses(found)[0] == pytest.approx(exact[0], rel=2e-5)
    assert max(np.abs(np.array(late) / exact - 1)) > 1e-3
    np.testing.assert_allclose(losses(trained(folder, pes, members, 0)), exact, rtol=2e-5)


@pytest.mark.slow
def test_rows_may_cross_as_late_as_the_next_epoch(folders):
    """Nothing that is sent leaves before its PE waits for it, when inputs and buffers have had other contents."""
    folder = folders("directed", 4)

    def program(world):
        late, part = LateWorld(world), layout.load(folder, world.rank)
        chosen = {"options": {"workgroup": 2, "stale": 1}, "settings": SETTINGS, "seed": 2}
        return train(late, part, model="gcn", technique="halo", epochs=EPOCHS, **chosen), late.pending

    found = launch("simulated", lambda: 4, program)
    assert [pending for _, pending in found] == [0] * 4
    expected = simulated("directed", layout.load(folder, 0).bounds, 2, late=True)
    np.testing.assert_allclose(losses([each for each, _ in found]), expected, rtol=2e-5)


@pytest.mark.slow
def test_one_workgroup_is_exact_and_says_so(folders, caplog):
    for pes, members in ((1, 1), (2, 2)):
        folder = folders("directed", pes)
        caplog.clear()
        late, exact = (trained(folder, pes, members, stale) for stale in (1, 0))
        assert losses(late) == losses(exact)
        told = [each.getMessage() for each in caplog.records if "stale" in each.getMessage()]
        assert told == ["technique halo: option stale changes nothing: all PEs are one workgroup"]


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_a_resumed_run_has_the_same_bits(folders, tmp_path, members):
    """Its checkpoint holds what other workgroups sent in the last epoch."""
    options = {
        "model": "gcn", "technique": "halo", "epochs": 12, "seed": 2, "settings": SETTINGS | {"dropout": 0.5},
        "options": {"workgroup": members, "stale": 1},
    }  # fmt: skip
    folder = folders("directed", 4)
    run("simulated", folder, 4, out=tmp_path / "whole", **options)
    stop_at(5, folder, 4, out=tmp_path / "run", **options)
    assert len(checkpoint_files(tmp_path / "run")) == 1
    run("simulated", folder, 4, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


def test_what_is_never_late_is_refused(folders):
    with pytest.raises(InputError, match="option stale: model gat fetches rows of other PEs"):
        run("simulated", folders("few nodes", 2), 2, model="gat", technique="halo", options={"stale": 1}, epochs=1)
