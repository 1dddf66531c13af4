"""The run's folder, and input that cannot be trained on."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.graphs import make_layout, random_csr
from support.train_graphs import node_data
from support.train_program import run

from mgg.errors import InputError
from mgg.record import read_run

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 3}


def test_the_folder_holds_the_run(layouts, tmp_path):
    result = run("simulated", layouts("planted", 2), 2, out=tmp_path / "deep" / "run", seed=4, **OPTIONS)[0]
    assert {path.name for path in (tmp_path / "deep" / "run").iterdir()} == {
        "run.json", "metrics.jsonl", "metrics.parquet", "predictions.parquet", "weights.safetensors",
    }  # fmt: skip
    record, epochs = read_run(tmp_path / "deep" / "run")
    assert record == result.record
    assert epochs == result.epochs
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3]
    assert (record.pes, record.backend, record.seed, record.epochs) == (2, "simulated", 4, 3)
    assert record.settings["hidden"] == 16
    assert record.settings["row_normalize"] is False  # planted features are dense
    assert record.parameters == 32 * 16 + 16 + 16 * 10 + 10
    best = max(epochs, key=lambda epoch: epoch.validation_accuracy)
    assert record.validation_accuracy == best.validation_accuracy
    assert epochs[record.best_epoch - 1].test_accuracy == record.test_accuracy
    assert record.q1 <= record.median <= record.q3


def test_options_are_recorded_with_their_defaults(layouts):
    record = run("simulated", layouts("planted", 1), 1, **{**OPTIONS, "technique": "mgg", "options": {"ps": 4}})[
        0
    ].record
    assert record.options["ps"] == 4
    assert len(record.options) > 1


def test_sparse_features_are_row_normalized(layouts):
    assert run("simulated", layouts("directed", 1), 1, **OPTIONS)[0].record.settings["row_normalize"] is True


def test_a_run_replaces_an_earlier_one_but_nothing_else(layouts, tmp_path):
    for _ in range(2):
        run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", **OPTIONS)
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("mine")
    with pytest.raises(InputError, match="thesis: exists and is not an output"):
        run("simulated", layouts("planted", 2), 2, out=foreign, **OPTIONS)
    assert [path.name for path in foreign.iterdir()] == ["chapter.txt"]


def test_a_graph_without_features_gives_a_whole_run(layouts, tmp_path):
    options = {"model": "rgcn", "technique": "halo", "epochs": 3, "out": tmp_path / "run"}
    result = run("simulated", layouts("featureless", 2), 2, **options)[0]
    record, epochs = read_run(tmp_path / "run")
    assert (record, epochs) == (result.record, result.epochs)
    assert (record.features, record.best_epoch, record.parameters) == (0, 3, 8 * (240 * 16 + 16 * 4))


def test_a_model_learns(layouts):
    for model in ("gat", "gcn", "gin"):
        result = run("simulated", layouts("planted", 2), 2, model=model, technique="halo", epochs=100)[0]
        assert result.record.test_accuracy > 0.5  # ten classes
        assert result.record.loss < result.epochs[0].loss / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": None}, "model gcn: the graph has no node features"),
        ({"labels": None}, "graph test: has no labels"),
        ({"splits": None}, "graph test: has no training, validation and test splits"),
        ({"splits": np.tile(np.array([0, 0, 2, 3], np.uint8), 15)}, "graph test: its train split is empty"),
        ({"splits": np.tile(np.array([0, 1, 2, 2], np.uint8), 15)}, "graph test: its test split is empty"),
        ({"splits": np.tile(np.array([0, 1, 1, 3], np.uint8), 15)}, "its validation split is empty: .*selection=last"),
        ({"labels": np.where(np.arange(60) < 9, -1, 1)}, "graph test: 2 nodes of its train split have no label"),
    ],
)
def test_graphs_that_cannot_be_trained_on(change, message, tmp_path):
    folder = make_layout(
        tmp_path, random_csr(60, 200), 2, **{k: v for k, v in (node_data() | change).items() if v is not None}
    )
    with pytest.raises(InputError, match=message):
        run("simulated", folder, 2, out=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_without_validation_nodes_the_last_epoch_counts(tmp_path):
    data = node_data() | {"splits": np.tile(np.array([0, 1, 1, 3], np.uint8), 15)}
    folder, options = (
        make_layout(tmp_path, random_csr(60, 200), 2, **data),
        {**OPTIONS, "settings": {"selection": "last"}},
    )
    result = run("simulated", folder, 2, **options)[0]
    assert result.record.best_epoch == len(result.epochs) > 1
    assert result.record.validation_accuracy is None
    assert {epoch.validation_accuracy for epoch in result.epochs} == {None}


def test_a_split_without_nodes_is_not_spoken_of(layouts, tmp_path, capsys):
    for graph, spoken in (("typed", True), ("featureless", False)):
        out = tmp_path / graph
        run("simulated", layouts(graph, 2), 2, model="rgcn", technique="halo", epochs=2, out=out, progress=True)
        assert ("validation" in capsys.readouterr().err) == spoken
        assert (read_run(out)[0].validation_accuracy is not None) == spoken
        column = pq.read_table(out / "metrics.parquet")["validation_accuracy"].to_pylist()
        assert [value is not None for value in column] == [spoken] * 2


@pytest.mark.parametrize("pes", [1, 4])
def test_more_pes_than_training_nodes_and_pes_without_rows(pes, tmp_path):
    data = {
        "features": np.eye(3, 2, dtype=np.float32),
        "labels": np.array([1, 1, 1], np.int32),
        "splits": np.array([1, 2, 3], np.uint8),
    }
    folder = make_layout(tmp_path, random_csr(3, 5), pes, **data)
    for model in ("gcn", "gin"):
        assert len(run("simulated", folder, pes, model=model, technique="halo", epochs=2)[0].epochs) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "gnc"}, "model 'gnc' is unknown"),
        ({"settings": {"hiden": 3}}, "setting of model gcn: hiden: unknown field; did you mean hidden"),
        ({"technique": "hallo"}, "technique 'hallo': unknown; did you mean halo"),
        ({"options": {"ps": 3}}, "technique halo: option ps: unknown field"),
    ],
)
def test_wrong_names(change, message, layouts):
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 2), 2, **{**OPTIONS, **change})


def test_a_loss_that_is_not_finite_names_its_epoch(layouts, tmp_path):
    settings = {"learning_rate": 10.0, "hidden": 8, "weight_decay": 1e6, "dropout": 0.0}
    features = np.full((60, 5), 3e38, np.float32)
    folder = make_layout(tmp_path, random_csr(60, 200), 2, **{**node_data(), "features": features})
    message = r"epoch 1: the training loss is (nan|inf), first in layer layer0 \(VertexLayer\): no step .* features"
    with pytest.raises(InputError, match=message):
        run("simulated", folder, 2, out=tmp_path / "run", **{**OPTIONS, "settings": settings})
    assert not (tmp_path / "run").exists()


def test_no_progress_unless_asked_for(layouts, capfd):
    run("simulated", layouts("planted", 1), 1, **OPTIONS)
    assert capfd.readouterr() == ("", "")
