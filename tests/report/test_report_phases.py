"""The time of an epoch by phase, and metrics by their name."""

import pyarrow.parquet
import pytest
from synthetic_records import epochs, train, write_run

from mgg.report import build

PARTS = {"aggregate": 0.5, "dense": 0.25, "communication": 0.125, "other": 0.125}


def page(tmp_path, *runs):
    folders = [write_run(tmp_path / str(number), *run) for number, run in enumerate(runs)]
    build(folders, tmp_path / "out", "t")
    return (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def counted(record, factor=1.0):
    shares = {phase: factor * share for phase, share in PARTS.items()}
    return [epoch.model_copy(update=shares) for epoch in epochs(record)]


def test_runs_that_counted_phases_are_shown(tmp_path):
    record = train(epochs=3)
    text = page(tmp_path, (record, counted(record)))
    assert "Time by phase" in text and "Stacked bar chart" in text
    assert "aggregate 50.0 %" in text and "communication 12.5 %" in text
    (row,) = pyarrow.parquet.read_table(tmp_path / "out" / "training.parquet").to_pylist()
    assert {phase: row[phase] for phase in PARTS} == PARTS


def test_the_median_of_the_seeds(tmp_path):
    runs = [(record, counted(record, factor)) for seed, factor in enumerate((1, 3, 2)) if (record := train(seed=seed))]
    text = page(tmp_path, *runs)
    table = pyarrow.parquet.read_table(tmp_path / "out" / "training.parquet")
    assert sorted(table["aggregate"].to_pylist()) == [0.5, 1.0, 1.5]
    assert text.count("Stacked bar chart") == 1 and "aggregate 50.0 %" in text


def test_runs_without_phases_show_none(tmp_path):
    record = train(epochs=3)
    assert "Time by phase" not in page(tmp_path, (record, epochs(record)))


@pytest.mark.parametrize(("metric", "name"), [("micro_f1", "micro-F1"), ("roc_auc", "ROC-AUC")])
def test_scores_are_called_by_their_metric(metric, name, tmp_path):
    record = train(metric=metric, epochs=3)
    text = page(tmp_path, (record, epochs(record)))
    assert f"test {name}" in text and f"validation {name}" in text and "test accuracy" not in text
