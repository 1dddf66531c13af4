"""The run's folder, and input that cannot be trained on."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.graphs import make_layout, random_csr
from support.graphs.train_graphs import node_data
from support.programs.train_program import run
from support.ranks import changed_environment

from mgg.errors import InputError
from mgg.records import EpochRecord, read_run
from mgg.train.run.output import EpochColumns

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 3}


def test_run_folder_has_all_files(layouts, tmp_path):
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
    # Another one takes its place; sparse features are normalized, options have their defaults beside them.
    options = {**OPTIONS, "technique": "mgg", "options": {"ps": 4}, "out": tmp_path / "deep/run"}
    record = run("simulated", layouts("directed", 1), 1, **options)[0].record
    assert record == read_run(tmp_path / "deep/run")[0] and record.settings["row_normalize"] is True
    assert record.options["ps"] == 4 and len(record.options) > 1


def test_every_model_learns(layouts):
    for model in ("gat", "gin"):
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
def test_untrainable_graphs_are_refused(change, message, tmp_path):
    data = {name: values for name, values in (node_data() | change).items() if values is not None}
    folder = make_layout(tmp_path, random_csr(60, 200), 2, **data)
    with pytest.raises(InputError, match=message):
        run("simulated", folder, 2, out=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_last_epoch_is_best_without_validation_nodes(tmp_path):
    data = node_data() | {"splits": np.tile(np.array([0, 1, 1, 3], np.uint8), 15)}
    folder = make_layout(tmp_path, random_csr(60, 200), 2, **data)
    result = run("simulated", folder, 2, settings={"selection": "last"}, **OPTIONS)[0]
    assert result.record.best_epoch == len(result.epochs) > 1
    assert result.record.validation_accuracy is None
    assert {epoch.validation_accuracy for epoch in result.epochs} == {None}


def test_empty_split_is_not_reported(layouts, tmp_path, capsys):
    for graph, spoken in (("typed", True), ("featureless", False)):
        out = tmp_path / graph
        run("simulated", layouts(graph, 2), 2, model="rgcn", technique="halo", epochs=2, out=out, progress=True)
        assert ("validation" in capsys.readouterr().err) == spoken
        record = read_run(out)[0]
        assert (record.validation_accuracy is not None) == spoken
        if not spoken:
            assert (record.features, record.best_epoch, record.parameters) == (0, 2, 8 * (240 * 16 + 16 * 4))
        column = pq.read_table(out / "metrics.parquet")["validation_accuracy"].to_pylist()
        assert [value is not None for value in column] == [spoken] * 2


def test_progress_is_silent_by_default(layouts, capfd):
    run("simulated", layouts("planted", 1), 1, **OPTIONS)
    assert capfd.readouterr() == ("", "")


CODE = """
import sys
from mgg.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
#: Packages that lie in an environment with MGG and take a tenth of a second or more.
HEAVY = {"cupy", "matplotlib", "networkx", "pandas", "pymetis", "rich", "sklearn", "snakemake", "torch"}


@pytest.mark.slow
def test_training_imports_only_what_it_needs(layouts, tmp_path):
    """From the command line to the run's folder, its Parquet tables among what is written."""
    pytest.importorskip("pandas")  # else nobody could load it
    command = ["train", str(layouts("planted", 1)), "--model", "gat", "--technique", "local", "--backend", "simulated"]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command, "--epochs", "2", "--out", str(tmp_path / "run")],
        capture_output=True, text=True, check=True, env=changed_environment({}),
    )  # fmt: skip
    assert (tmp_path / "run" / "predictions.parquet").exists()
    assert not HEAVY & set(done.stdout.split())


def test_epoch_table_equals_that_of_arrow():
    epochs = [
        EpochRecord(
            epoch=number, loss=0.5 / number, train_accuracy=0.0, test_accuracy=1.0, seconds=1e-3,
            validation_loss=None if number % 3 else 0.25 * number, dense=0.0 if number == 2 else None,
        )
        for number in range(1, 12)
    ]  # fmt: skip
    for some in (epochs, epochs[:1], []):
        columns = EpochColumns()
        columns.extend(some)
        table = columns.table()
        table.validate(full=True)
        assert table == pa.Table.from_pylist([epoch.model_dump() for epoch in some], schema=table.schema)
    assert table.schema.field("epoch").type == pa.from_numpy_dtype(np.int64)
    columns.extend(epochs)
    assert columns.table()["dense"].null_count == 10
