"""The time of an epoch by phase, and metrics by their name."""

import pytest
from synthetic_records import epochs, train

PARTS = {"aggregate": 0.5, "dense": 0.25, "communication": 0.125, "other": 0.125}


def counted(factor=1.0, **changes):
    record = train(epochs=3, **changes)
    shares = {phase: factor * share for phase, share in PARTS.items()}
    return record, [epoch.model_copy(update=shares) for epoch in epochs(record)]


def test_phases_of_runs_are_shown(report, drawn):
    (row,), text = report(table="training", runs=[counted()])
    assert "Time by phase" in text and "Stacked bar chart" in text
    assert "aggregate 50.0 %" in text and "communication 12.5 %" in text
    assert {phase: float(row[f"{phase}_s"]) for phase in PARTS} == PARTS


def test_phases_are_medians_over_seeds(report):
    runs = [counted(factor, seed=seed) for seed, factor in enumerate((1, 3, 2))]
    rows, text = report(table="training", runs=runs)
    assert sorted(float(row["aggregate_s"]) for row in rows) == [0.5, 1.0, 1.5]
    assert text.count("Stacked bar chart") == 1 and "aggregate 50.0 %" in text


@pytest.mark.parametrize(("metric", "name"), [("micro_f1", "micro-F1"), ("roc_auc", "ROC-AUC")])
def test_scores_are_named_by_their_metric(metric, name, page):
    text = page(runs=[train(metric=metric, epochs=3)])
    assert f"test {name}" in text and f"validation {name}" in text and "test accuracy" not in text
    assert "Time by phase" not in text
