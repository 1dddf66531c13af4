"""Mean test accuracy with the published settings (the overlays of config/models run all of it over 10 seeds)."""

import os

import numpy as np
import pytest
import yaml
from support.workflow import ROOT

import mgg
from mgg.config import validate
from mgg.model import settings_of

OVERLAYS = {path.stem: validate(yaml.safe_load(path.read_text())) for path in (ROOT / "config/models").glob("*.yaml")}


def overlay_of(model, dataset):
    """Epochs and settings of the overlay that names both, else 200 epochs and the model's own."""
    for config in OVERLAYS.values():
        if dataset in config.graph.datasets and model in config.train.models:
            return config.train.epochs, config.train.settings.get(model, {})
    return 200, {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "dataset", "seeds", "least"),
    [
        ("gcn", "digits", 2, 95), ("gcn", "cora", 2, 80), ("appnp", "citeseer", 1, 69), ("gat", "cora", 1, 80.5),
        ("sgc", "cora", 1, 79.5), ("rgcn", "aifb", 2, 91),
    ],
)  # fmt: skip
def test_few_seeds_come_near_the_published_accuracy(model, dataset, seeds, least, tmp_path):
    """0 to 3 points less than asked of the mean of ten (docs/results/accuracy.md): one may be off by as much."""
    if dataset != "digits" and "MGG_DATA_DIR" not in os.environ:
        pytest.skip("MGG_DATA_DIR names no folder with the files")
    epochs, settings = overlay_of(model, dataset)
    graph = mgg.graph(dataset, out=tmp_path / "graph").path
    runs = [mgg.train(graph, model=model, settings=settings, epochs=epochs, seed=seed) for seed in range(seeds)]
    assert 100 * np.mean([run.record.test_accuracy for run in runs]) >= least


def test_every_accuracy_overlay_is_valid():
    assert OVERLAYS
    for config in OVERLAYS.values():
        for model in config.train.models:
            settings_of(model, config.train.settings.get(model))
    gat = {"output_heads": 8, "learning_rate": 0.01, "weight_decay": 0.001}
    assert overlay_of("gat", "pubmed") == (300, gat)
    assert overlay_of("rgcn", "aifb") == (50, {})
    assert overlay_of("gin", "cora") == (200, {})
