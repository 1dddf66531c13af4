"""The ways to a graph folder: one job, or scatter, shards and gather; in the source's order, or renumbered."""

import yaml
from support.workflow import Folder, job_counts

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


def test_scattered_jobs_make_the_same_graph_as_one(folder: Folder):
    graphs = [f"results/graph/{name}" for name in DATASETS]
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


def test_the_plan_of_an_order(folder: Folder):
    shown = folder.run("--dry-run", overlay=write(folder, "one.yaml")).stdout
    counts = job_counts(shown)
    assert (counts["graph"], counts["generate"], counts["order"]) == (1, 1, 1)
    assert "mgg generate planted --name planted --out results/graph_natural/planted" in shown
    assert "mgg graph results/graph_natural/planted --out results/graph/planted --order degree" in shown
