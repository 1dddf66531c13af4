"""Several yes-or-no labels a node: the same on any number of PEs, scored as scikit-learn scores them."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from support.graphs import make_layout, random_csr
from support.graphs.train_graphs import GRAPHS
from support.programs.train_program import assert_close, gradients, run

from mgg import layout
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.model import settings_of
from mgg.train import Trainer
from mgg.train.evaluate import evaluate
from mgg.train.targets.metrics import targets_of

OPTIONS = {"model": "gcn", "technique": "halo", "settings": {"dropout": 0.0, "hidden": 16, "learning_rate": 0.1}}


def test_task_loss_and_gradients_do_not_depend_on_the_number_of_pes(layouts):
    expected = gradients("simulated", layouts("tasks", 1), 1, **OPTIONS)[0]
    for found in gradients("simulated", layouts("tasks", 4), 4, **OPTIONS):
        assert_close(found, expected)


@pytest.mark.parametrize("metric", ["micro_f1", "roc_auc"])
def test_scores_match_scikit_learn(metric, layouts, tmp_path):
    results = {}
    for pes in (1, 3):
        out = tmp_path / str(pes)
        results[pes] = run("simulated", layouts("tasks", pes), pes, out=out, epochs=25, metric=metric, **OPTIONS)[0]
    record = results[3].record
    assert record.metric == metric
    assert record.test_accuracy == pytest.approx(results[1].record.test_accuracy, abs=1e-3)
    table = pyarrow.parquet.read_table(tmp_path / "3" / "predictions.parquet")
    _, data = GRAPHS["tasks"]()
    assert table["node"].to_pylist() == list(range(len(data["splits"])))
    assert np.array_equal(table["label"].to_pylist(), data["tasks"])
    logits, split = np.array(table["logit"].to_pylist()), table["split"].to_numpy()
    for name, code in (("validation", 2), ("test", 3)):
        truth, said = data["tasks"][split == code], logits[split == code]
        known = truth <= 1
        if metric == "micro_f1":
            expected = f1_score(truth[known], said[known] > 0)
        else:  # the task that is always no has no curve
            tasks = range(5)
            expected = np.mean([roc_auc_score(truth[known[:, t], t], said[known[:, t], t]) for t in tasks])
        assert getattr(record, f"{name}_accuracy") == pytest.approx(expected, abs=1e-6)
        assert evaluate(tmp_path / "3")[name] == pytest.approx(expected, abs=1e-6)
    # Better than what it starts from by far.
    assert record.test_accuracy > results[3].epochs[0].test_accuracy + 0.1


#: As float32 probabilities these would be a half, 0 or 1, all of them.
NEAR = [0, -0.0, 1e-45, -1e-45, 1e-9, -1e-9, 5e-8, -5e-8]
FAR = [18, 18.5, 21, 40, 90, 91, -110, -120, -130]


@pytest.mark.parametrize("metric", ["micro_f1", "roc_auc"])
def test_predictions_score_like_the_training(metric, layouts, tmp_path, monkeypatch):
    """Yes is a logit above 0, and ranks are those of the logits, also where probabilities would tie."""
    shape = GRAPHS["tasks"]()[1]["tasks"].shape
    logits = np.random.default_rng(3).choice(np.array(NEAR + FAR, np.float32), shape)
    monkeypatch.setattr(Trainer, "_logits", lambda *_: logits.copy())
    out = tmp_path / "run"
    record = run("simulated", layouts("tasks", 1), 1, out=out, epochs=1, metric=metric, **OPTIONS)[0].record
    table = pyarrow.parquet.read_table(out / "predictions.parquet")
    np.testing.assert_array_equal(np.array(table["logit"].to_pylist(), np.float32), logits)
    found = evaluate(out)
    for split in ("train", "validation", "test"):
        assert found[split] == getattr(record, f"{split}_accuracy")


@pytest.mark.parametrize(
    ("graph", "change", "message"),
    [
        ("planted", {"metric": "roc_auc"}, "metric roc_auc: needs several yes-or-no labels .* take accuracy"),
        ("tasks", {"metric": "accuracy"}, "metric accuracy: nodes of graph test have no class; take micro_f1"),
        ("tasks", {"metric": "micro-f1"}, "metric 'micro-f1': unknown; did you mean micro_f1"),
        ("tasks", {"settings": {"class_weights": "balanced"}}, "setting class_weights: nodes .* have no class"),
    ],
)
def test_metric_without_its_labels_is_refused(graph, change, message, layouts):
    with pytest.raises(InputError, match=message):
        run("simulated", layouts(graph, 2), 2, epochs=2, **{**OPTIONS, **change})


@pytest.mark.parametrize(
    ("graph", "name", "metric"),
    [
        ("planted", "cora", "accuracy"),
        ("planted", "ogbn-arxiv", "accuracy"),
        ("tasks", "yelp", "micro_f1"),
        ("tasks", "ogbn-proteins", "roc_auc"),
    ],
)
def test_default_metric_follows_the_labels(graph, name, metric, layouts):
    part = layout.load(layouts(graph, 1), 0)
    part = replace(part, manifest=part.manifest.model_copy(update={"name": name}))
    settings = settings_of("gcn", {})
    assert simulated.run(1, lambda world: targets_of(world, part, "auto", settings).metric) == [metric]


def answers(value):
    return np.full((40, 2), value, np.uint8)


@pytest.mark.parametrize(
    ("tasks", "metric", "message"),
    [
        (answers(255), "micro_f1", "no task of its train split is known"),
        (answers(0), "roc_auc", "no task of the train split of graph test has both yes and no"),
    ],
)
def test_tasks_that_a_metric_cannot_score_are_refused(tasks, metric, message, tmp_path):
    data = {"features": np.ones((40, 3), np.float32), "splits": np.tile(np.arange(4, dtype=np.uint8), 10)}
    folder = make_layout(tmp_path, random_csr(40, 99), 2, tasks=tasks, **data)
    with pytest.raises(InputError, match=message):
        run("simulated", folder, 2, epochs=2, metric=metric, **OPTIONS)
