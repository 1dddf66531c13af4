"""The ways to a graph folder: one job, or scatter, shards and gather; in the source's order, or renumbered."""

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from support.workflow import Folder, job_counts, settings_of

from mgg.config import Config
from mgg.errors import InputError
from mgg.graph.build import build
from mgg.model.zoo import gcn
from mgg.records import read_run
from mgg.workflow.plan import WorkflowPlan

DATASETS = {"digits": {}, "planted": {"scale": 0.05, "order": "degree"}}
OVERLAY = {
    "graph": {"datasets": DATASETS},
    "partition": {"pes": [1], "quality_pes": []},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 0, "iterations": 1},
    "train": {"models": [], "pes": [1]},
}


def write(folder: Folder, name: str, **graph) -> str:
    folder.overlay(OVERLAY | {"graph": {"datasets": DATASETS} | graph}, name)
    return name


@pytest.mark.slow
def test_scattered_jobs_build_the_same_graph(folder: Folder):
    named = folder.names(overlay=write(folder, "one.yaml"))
    graphs = [named[f"results/graph/{name}"] for name in DATASETS]
    one = folder.run("--printshellcmds", *graphs, overlay=write(folder, "one.yaml"))
    assert one.returncode == 0, one.stdout
    manifests = [(folder.path / graph / "manifest.yaml").read_bytes() for graph in graphs]
    folder.results.rename(folder.path / "one")
    many = folder.run("--printshellcmds", *graphs, overlay=write(folder, "many.yaml", shards=3, memory="1GiB"))
    assert many.returncode == 0, many.stdout
    assert job_counts(many.stdout) == {
        "retrieve": 1, "graph_scatter": 1, "graph_shard": 3, "graph_gather": 1, "generate": 1, "order": 1, "total": 8,
    }  # fmt: skip
    assert manifests == [(folder.path / graph / "manifest.yaml").read_bytes() for graph in graphs]
    assert yaml.safe_load(manifests[1])["order"] == "degree"
    assert not (folder.results / "graph_scatter/digits").exists(), "what is needed no more is removed"
    assert "--memory 1GiB" in many.stdout


@pytest.mark.slow
def test_order_adds_its_jobs(folder: Folder):
    shown = folder.run("--dry-run", overlay=write(folder, "one.yaml")).stdout
    counts = job_counts(shown)
    assert (counts["graph"], counts["generate"], counts["order"]) == (1, 1, 1)
    assert "mgg generate planted --name planted --out results/graph_natural/planted" in shown
    assert "mgg graph results/graph_natural/planted --out results/graph/planted --order degree" in shown


def own_tables(folder: Folder, nodes: int = 12) -> Path:
    """A ring with labels, features and a split, as two tables."""
    made = folder.path / "my data"
    made.mkdir()
    arcs = [f"{v},{(v + 1) % nodes}" for v in range(nodes)]
    (made / "edges.csv").write_text("\n".join(["source,target", *arcs, ""]))
    rows = [f"{v},{v % 2},{('train', 'validation', 'test')[v // 2 % 3]},{v % 2}.5" for v in range(nodes)]
    (made / "nodes.csv").write_text("\n".join(["id,label,split,x", *rows, ""]))
    return made


def own_overlay(folder: Folder, **datasets) -> None:
    train = {"datasets": None, "models": ["gcn"], "pes": [1], "epochs": 2}
    folder.overlay(OVERLAY | {"graph": {"datasets": datasets}, "train": train}, "own.yaml")


@pytest.mark.slow
def test_user_files_go_through_every_stage_and_rerun_on_changes(folder: Folder):
    made = own_tables(folder)
    own_overlay(folder, mine={"source": "my data", "loader": "table", "labels": True, "symmetrize": True})
    model = folder.path / "my models/own_gcn.py"
    model.parent.mkdir()
    reader = "import sys\nprint('read by', sys.argv, file=sys.stderr)\n"
    shutil.copyfile(gcn.__file__, model)
    with model.open("a") as file:
        file.write(reader)
    overlay = yaml.safe_load((folder.path / "own.yaml").read_text())
    overlay["train"] |= {"models": ["gcn", "my models/own_gcn.py"], "settings": {"own_gcn": {"hidden": 4}}}
    folder.overlay(overlay, "own.yaml")
    run = folder.run(overlay="own.yaml")
    assert run.returncode == 0, run.stdout
    assert folder.made("train/mine/gcn-halo-p1-s0/run.json").is_file()
    trained = folder.made("train/mine/own_gcn-halo-p1-s0")
    record, content = read_run(trained)[0], model.read_bytes()
    assert (record.model, record.model_file) == ("own_gcn", hashlib.sha256(content).hexdigest())
    assert record.settings["hidden"] == 4 and (trained / "model/own_gcn.py").read_bytes() == content
    assert "own_gcn" in (folder.results / "report/index.html").read_text(encoding="utf-8")
    assert "read by" not in run.stdout, "what plans and reports runs nothing of the user's file"
    log = folder.results / "logs" / trained.relative_to(folder.results).with_name(f"{trained.name}.log")
    assert log.read_text().count("read by") == 1
    os.utime(model)
    assert "Nothing to be done" in folder.run("--dry-run", overlay="own.yaml").stdout
    manifest = yaml.safe_load(folder.made("graph/mine/manifest.yaml").read_text())
    assert (manifest["name"], manifest["nodes"], manifest["arcs"], manifest["classes"]) == ("mine", 12, 24, 2)
    assert not (folder.results / "retrieve").exists()
    with (made / "edges.csv").open("a") as file:
        file.write("0,6\n")
    model.write_text(model.read_text() + "\n")
    os.utime(model, (10**9, 10**9))
    shown = folder.run("--dry-run", overlay="own.yaml")
    assert job_counts(shown.stdout)["graph"] == 1, shown.stdout
    (words,) = re.findall(r"mgg train .* --model 'my models/own_gcn.py' .*", shown.stdout)
    assert f"--model-hash {hashlib.sha256(model.read_bytes()).hexdigest()} " in words
    assert trained.name not in shown.said, "the earlier run stays as it is, under its own name"


@pytest.mark.slow
def test_user_files_work_sharded_and_by_url(folder: Folder):
    made = own_tables(folder)
    (made / "edges.csv").rename(folder.path / "pairs.csv")
    mine = {"source": f"file://{folder.path}/pairs.csv", "repeats": "sum", "loops": "keep"}
    mine["column"] = {"source": "source", "ignore": []}
    own_overlay(folder, mine=mine, digits={})
    shown = folder.run("--dry-run", overlay="own.yaml").stdout
    assert (
        f"mgg graph {folder.path}/pairs.csv --out results/graph/mine --name mine --column source=source --repeats sum"
        " --loops keep --memory" in shown
    )
    assert "train.models: not trained on mine: no labels are known of; `labels: true` says that own files" in shown
    assert "mgg train results/layout/mine" not in shown and "mgg train results/layout/digits" in shown
    folder.overlay({"graph": {"shards": 2}}, "shards.yaml")
    named = folder.names(overlay=["own.yaml", "shards.yaml"])
    run = folder.run("--printshellcmds", named["results/graph/mine"], overlay=["own.yaml", "shards.yaml"])
    assert run.returncode == 0, run.stdout
    manifest = yaml.safe_load(folder.made("graph/mine/manifest.yaml").read_text())
    assert [manifest[field] for field in ("name", "repeats", "loops")] == ["mine", "sum", "keep"]


@pytest.mark.slow
def test_missing_labels_of_files_fail_in_stage_graph(folder: Folder):
    own_tables(folder)
    (folder.path / "my data/nodes.csv").unlink()
    own_overlay(folder, mine={"source": "my data/edges.csv", "labels": True})
    for overlay in ("own.yaml", ["own.yaml", "shards.yaml"]):
        folder.overlay({"graph": {"shards": 2}}, "shards.yaml")
        run = folder.run(overlay=overlay)
        assert run.returncode != 0
        assert (
            "my data/edges.csv: nodes have no labels, and --labels (in the config: graph.datasets.mine.labels"
            in run.stdout
        )
        assert not (folder.results / "graph").exists() and not (folder.results / "partition").exists()


def own_graph(folder: Folder, source: str | Path, monkeypatch: pytest.MonkeyPatch, **given: bool) -> Config:
    """The config of a graph folder made of this source."""
    monkeypatch.chdir(folder.path)
    build(source, Path("mine"))
    train = {"datasets": None, "models": ["gcn"], "pes": [1]}
    return settings_of(OVERLAY | {"graph": {"datasets": {"mine": {"source": "mine", **given}}}, "train": train})


def test_missing_labels_of_a_graph_folder_fail_at_the_start(folder: Folder, monkeypatch):
    (folder.path / "pairs.csv").write_text("source,target\n0,1\n")
    with pytest.raises(InputError, match=r"graph\.datasets\.mine: labels: nodes of the graph folder mine have none"):
        own_graph(folder, Path("pairs.csv"), monkeypatch, labels=True)


def test_graph_folder_states_whether_it_has_labels(folder: Folder, monkeypatch):
    assert WorkflowPlan(own_graph(folder, "digits", monkeypatch)).trained == ["mine"]
