"""Scores of a finished run, ours and OGB's."""

import shutil
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from sklearn.metrics import roc_auc_score
from support.graphs import make_layout, planted
from support.graphs.train_graphs import GRAPHS
from support.programs.train_program import run
from support.records import alter_run

from mgg import layout
from mgg.errors import InputError, MachineError
from mgg.records import read_run
from mgg.train import Trainer
from mgg.train.evaluate import evaluate


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run, and its record."""
    csr, data = planted()
    here = tmp_path_factory.mktemp("evaluate")
    folder = make_layout(here, csr, 1, **data)
    run("simulated", folder=folder, pes=1, model="gcn", technique="halo", epochs=20, out=here / "run")
    assert layout.read_manifest(folder).pes == 1
    return here / "run", read_run(here / "run")[0]


def renamed(run, folder, dataset):
    """The same run over another data set's name."""
    return alter_run(Path(shutil.copytree(run, folder)), dataset=dataset)


@pytest.fixture
def ogb_run(finished, tmp_path):
    """The same run under a name of OGB's, as good as its 40 classes allow."""
    return renamed(finished[0], tmp_path / "run", "ogbn-arxiv")


def stand_in(monkeypatch, evaluator):
    """Have ``from ogb.nodeproppred import Evaluator`` give this one."""
    package = types.ModuleType("ogb")
    package.nodeproppred = types.ModuleType("ogb.nodeproppred")
    package.nodeproppred.Evaluator = evaluator
    monkeypatch.setitem(sys.modules, "ogb", package)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", package.nodeproppred)


def test_nodes_without_a_label_are_not_scored(finished, tmp_path):
    """Two of three labeled training nodes are right, of the validation nodes none has a label, no node tests."""
    folder = renamed(finished[0], tmp_path / "run", "test")
    path = folder / "predictions.parquet"
    schema = pyarrow.parquet.read_schema(path)
    rows = [(3, 3, 1), (3, 2, 1), (1, 1, 1), (1, -1, 1), (2, -1, 2), (2, 2, 0)]
    named = [dict(zip(schema.names, (node, *row), strict=True)) for node, row in enumerate(rows)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(named, schema), path)
    alter_run(folder)
    found = evaluate(folder)
    assert found["train"] == pytest.approx(2 / 3)
    assert (found["validation"], found["test"], found["nodes"]) == (None, None, 6)


def test_ogb_data_sets_go_to_its_evaluator(ogb_run, monkeypatch):
    calls = []

    class Evaluator:
        def __init__(self, name):
            self.name, self.eval_metric = name, "acc"

        def eval(self, given):
            calls.append(given)
            assert given["y_true"].shape == given["y_pred"].shape == (len(given["y_true"]), 1)
            return {"acc": 0.25}

    stand_in(monkeypatch, Evaluator)
    found = evaluate(ogb_run)
    assert (found["judge"], found["train"], found["test"]) == ("ogb", 0.25, 0.25)
    table = pyarrow.parquet.read_table(ogb_run / "predictions.parquet")
    split, label = (table.column(name).to_numpy() for name in ("split", "label"))
    assert [len(call["y_true"]) for call in calls] == [np.sum((split == k) & (label >= 0)) for k in (1, 2, 3)]


def test_ogb_ranks_tasks_by_their_logits(layouts, tmp_path, monkeypatch):
    """Probabilities of logits this large would all be 1."""
    shape = GRAPHS["tasks"]()[1]["tasks"].shape
    logits = np.random.default_rng(4).uniform(20, 90, shape).astype(np.float32)
    monkeypatch.setattr(Trainer, "_logits", lambda *_: logits.copy())
    options = {"model": "gcn", "technique": "halo", "epochs": 1, "metric": "roc_auc", "out": tmp_path / "run"}
    record = run("simulated", folder=layouts("tasks", 1), pes=1, **options)[0].record

    class Evaluator:
        """OGB's formula for rocauc: the mean over tasks with both answers, unknown ones (NaN) left out."""

        def __init__(self, name):
            self.eval_metric = "rocauc"

        def eval(self, given):
            areas = []
            for true, said in zip(given["y_true"].T, given["y_pred"].T, strict=True):
                known = ~np.isnan(true)
                if (true == 0).any() and (true == 1).any():
                    areas.append(roc_auc_score(true[known], said[known]))
            return {"rocauc": np.mean(areas)}

    stand_in(monkeypatch, Evaluator)
    found = evaluate(renamed(tmp_path / "run", tmp_path / "ogb", "ogbn-proteins"))
    assert (found["judge"], found["metric"]) == ("ogb", "rocauc")
    for split in ("train", "validation", "test"):
        assert found[split] == pytest.approx(getattr(record, f"{split}_accuracy"), abs=1e-12)


def test_without_ogb_the_message_says_how_to_get_it(ogb_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(MachineError, match=r"pip install 'mgg\[ogb\]'"):
        evaluate(ogb_run)


class Refusing:
    """What OGB's Evaluator does with names and shapes that are not its data sets'."""

    eval_metric = "acc"

    def __init__(self, name):
        if name == "ogbn-foo":
            print(name)
            raise ValueError(f"Invalid dataset name {name}.\nAvailable datasets are as follows:\nogbn-arxiv")

    def eval(self, given):
        raise RuntimeError("Number of tasks for ogbn-proteins should be 112 but 1 given")


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "said"),
    [("foo", "Invalid dataset name ogbn-foo"), ("proteins", "Number of tasks .* should be 112 but 1 given")],
)
def test_graph_with_only_the_name_of_an_ogb_data_set_is_scored_here(
    name, said, real, finished, tmp_path, monkeypatch, capsys
):
    """One line, and nothing else: standard output belongs to the scores."""
    if real:
        pytest.importorskip("ogb")
    else:
        stand_in(monkeypatch, Refusing)
    folder = renamed(finished[0], tmp_path / "run", f"ogbn-{name}")
    message = (
        rf"{folder}: OGB's Evaluator refuses the predictions \({said}\): is the graph OGB's ogbn-{name}\? .* again"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        evaluate(folder)
    assert capsys.readouterr().out == ""


def test_scores_match_the_record_and_the_ogb_evaluator(finished, ogb_run):
    record, ours = finished[1], evaluate(finished[0])
    assert (ours["judge"], ours["metric"]) == ("mgg", "acc")
    assert ours["test"] == pytest.approx(record.test_accuracy, abs=1e-12)
    assert ours["validation"] == pytest.approx(record.validation_accuracy, abs=1e-12)
    if find_spec("ogb") is None:
        return
    theirs = evaluate(ogb_run)
    assert theirs["judge"] == "ogb"
    for split in ("train", "validation", "test"):
        assert theirs[split] == pytest.approx(ours[split], abs=1e-12)


def test_damaged_predictions_are_refused(finished, tmp_path):
    run = Path(shutil.copytree(finished[0], tmp_path / "run"))
    (run / "predictions.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"predictions\.parquet: altered since the run was written: .* train again"):
        evaluate(run)
    with pytest.raises(InputError, match=r"predictions\.parquet: not readable"):
        evaluate(alter_run(run))
    pyarrow.parquet.write_table(pyarrow.table({"node": [0]}), run / "predictions.parquet")
    with pytest.raises(InputError, match=r"has columns node, expected node, .* or node, logit, .*; train again"):
        evaluate(alter_run(run))


def test_folder_without_a_run_is_refused(finished, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", finished[0] / "weights.safetensors"):
        with pytest.raises(InputError) as caught:
            evaluate(path)
        assert str(caught.value) == f"{path}: not a run folder (no run.json); make it with mgg train"
