"""Training with technique auto: the model's own widths decide, the record names what was taken."""

from dataclasses import replace

import pytest
from support.programs.train_program import Stop, run
from support.programs.train_program import layouts as parts_of

from mgg.backend import launch
from mgg.backend.machine import host_memory
from mgg.errors import MachineError, StoppedError
from mgg.model import build, settings_of
from mgg.train import memory, train
from mgg.train.resolve_auto import widths

pytestmark = pytest.mark.usefixtures("quick_probes")


def test_record_names_technique_and_who_chose_it(layouts):
    found = run("simulated", layouts("planted", 2), 2, model="gcn", technique="auto", epochs=2)
    records = [each.record for each in found]
    assert records[0].chosen and records[0].technique not in ("auto", "local")
    assert records[0] == records[1]
    same = run("simulated", layouts("planted", 2), 2, model="gcn", technique=records[0].technique, epochs=2)[0].record
    assert not same.chosen and same.options == records[0].options and same.loss == pytest.approx(records[0].loss)


def test_resumed_run_keeps_its_technique(layouts, tmp_path, monkeypatch):
    folder, options = layouts("planted", 2), {"model": "gcn", "technique": "auto", "epochs": 6, "out": tmp_path / "run"}
    parts, picks = parts_of("simulated", folder, 2), "mgg"
    monkeypatch.setattr("mgg.train.resolve_auto.for_training", lambda *_: [picks])
    with pytest.raises(StoppedError):
        launch("simulated", lambda: 2, lambda world: train(world, parts(world.rank), stop=Stop(3), **options))
    picks = "halo"
    found = run("simulated", folder, 2, resume=True, **options)[0].record
    assert (found.technique, found.chosen, found.epochs) == ("mgg", True, 6)
    assert run("simulated", folder, 2, resume=True, **options)[0].record.technique == "mgg"  # finished
    assert run("simulated", folder, 2, **options)[0].record.technique == "halo"


def test_auto_skips_techniques_that_do_not_fit_memory(layouts, monkeypatch, caplog):
    monkeypatch.setattr("mgg.train.resolve_auto.for_training", lambda *_: ["broadcast", "mgg", "halo"])
    needs, free = memory.need, []

    def need(world, layout, chain, name, *rest, **further):
        found = needs(world, layout, chain, name, *rest, **further)
        free.append(10 * found.total)
        return replace(found, plans=found.plans + (100 * found.total if name != "halo" else 0))

    monkeypatch.setattr(memory, "need", need)
    monkeypatch.setattr(host_memory, "available", lambda: free[-1])
    options = {"model": "gcn", "technique": "auto", "epochs": 1}
    found = run("simulated", layouts("planted", 2), 2, **options)[0].record
    assert (found.technique, found.chosen) == ("halo", True)
    assert [record.message.split(": ")[1] for record in caplog.records] == ["not broadcast", "not mgg"]
    monkeypatch.setattr("mgg.train.resolve_auto.for_training", lambda *_: ["broadcast", "mgg"])
    with pytest.raises(MachineError, match=r"^not enough memory: PEs 0, 1: training needs about"):
        run("simulated", layouts("planted", 2), 2, **options)


@pytest.mark.parametrize(
    ("model", "features", "expected"), [("gcn", 100, [16, 7]), ("gcn", 3, [3, 7]), ("gin", 100, [64] * 5)]
)
def test_auto_compares_the_widths_that_the_model_aggregates(model, features, expected):
    assert widths(build(model, settings_of(model), features, 7)) == expected
