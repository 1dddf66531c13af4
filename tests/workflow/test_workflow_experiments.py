"""The overlays of config/experiments/: each is planned, some are run, at their smallest."""

import csv
import importlib.util
import re
from itertools import pairwise, product

import pytest
import yaml
from support import workflow
from support.workflow import ROOT, Folder, job_counts, settings_of

from mgg.aggregate import parse_options
from mgg.aggregate.variants import expand
from mgg.config import LOOKUP_SIDES
from mgg.graph.datasets import catalog
from mgg.graph.generators import communities
from mgg.records import read_lines, read_partition, read_run
from mgg.records.lookup import LookupRecord
from mgg.records.prediction import PredictionRecord
from mgg.report.papers.catalogue import EXPERIMENTS, FORESEEN, stand_in
from mgg.report.tables.numbers import quantity
from mgg.workflow import options
from mgg.workflow.plan import WorkflowPlan

NAMES = sorted(path.stem for path in (ROOT / "config/experiments").glob("*.yaml"))
#: What the page shows without being asked for a figure.
UNASKED = ["predicted_scaling"]
#: Smaller than config/laptop.yaml: one graph of a few hundred nodes.
SMALLER = {"results": "results", "graph": {"scale": 0.001}, "aggregate": {"iterations": 2}, "train": {"epochs": 2}}


#: What a figure of memory says of runs without GPUs.
MEMORY = "memory is measured on GPUs alone"
#: What experiments on one PE want beside config/laptop.yaml.
ONE_PE = {"partition": {"pes": [1]}, "train": {"pes": [1]}}
GNNA = ONE_PE | {"train": {"pes": [1], "epochs": 2}}


def overlays(name: str) -> list[str]:
    return [f"config/experiments/{name}.yaml", "config/laptop.yaml"]


def runs_of(values: dict) -> int:
    """Trainings of a data set, by the config of an experiment."""
    train = values["train"]
    sides = train.get("sides", {})
    techniques = train.get("techniques", [])
    libraries = sum(len(models) for side, models in sides.items() if side != "unfused")
    each = (len(train["models"]) + len(sides.get("unfused", []))) * len(techniques) + libraries
    return each * len(train.get("seeds", [0]))


def test_every_figure_has_its_overlay():
    assert sorted([*EXPERIMENTS, *FORESEEN, *UNASKED]) == NAMES


@pytest.mark.slow
def test_lookups_are_planned_and_run(folder: Folder):
    """They need no graph; the page sets the sides beside the paper's milliseconds."""
    small = {"results": "results", "lookup": {"scale": 0.0005, "samples": 600, "batches": [64, 300], "launches": 1}}
    folder.overlay(small, "small.yaml")
    run = folder.run(overlay=[*overlays("mgg_table4"), "small.yaml"])
    assert run.returncode == 0, run.stdout
    counts = job_counts(run.stdout)
    assert (counts["samples"], counts["lookup"]) == (1, 1) and not {"graph", "partition", "layout"} & counts.keys()
    (file,) = folder.path.glob("results/experiments/mgg_table4/lookup/*/*/p2-*.jsonl")
    records = read_lines(file, LookupRecord)
    assert {(record.side, record.batch) for record in records} == set(product(LOOKUP_SIDES, (64, 300)))
    assert all(record.error <= record.tolerance and record.pes == 2 for record in records)
    page = (folder.path / "results/experiments/mgg_table4/report/index.html").read_text()
    assert "119.66 ms" in page and "Side mgg takes" in page


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mgg_table4"])
def test_experiment_is_planned(name: str):
    values = yaml.safe_load((ROOT / f"config/experiments/{name}.yaml").read_text())
    figures = [] if name in UNASKED else [name]
    assert values["experiment"] == name and values["report"].get("figures", []) == figures
    alone = name.startswith(("seastar_", "gnna_", "mgg_table3"))
    settings = settings_of(*overlays(name), *([ONE_PE] if alone else []))
    plan, graphs = WorkflowPlan(settings), list(values["graph"]["datasets"])
    words = options.report_options(settings.report)
    assert [after for before, after in pairwise(words) if before == "--figure"] == figures
    assert settings.partition.pes == [1 if alone else 2] and plan.records == f"results-laptop/experiments/{name}"
    assert list(plan.datasets) == graphs
    runs = list(product(plan.trained, options.learners(settings.train), settings.train.seeds))
    assert len(runs) == len(graphs) * runs_of(values)
    made = [graph for graph in graphs if graph not in catalog()]
    assert list(plan.generated) == made and (alone or made == graphs)
    commands = [options.generator_options(plan.datasets[graph], settings.graph.scale) for graph in made]
    assert any(re.search(r"--scale 0\.00[0-9]+", " ".join(command)) for command in commands)


@pytest.mark.slow
def test_predictions_and_trainings_become_jobs(folder: Folder):
    """Every other one is made of the same parts."""
    run = folder.run("--dry-run", overlay=overlays("mgg_fig7"))
    assert run.returncode == 0, run.stdout
    out = "--out results-laptop/experiments/mgg_fig7"
    assert f"{out}/aggregate/" in run.stdout and f"{out}/train/" in run.stdout
    assert "--figure mgg_fig7 " in run.stdout


def test_cola_stand_ins_have_the_node_counts_of_their_graphs():
    values = yaml.safe_load((ROOT / "config/experiments/cola_table6.yaml").read_text())
    for name, given in values["graph"]["datasets"].items():
        shape = communities.SHAPES[given.get("generator", name)]
        assert shape.nodes * given.get("scale", 1.0) == pytest.approx(stand_in(name).nodes, rel=0.003), name
    seeds = [options["seed"] for options in values["graph"]["datasets"].values() if "seed" in options]
    assert len(seeds) == len(set(seeds)) == 6


@pytest.mark.parametrize(
    "name", ["cola_table2", "cola_table3", "cola_table8", "cola_table11", "cola_fig3", "cola_fig5"]
)
def test_cola_overlays_share_their_graphs(name: str):
    """So that they share results, and a number of one is of the graph of another; table 11 labels them."""
    first, other = (
        yaml.safe_load((ROOT / f"config/experiments/{each}.yaml").read_text()) for each in ("cola_table6", name)
    )
    labels = {"features": 16, "classes": 16} if name == "cola_table11" else {}
    assert "results" not in other
    assert other["graph"]["datasets"] == {
        graph: options | labels for graph, options in first["graph"]["datasets"].items()
    }


def test_volume_tables_partition_like_the_paper():
    """CoLa 2.2: panels of equally many rows; docs/concepts/techniques.md says that the others do not."""
    schemes = {
        name: yaml.safe_load((ROOT / f"config/experiments/{name}.yaml").read_text())["partition"].get("scheme")
        for name in NAMES
        if name.startswith("cola_")
    }
    assert {name for name, scheme in schemes.items() if scheme == "equal_nodes"} == {"cola_table2", "cola_table3"}
    assert set(schemes.values()) == {"equal_nodes", None}


@pytest.mark.parametrize(
    ("name", "count"), [("cola_table10", 8), ("cola_reorder_cost", 8), ("gnna_fig12c", 4), ("gnna_fig13b", 4)]
)
def test_both_orders_are_one_graph(name: str, count: int):
    values = yaml.safe_load((ROOT / f"config/experiments/{name}.yaml").read_text())
    graphs = values["graph"]["datasets"]
    for graph in [graph for graph in graphs if graph.endswith("-shuffled")]:
        assert graphs[graph.replace("-shuffled", "-reordered")] == graphs[graph] | {"order": "rabbit"}
    assert len(graphs) == count


@pytest.mark.slow
def test_volumes_run_from_graph_to_table(folder: Folder):
    """Tables 2 and 3 have the same graphs and partitions."""
    graph = SMALLER["graph"] | {"datasets": {"pokec-like": {"generator": "web-like"}}}
    folder.overlay(SMALLER | {"graph": graph, "report": {"figures": ["cola_table2", "cola_table3"]}}, "s.yaml")
    run = folder.run(overlay=[*overlays("cola_table2"), "s.yaml"])
    assert run.returncode == 0, run.stdout
    assert not (folder.results / "layout").exists(), "nothing runs"
    page = (folder.results / "experiments/cola_table2/report/index.html").read_text(encoding="utf-8")
    assert read_partition(folder.made("partition/pokec-like/p16")).scheme == "equal_nodes"  # CoLa 2.2
    text = re.sub("<[^>]+>", "", page)
    assert "pokec-like, 16 PEs" in text and "V_FC is the least of V_CG, V_FR and V_FC on 1 of 1 graph" in text
    assert "VI_CoLa is the least of" in text


@pytest.mark.slow
def test_predicted_scaling_runs_from_8_to_1024_pes(folder: Folder):
    folder.overlay(SMALLER | {"graph": {"datasets": {"reddit-like": {"scale": 0.01}}}}, "s.yaml")
    run = folder.run(overlay=["config/experiments/predicted_scaling.yaml", "s.yaml"])
    assert run.returncode == 0, run.stdout
    assert not (folder.results / "layout").exists(), "nothing runs"
    experiment = folder.results / "experiments/predicted_scaling"
    found = read_lines(workflow.made(experiment, "predict/reddit-like.jsonl")[0], PredictionRecord)
    assert sorted({(record.pes, record.workgroup, record.machine) for record in found}) == [
        (2**power, 8, "h200") for power in range(3, 11)
    ]
    assert len(found) == 8 * 4
    page = (experiment / "report/index.html").read_text(encoding="utf-8")
    assert '<section id="predictions">' in page and "predicted time of one aggregation over PEs" in page


@pytest.mark.slow
def test_five_layer_epochs_run_from_graph_to_table(folder: Folder):
    graph = {"pokec-like": {"generator": "web-like", "features": 4, "classes": 3}}
    table9 = yaml.safe_load((ROOT / "config/experiments/cola_table9.yaml").read_text())  # needs no training
    products = {key: table9[key] for key in ("aggregate", "predict")} | {"partition": {"workgroup": 4}}
    values = SMALLER | {"graph": SMALLER["graph"] | {"datasets": graph}} | products
    train = {"epochs": 2, "techniques": ["cola", "mgg"]}
    folder.overlay(values | {"train": train, "report": {"figures": ["cola_table11", "cola_table9"]}}, "s.yaml")
    run = folder.run(overlay=[*overlays("cola_table11"), "s.yaml"])
    assert run.returncode == 0, run.stdout
    record, _ = read_run(folder.made("experiments/cola_table11/train/pokec-like/gcn-cola-p2-s0"))
    assert (record.settings["layers"], record.settings["hidden"]) == (5, 32)
    assert record.parameters == 4 * 32 + 3 * 32 * 32 + 32 * 3 + 4 * 32 + 3
    with (folder.results / "experiments/cola_table11/report/figures.csv").open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["model"]]
    assert (row["rival"], row["model"], round(float(row["paper"]), 2)) == ("MGG", "gcn", 3.71)  # 1.93 / 0.52
    page = (folder.results / "experiments/cola_table11/report/index.html").read_text(encoding="utf-8")
    assert "Means over the graphs, predicted for v100" in page[page.index('<section id="cola_table9">') :]


def test_grid_of_options_reaches_the_command_line():
    words = options.aggregate_options(settings_of(*overlays("mgg_fig11")).aggregate)
    variants = [after for before, after in pairwise(words) if before == "--variant"]
    assert variants == ["mgg:ps=1,2,4,8,16,32:dist=1,2,4,8,16:wpb=1,2,4,8,16"]


def test_default_settings_are_in_the_sweep():
    values = yaml.safe_load((ROOT / "config/experiments/mgg_fig11.yaml").read_text())
    assert parse_options("mgg", {}) in expand("mgg", {}, values["aggregate"]["variants"]["mgg"])


def made(folder: Folder, name: str, datasets: dict, **sections: dict) -> list[dict[str, str]]:
    """Run an experiment on small graphs; the rows of its table figures."""
    folder.overlay(SMALLER | {"graph": SMALLER["graph"] | {"datasets": datasets}} | sections, "smaller.yaml")
    run = folder.run(overlay=[*overlays(name), "smaller.yaml"])
    assert run.returncode == 0, run.stdout
    report = folder.results / "experiments" / name / "report"
    assert f'<section id="{name}">' in (report / "index.html").read_text(encoding="utf-8")
    with (report / "figures.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_reordering_cost_runs_from_jobs_to_table(folder: Folder):
    """Seconds are those of the job that renumbered the graph, as the workflow's own table has them."""
    shuffled = {"generator": "web-like", "shuffle": True, "features": 4, "classes": 3}
    graphs = {"a-like-shuffled": shuffled, "a-like-reordered": shuffled | {"order": "rabbit"}}
    products = yaml.safe_load((ROOT / "config/experiments/cola_table10.yaml").read_text())["aggregate"]
    figures = {"figures": ["cola_reorder_cost", "cola_table10"]}
    rows = made(folder, "cola_reorder_cost", graphs, aggregate=products | {"iterations": 2}, report=figures)
    assert {row["figure"] for row in rows} == {"cola_table10"}
    report = folder.results / "experiments/cola_reorder_cost/report"
    with (report / "jobs.csv").open(newline="") as file:
        (job,) = [row for row in csv.DictReader(file) if row["rule"] == "order"]
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", (report / "index.html").read_text(encoding="utf-8")))
    assert "a-like, gcn, 2 PEs, seed 0 " + quantity(float(job["ran_s"])) in text


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="no PyTorch Geometric to compare with")
def test_stand_ins_for_other_systems_run_from_graph_to_figure(folder: Folder):
    """One run of figures 8 to 11 and table 2, which share graphs, models and settings here."""
    train = {**GNNA["train"], "models": ["gcn"], "sides": {"pyg_csr": ["gcn"], "pyg": ["gcn"]}}
    figures = {"gnna_fig8": "4.03", "gnna_fig9": "1.61", "gnna_fig10": "1.78", "gnna_table2": "4.102"}
    products = yaml.safe_load((ROOT / "config/experiments/gnna_fig11.yaml").read_text())["aggregate"]
    sections = {"train": train, "aggregate": products, "report": {"figures": [*figures, "gnna_fig11"]}}
    rows = made(folder, "gnna_fig8", {"reddit-like": {"features": 6, "classes": 3}}, **(GNNA | sections))
    assert {row["figure"]: row["paper"][:5] for row in rows if row["model"]} == figures
    assert {(row["rival"], row["dim"], row["paper"]) for row in rows if row["figure"] == "gnna_fig11"} == {
        (rival, dim, paper) for rival, paper in (("a thread per arc", "2.89"), ("local", "")) for dim in ("16", "64")
    }
    assert all(float(row["ratio"]) > 0 for row in rows)


@pytest.mark.slow
def test_products_and_trainings_run_from_graph_to_figure(folder: Folder):
    rows = made(folder, "mgg_fig7", {"reddit-like": {"features": 6, "classes": 3}})
    assert sorted((row["dim"], row["model"], row["paper"]) for row in rows) == [
        ("", "gcn", "4.25"), ("", "gin", "4.57"), ("16", "", "4.25"), ("64", "", "4.57"),
    ]  # fmt: skip
    assert all(float(row["ratio"]) > 0 for row in rows)


@pytest.mark.slow
def test_models_over_techniques_run_from_graph_to_table(folder: Folder):
    rows = made(folder, "mgg_table2", {"reddit-like": {"features": 6, "classes": 3}})
    assert sorted((row["model"], row["paper"]) for row in rows) == [("gat", "2.65"), ("sage", "4.97")]
    run = "experiments/mgg_table2/train/reddit-like/gat-mgg-p2-s0"
    record = read_run(folder.made(run))[0]
    assert record.settings["attention"] == "product" and record.bytes_wire > 0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="no PyTorch Geometric to compare with")
def test_libraries_run_from_graph_to_figure(folder: Folder):
    folder.overlay(SMALLER | ONE_PE | {"graph": {"scale": 0.02, "datasets": {"mutag-like": {}}}}, "smaller.yaml")
    figures = {"figures": ["seastar_table3", "seastar_table4"]}  # the same trainings, by time and by memory
    folder.overlay({"train": {"epochs": 2, "pes": [1]}, "report": figures}, "epochs.yaml")
    run = folder.run(overlay=[*overlays("seastar_table3"), "smaller.yaml", "epochs.yaml"])
    assert run.returncode == 0, run.stdout
    trained = "experiments/seastar_table3/train/mutag-like/rgcn-{}-p1-s0"
    records = [read_run(folder.made(trained.format(name)))[0] for name in ("local", "pyg", "pyg_bmm")]
    assert [record.side for record in records] == ["mgg", "pyg", "pyg_bmm"]
    assert {(record.settings["bases"], record.settings["weight_decay"]) for record in records} == {(30, 5e-4)}
    with (folder.results / "experiments/seastar_table3/report/figures.csv").open(newline="") as file:
        rows = {row["rival"]: round(float(row["paper"]), 2) for row in csv.DictReader(file)}
    assert rows == {"PyG": 7.54, "PyG-bmm": 2.76}  # 63.3 / 8.4, 23.2 / 8.4
    page = (folder.results / "experiments/seastar_table3/report/index.html").read_text(encoding="utf-8")
    assert MEMORY in page[page.index('<section id="seastar_table4">') :]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="no PyTorch Geometric to compare with")
def test_fused_passes_run_from_graph_to_figure(folder: Folder):
    """Figures 10 and 11 have the same trainings, too."""
    train = {"epochs": 2, "pes": [1], "models": ["gat"], "sides": {"pyg": ["gat"], "unfused": ["gat"]}}
    sections = ONE_PE | {"train": train, "report": {"figures": ["seastar_fig10", "seastar_fig11"]}}
    rows = made(folder, "seastar_fig10", {"photo-like": {"features": 6, "classes": 3}}, **sections)
    assert {(row["figure"], row["rival"]) for row in rows} == {
        ("seastar_fig10", "PyG"),
        ("seastar_fig10", "MGG, unfused"),
    }
    page = (folder.results / "experiments/seastar_fig10/report/index.html").read_text(encoding="utf-8")
    assert MEMORY in page[page.index('<section id="seastar_fig11">') :]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="no PyTorch Geometric to compare with")
def test_sampling_runs_from_graph_to_figure(folder: Folder):
    one = {"partition": {"pes": [1]}, "train": {"epochs": 2, "pes": [1], "seeds": [0]}}
    rows = made(folder, "mgg_table3", {"reddit-like": {"features": 6, "classes": 3}}, **one)
    assert {row["rival"]: row["paper"][:4] for row in rows} == {"sampled, in PyG": "0.93", "whole graph in PyG": ""}
    assert all(float(row["ratio"]) > 0 for row in rows)
    page = (folder.results / "experiments/mgg_table3/report/index.html").read_text(encoding="utf-8")
    assert "Time to an accuracy" in page[page.index('<section id="mgg_table3">') :]


@pytest.fixture
def two_gpus(folder: Folder) -> dict[str, str]:
    """The environment of a host whose `mgg doctor` finds two GPUs."""
    programs = folder.path / "bin"
    programs.mkdir()
    facts = '{"backend nvshmem": "works: NVSHMEM 3.4.5", "GPU 0": "H200", "GPU 1": "H200", "GPUs": "2"}'
    (programs / "mgg").write_text(f"#!/bin/sh\necho '{facts}'\n")
    (programs / "nvidia-smi").write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = folder.environment()
    return environment | {"PATH": f"{programs}:{environment['PATH']}"}


@pytest.mark.slow
def test_jobs_request_the_gpus_that_they_use(folder: Folder, two_gpus: dict[str, str]):
    folder.overlay({"partition": {"pes": [1, 2, 4], "quality_pes": []}, "train": {"pes": [2]}})
    run = folder.run("--dry-run", env=two_gpus)
    assert run.returncode == 0, run.stdout
    asked = {}
    for job in re.split(r"\n\n", run.stdout):
        if found := re.search(r"(?:output|log): results/(?:logs/)?(aggregate|train)/[\w/-]*p(\d)", job):
            gpus = re.search(r"\bgpu=(\d)", job)
            asked[found[1], int(found[2])] = int(gpus[1]) if gpus else 0
    assert asked == {("aggregate", 1): 1, ("aggregate", 2): 2, ("aggregate", 4): 0, ("train", 2): 2}
    assert "on this host with 2 GPUs jobs of 4 PEs compute on CPU cores" in run.stdout
