"""Mean test accuracy with the published settings (benchmarks/accuracy.py runs all of it over 10 seeds)."""

import os
import subprocess
import sys

import numpy as np
import pytest
import yaml
from support.benchmarks import script

from mgg.config import validate
from mgg.model import settings_of

benchmark = script("accuracy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "dataset", "seeds", "below"),
    [
        ("gcn", "digits", 2, 0), ("gcn", "cora", 2, 1), ("appnp", "citeseer", 1, 1.5), ("gat", "cora", 1, 1.5),
        ("sgc", "cora", 1, 1), ("rgcn", "aifb", 2, 3),
    ],
)  # fmt: skip
def test_few_seeds_come_near_what_ten_must_reach(model, dataset, seeds, below):
    """By ``below`` percent at most: one of ten seeds may be off by as much (docs/results/accuracy.md)."""
    if dataset != "digits" and "MGG_DATA_DIR" not in os.environ:
        pytest.skip("MGG_DATA_DIR names no folder with the files")
    records = benchmark.accuracy(dataset, seeds, model=model)
    assert 100 * np.mean([record.test_accuracy for record in records]) >= benchmark.TARGETS[model][dataset] - below


def test_every_overlay_is_valid_and_is_found():
    overlays = {path.stem: validate(yaml.safe_load(path.read_text())) for path in benchmark.OVERLAYS.glob("*.yaml")}
    assert overlays
    for config in overlays.values():
        for model in config.train.models:
            settings_of(model, config.train.settings.get(model))
    assert benchmark.settings_for("gat", "pubmed")[1] == {
        "output_heads": 8, "learning_rate": 0.01, "weight_decay": 0.001,
    }  # fmt: skip
    assert benchmark.settings_for("rgcn", "aifb") == (50, {})
    assert benchmark.settings_for("gin", "cora") == (200, {})


@pytest.mark.slow
def test_seeds_side_by_side_give_the_records_of_one_after_the_other():
    alone = benchmark.accuracy("digits", 2, epochs=2)
    options = ["--datasets", "digits", "--seeds", "2", "--epochs", "2", "--jobs", "2"]
    beside = subprocess.run([sys.executable, benchmark.__file__, *options], check=False, capture_output=True, text=True)
    assert beside.returncode == 0, beside.stderr
    expected = [f"seed {seed}: {100 * record.test_accuracy:.2f}" for seed, record in enumerate(alone)]
    assert [line for line in beside.stderr.splitlines() if not line.startswith("digits: ")] == expected
