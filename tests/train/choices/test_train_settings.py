"""Early stopping, class weights, optimizers, types of embeddings, given weights: each does what it says."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.graphs.train_graphs import GRAPHS
from support.programs.train_program import assert_close, gradients, result_arrays, run

from mgg.errors import InputError
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.train import loop
from mgg.train.targets import Scores

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 60}


def test_patience_ends_a_run_that_does_not_improve_any_more(layouts):
    whole = run("simulated", layouts("planted", 2), 2, **OPTIONS)[0]
    for patience in (1, 5):
        found = run("simulated", layouts("planted", 2), 2, **OPTIONS, settings={"patience": patience})[0]
        done = len(found.epochs)
        assert [epoch.loss for epoch in found.epochs] == [epoch.loss for epoch in whole.epochs[:done]]
        assert done == 60 or done - found.record.best_epoch == patience
        assert found.record.epochs == done
    assert len(run("simulated", layouts("planted", 2), 2, **OPTIONS, settings={"patience": 1})[0].epochs) < 60


@pytest.mark.parametrize(("model", "last"), [("gcn", False), ("sgc", True), ("rgcn", True)])
def test_best_epoch_follows_the_published_rule(model, last, layouts):
    graph = "typed" if model == "rgcn" else "planted"
    options = {**OPTIONS, "model": model, "epochs": 30, "settings": {"learning_rate": 0.5}}
    found = run("simulated", layouts(graph, 1), 1, **options)[0]
    best = max(found.epochs, key=lambda epoch: epoch.validation_accuracy).epoch
    assert best < 30
    assert found.record.best_epoch == 30 if last else found.record.best_epoch < 30


def test_balanced_class_weights_are_scikit_learns(layouts):
    """The gradient by the last bias of zero weights is the mean of weight * (share - one-hot)."""
    from sklearn.utils.class_weight import compute_class_weight

    from mgg import layout

    part = layout.load(layouts("planted", 1), 0)
    labels = part.labels[part.splits == 1]
    weights = compute_class_weight("balanced", classes=np.arange(10), y=labels)
    expected = (weights[labels][:, None] * (0.1 - np.eye(10)[labels])).mean(axis=0)
    options = {"model": "gcn", "technique": "halo", "settings": {"class_weights": "balanced", "dropout": 0.0}}
    first = gradients("simulated", layouts("planted", 1), 1, **options)[0]
    zeros = {name: np.zeros(array.shape, np.float32) for name, array in first.items() if name != "loss"}
    for pes in (1, 3):
        found = gradients("simulated", layouts("planted", pes), pes, weights=zeros, **options)[0]
        np.testing.assert_allclose(found["layer1.bias"], expected, atol=1e-6)
        assert found["loss"] == pytest.approx(np.log(10), rel=1e-6)  # the weights' mean over the nodes is 1


def test_class_without_training_nodes_warns_or_is_refused(layouts, caplog):
    run("simulated", layouts("directed", 2), 2, **{**OPTIONS, "epochs": 1})
    assert [record.message for record in caplog.records] == [
        "graph test: class 3 has no training node, so nothing tells the model of it"
    ]
    with pytest.raises(InputError, match=r"class_weights: balanced .* graph test class 3 has no training node"):
        run("simulated", layouts("directed", 2), 2, **OPTIONS, settings={"class_weights": "balanced"})


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        ({2: [3]}, "class 3 has nodes in its validation split and none in its train split: give"),
        ({2: [3, 4], 3: [4]}, "classes 3, 4 have nodes in its validation and test splits and none in its train split:"),
        ({3: [3, 4, 5, 6, 7, 8, 9]}, "classes 3, 4, 5, 6, 7 and 2 more have nodes in its test split and none in its"),
    ],
)
def test_scored_class_without_training_nodes_is_refused(moved, expected, tmp_path):
    csr, data = GRAPHS["planted"]()
    everywhere = [label for labels in moved.values() for label in labels]
    data["splits"] = np.where(np.isin(data["labels"], everywhere), 0, data["splits"]).astype(np.uint8)
    for split, labels in moved.items():
        for label in labels:
            data["splits"][np.flatnonzero((data["labels"] == label) & (data["splits"] == 0))[:2]] = split
    folder = make_layout(tmp_path, csr, 2, **data)
    with pytest.raises(InputError, match=f"^graph test: {expected}.* untrained_classes=count") as raised:
        run("simulated", folder, 2, **OPTIONS)
    assert raised.value.exit_code == 2
    settings = {"untrained_classes": "count"}
    assert len(run("simulated", folder, 2, **{**OPTIONS, "epochs": 1, "settings": settings})[0].epochs) == 1


def test_adamw_shrinks_what_adam_penalizes(layouts):
    curves, options = {}, {**OPTIONS, "epochs": 20}
    for name in ("adam", "adamw"):
        settings = {"optimizer": name, "weight_decay": 0.5}
        found = run("simulated", layouts("planted", 1), 1, settings=settings, **options)[0]
        curves[name] = [epoch.loss for epoch in found.epochs]
    assert curves["adam"][0] == curves["adamw"][0] and curves["adam"][-1] != curves["adamw"][-1]
    assert curves["adamw"][-1] < curves["adamw"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"patience": 5, "selection": "last"}}, "setting patience: needs a best epoch, and the last one"),
        ({"technique": "cola", "dtype": "bf16"}, "technique cola: takes no bf16 embeddings; those that do: halo"),
        ({"model": "gin", "settings": {"optimizer": "adamw"}}, "setting optimizer: model gin has no weight decay, so"),
        ({"model": "sage", "settings": {"optimizer": "adamw"}}, "setting optimizer: weight_decay is 0, so adamw is"),
        ({"epochs": 4, "settings": {"warmup": 5}}, "setting warmup: the step size grows for 5 epochs, more than the 4"),
        ({"technique": "auto", "options": {"ps": 2}}, "technique auto: takes no options, found ps"),
        ({"model": "gnc"}, "model 'gnc' is unknown"),
        ({"settings": {"hiden": 3}}, "setting of model gcn: hiden: unknown field; did you mean hidden"),
        ({"technique": "hallo"}, "technique 'hallo': unknown; did you mean halo"),
        ({"options": {"ps": 3}}, "technique halo: option ps: unknown field"),
        ({"weights": Path("nowhere")}, "no weights of mgg train"),
    ],
)
def test_invalid_settings_are_refused(change, message, layouts):
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 2), 2, **{**OPTIONS, **change})


def test_warmup_over_all_epochs_ends_at_the_full_step(layouts):
    """In the last one the step size is the full one."""
    options = {**OPTIONS, "epochs": 4, "settings": {"warmup": 4}}
    assert len(run("simulated", layouts("planted", 1), 1, **options)[0].epochs) == 4


def test_training_in_bf16_is_close_to_fp32(layouts):
    options = {**OPTIONS, "model": "gin", "epochs": 5, "settings": {"hidden": 16}}
    plain, found = (run("simulated", layouts("planted", 2), 2, dtype=dtype, **options)[0] for dtype in ("fp32", "bf16"))
    again = run("simulated", layouts("planted", 2), 2, dtype="bf16", **options)[0]
    assert found.record.dtype == "bf16"
    assert found.record.bytes_wire * 2 == plain.record.bytes_wire
    assert all(weight.dtype == np.float32 for name, weight in found.weights.items() if "running" not in name)
    # Weights are not rounded to bf16, and the loss is close but not the same.
    first = found.weights["classifier.weight"]
    assert (from_bf16(to_bf16(first)) != first).any()
    assert found.epochs[0].loss == pytest.approx(plain.epochs[0].loss, rel=0.02)
    assert found.epochs[0].loss != plain.epochs[0].loss
    for name, array in result_arrays(found).items():
        np.testing.assert_array_equal(result_arrays(again)[name], array)


def test_constant_products_are_computed_once(tmp_path):
    """GIN with fewer features than hidden columns aggregates them first: A X is the same in every pass."""
    rng = np.random.default_rng(0)
    data = {"features": rng.random((80, 4), np.float32), "labels": rng.integers(0, 3, 80).astype(np.int32)}
    data["splits"] = np.tile(np.arange(4, dtype=np.uint8), 20)
    folder = make_layout(tmp_path, random_csr(80, 400), 2, **data)
    options = {"model": "gin", "technique": "halo", "epochs": 3, "settings": {"hidden": 8, "layers": 1}}
    assert run("simulated", folder, 2, **options)[0].record.bytes_wire == 0
    one = make_layout(tmp_path, random_csr(80, 400), 1, **data)
    gradient = {"model": "gin", "technique": "halo", "settings": {"hidden": 8, "layers": 1}}
    assert_close(gradients("simulated", folder, 2, **gradient)[0], gradients("simulated", one, 1, **gradient)[0])


def test_initial_weights_do_not_depend_on_the_number_of_pes(layouts, tmp_path):
    first = run("simulated", layouts("planted", 2), 2, out=tmp_path / "first", **OPTIONS)[0]
    kept = first.epochs[first.record.best_epoch - 1].validation_accuracy
    options = {**OPTIONS, "epochs": 1, "settings": {"learning_rate": 1e-9}}
    for weights in (tmp_path / "first", tmp_path / "first" / "weights.safetensors"):
        found = run("simulated", layouts("planted", 3), 3, weights=weights, **options)[0]
        assert found.record.validation_accuracy == pytest.approx(kept, abs=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "gin"}, "weights of model gcn, this run has model gin"),
        ({"settings": {"hidden": 9}}, r"array layer0.weight has shape \(32, 16\), this model's has \(32, 9\)"),
    ],
)
def test_weights_of_another_model_are_refused(change, message, layouts, tmp_path):
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "first", **{**OPTIONS, "epochs": 1})
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 2), 2, weights=tmp_path / "first", **{**OPTIONS, **change})


OF_ONE = {"model": "gcn", "technique": "halo", "settings": {"hidden": 4}}


@pytest.fixture
def scored(monkeypatch):
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
def test_first_of_equal_epochs_is_the_best(selection, found, best, layouts, scored):
    scored(found)
    settings = {**OF_ONE["settings"], "selection": selection}
    for result in run("simulated", layouts("planted", 2), 2, **{**OF_ONE, "settings": settings}, epochs=len(found)):
        assert (result.record.best_epoch, result.record.test_accuracy) == (best, best / 10)
        assert {float(value) for array in result.weights.values() for value in array.flat} == {best}


def test_equal_epoch_does_not_renew_patience(layouts, scored):
    scored([(0.5, 1.0), (0.6, 1.0)] + 6 * [(0.6, 1.0)])
    settings = {**OF_ONE["settings"], "patience": 3}
    record = run("simulated", layouts("planted", 1), 1, **{**OF_ONE, "settings": settings}, epochs=8)[0].record
    assert (record.best_epoch, record.epochs) == (2, 5)


def test_epoch_seconds_are_those_of_the_slowest_pe(layouts, monkeypatch):
    """In each epoch another PE is the slowest; each PE has a clock of its own, which epochs alone move on."""
    took, clock = [[1.0, 4.0, 2.0], [3.0, 2.0, 5.0]], threading.local()

    def epoch(trainer, number):
        clock.now = getattr(clock, "now", 0.0) + took[trainer._world.rank][number - 1]
        return 1.0, Scores(1.0, 0.5, 0.5, 0.5)

    monkeypatch.setattr(loop.Trainer, "epoch", epoch)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: getattr(clock, "now", 0.0)))
    for result in run("simulated", layouts("planted", 2), 2, **OF_ONE, epochs=3):
        assert [each.seconds for each in result.epochs] == [3.0, 4.0, 5.0]
        assert (result.record.q1, result.record.median, result.record.q3) == (3.5, 4.0, 4.5)
