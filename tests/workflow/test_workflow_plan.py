"""What the workflow would do: nothing is computed here."""

import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.logging import logger
from support.workflow import ROOT, TINY, Folder, job_counts, settings_of

from mgg.errors import InputError
from mgg.report.figures.files import FOLDERS
from mgg.workflow.checks import warn_of_untrained
from mgg.workflow.plan import WorkflowPlan


@pytest.mark.sentinel
@pytest.mark.slow
def test_default_config_runs_every_stage_for_every_combination(folder: Folder):
    run = folder.run("--dry-run", overlay=None)
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {
        "retrieve": 1,  # digits; products-like is generated
        "graph": 1,
        "generate": 1,
        "partition": 12,  # 2 data sets, 3 numbers of PEs and 3 more for the report
        "layout": 6,
        "aggregate": 6,
        "train": 4,  # digits: 2 models, 2 numbers of PEs
        "report": 1,
        "default": 1,
        "total": 33,
    }
    assert not folder.results.exists(), "a dry run must not write"


@pytest.mark.slow
def test_mpiexec_is_used_only_for_several_ranks(folder: Folder):
    shown = folder.run("--dry-run").stdout
    assert "mpiexec -n 2 mgg aggregate results/layout/planted/p2" in shown
    assert "mpiexec -n 2 mgg train results/layout/planted/p2" in shown
    assert "mpiexec -n 1" not in shown
    folder.overlay({"aggregate": {"backend": "simulated"}, "train": {"models": []}}, "simulated.yaml")
    simulated = folder.run("--dry-run", overlay="simulated.yaml").stdout
    assert "mgg aggregate results/layout/digits/p2" in simulated
    assert "mpiexec -n" not in simulated


@pytest.mark.slow
def test_overlay_replaces_lists_and_data_sets_and_keeps_the_rest(folder: Folder):
    folder.overlay(
        {
            "graph": {"datasets": {"reddit-like": {"scale": 0.001}}},
            "partition": {"pes": [3], "quality_pes": []},
            "train": {"models": []},
        },
        "experiment.yaml",
    )
    run = folder.run("--dry-run", overlay="experiment.yaml")
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {
        "generate": 1, "partition": 1, "layout": 1, "aggregate": 1, "report": 1, "default": 1, "total": 6,
    }  # fmt: skip
    generated = "mgg generate reddit-like --name reddit-like --out results/graph/reddit-like --scale 0.001"
    assert generated in run.stdout
    assert "--technique mgg,broadcast,cola,halo --dim 16,64" in run.stdout


@pytest.mark.slow
def test_generated_graph_has_the_name_of_its_data_set(folder: Folder):
    datasets = {"mine": {"generator": "planted", "scale": 0.05}, "other": {"generator": "web-like", "seed": 7}}
    folder.overlay({"graph": {"datasets": datasets}, "train": {"datasets": None}}, "named.yaml")
    shown = folder.run("--dry-run", overlay="named.yaml").stdout
    assert "mgg generate planted --name mine --out results/graph/mine --scale 0.05" in shown
    assert "mgg generate web-like --name other --out results/graph/other --seed 7" in shown
    assert "mgg train results/layout/mine" in shown and "mgg train results/layout/other" not in shown


@pytest.mark.slow
def test_no_techniques_means_no_timings_or_layouts(folder: Folder):
    folder.overlay({"aggregate": {"techniques": []}, "train": {"models": []}}, "volumes.yaml")
    run = folder.run("--dry-run", overlay="volumes.yaml")
    assert run.returncode == 0, run.stdout
    assert set(job_counts(run.stdout)) == {"retrieve", "graph", "generate", "partition", "report", "default", "total"}
    # An output that only some configs declared would be there, unknown to Snakemake, when the first such config comes:
    # Snakemake would then find nothing to be done.
    (outputs,) = (line for line in run.stdout.splitlines() if "output:" in line and "report/index.html" in line)
    assert [folder for folder in FOLDERS.values() if f"results/report/{folder}" not in outputs] == []


@pytest.mark.slow
def test_every_labeled_data_set_is_trained_by_default(folder: Folder):
    datasets = {"digits": {}, "web-like": {"scale": 0.001}, "planted": {}, "ppi": {}}
    settings = {"gat": {"hidden": 4}, "gcn": {"hidden": 8}}
    folder.overlay({"graph": {"datasets": datasets}, "train": {"datasets": None, "settings": settings}}, "all.yaml")
    shown = folder.run("--dry-run", overlay="all.yaml").stdout
    assert job_counts(shown)["train"] == 12
    assert shown.count("train.models: not trained on web-like: no labels are known of; generated graphs get") == 1
    assert shown.count("train.settings: gat: not in train.models, so this changes nothing") == 1
    assert "mgg train results/layout/web-like" not in shown


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, ""),
        ({"phases": True}, " --phases"),
        ({"metric": "micro_f1", "phases": True}, " --metric micro_f1 --phases"),
    ],
)
def test_phases_and_metric_reach_the_training(asked: dict, words: str):
    """Nothing is said of defaults, so that the runs made before stay up to date."""
    plan = WorkflowPlan(settings_of(TINY, {"train": {"pes": [1], "settings": {"gcn": {"hidden": 4}}, **asked}}))
    options = " ".join(plan.train_options("gcn", "planted", "halo"))
    assert options == f"--backend auto --epochs 3 --dtype fp32 --set hidden=4{words}"


@pytest.mark.parametrize(
    ("dataset", "models", "warned"),
    [({"scale": 0.001}, ["gcn"], 1), ({"scale": 0.001}, [], 0), ({"features": 8, "classes": 2}, ["gcn"], 0)],
)
def test_models_without_labels_are_reported(
    dataset: dict, models: list, warned: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(logger, "propagate", True)
    values = {"graph": {"datasets": {"web-like": dataset}}, "train": {"datasets": None, "models": models}}
    plan = WorkflowPlan(settings_of(values))
    warn_of_untrained(plan)
    said = "train.models: nothing is trained: no data set of graph.datasets is known to have labels"
    assert caplog.text.count(said) == warned
    assert bool(plan.trained) == ("classes" in dataset)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("results", "tiny.yaml", "results: tiny.yaml: is not a folder; choose another name"),
        ("results", "tiny.yaml/x", "results: tiny.yaml/x: /"),
        ("partition.pez", [1], "config: partition.pez: unknown field; did you mean pes?"),
        ("aggregate.iterations", "many", "config: aggregate.iterations: input should be a valid integer"),
        ("partition.pes", [0], "config: partition.pes.0: input should be greater than or equal to 1, found 0"),
        ("partition.scheme", "metys", "partition.scheme: partition scheme 'metys': unknown; did you mean metis"),
        ("partition.quality_pes", [0], "config: partition.quality_pes.0: input should be greater than"),
        (
            "aggregate.backend",
            "mpy",
            "config: aggregate.backend: input should be 'auto', 'simulated', 'mpi' or 'nvshmem'",
        ),
        ("graph.datasets.korra", {}, "graph.datasets.korra: unknown data set 'korra'; did you mean cora"),
        (
            "graph.datasets.digits.scale",
            0.1,
            "graph.datasets.digits: scale, seed, shuffle, features and classes are options",
        ),
        ("graph.datasets.mine", {}, "(files of your own: `source: PATH`)"),
        (
            "graph.datasets.mine.source",
            "absent.csv",
            "graph.datasets.mine: source 'absent.csv': no such file or folder, seen from /",
        ),
        (
            "graph.datasets.mine.source",
            "https://example.org/a.csv",
            "graph.datasets.mine: source 'https://example.org/a.csv': is taken from this machine alone: download it",
        ),
        ("graph.datasets.mine.source", "config", "so `loader` must say how to read it: csr_binary, digits, "),
        (
            "graph.datasets.mine",
            {"source": ".", "loader": "table"},
            "graph.datasets.mine: source '.': the working folder lies in it: put the files into a folder of their own",
        ),
        ("graph.datasets.cora.source", "config", "name 'cora': is that of a real data set"),
        ("graph.datasets.mine", {"source": "config", "loader": "tabel"}, "unknown loader 'tabel'; did you"),
        ("graph.datasets.mine", {"source": "config", "scale": 2}, "graph.datasets.mine: source: generator,"),
        ("graph.datasets.digits.labels", True, "graph.datasets.digits: loader, labels, columns and column are"),
        (
            "graph.datasets.mine.generator",
            "wep-like",
            "graph.datasets.mine: unknown generator 'wep-like'; did you mean web-like",
        ),
        ("graph.datasets.cora.generator", "web-like", "graph.datasets.cora: name 'cora': is that of a"),
        ("aggregate.dtypes", ["fp8"], "config: aggregate.dtypes.0: input should be 'fp32' or 'bf16'"),
        ("graph.datasets.planted.symmetrize", True, "graph.datasets.planted: symmetrize"),
        ("graph.datasets.planted.loops", "keep", "graph.datasets.planted: repeats and loops"),
        ("graph.datasets.digits.order", "rabit", "graph.datasets.digits: unknown order 'rabit'; did"),
        ("graph.memory", "1 parsec", "graph.memory: '1 parsec' is not an amount of memory"),
        ("graph.datasets", {"../up": {}}, "config: graph.datasets.../up: string should match pattern"),
        ("graph.datasets.planted.scael", 1, "config: graph.datasets.planted.scael: unknown field"),
        ("aggregate.techniques", ["hallo"], "aggregate.techniques: technique 'hallo': unknown; did you mean halo"),
        (
            "predict.techniques",
            ["auto"],
            "predict.techniques: technique 'auto': picks one of the others in mgg aggregate and mgg train; mgg predict",
        ),
        ("train.techniques", ["hallo"], "technique 'hallo': unknown; did you mean halo"),
        ("aggregate.options.mgg.px", 4, "technique mgg: option px: unknown field"),
        (
            "aggregate.variants.mgg",
            [{"ps": [2, 99]}],
            "aggregate.variants: technique mgg: option ps: input should be less than or equal to 32, found 99",
        ),
        ("aggregate.variants.mgg.ps", 2, "config: aggregate.variants.mgg: input should be a valid list"),
        ("aggregate.variants.halo", [{"ps": []}], "config: aggregate.variants.halo.0.ps"),
        ("report.figures", ["mgg_fig10"], "report.figures: figure 'mgg_fig10': unknown; did you mean mgg_fig10"),
        ("report.notes.fig", "x", "report.notes: figure 'fig': unknown"),
        ("graph.datasets.reddit-like.features", 4, "graph.datasets.reddit-like: features and classes are"),
        ("train.models", ["gnc"], "model 'gnc' is unknown"),
        (
            "train.models",
            ["gcn", "./mine.py"],
            "train.models: model './mine.py': No such file or directory, seen from /",
        ),
        ("train.models", ["-x.py"], "config: train.models.0: string should match pattern"),
        ("train.metric", "f1", "config: train.metric: input should be 'auto', 'accuracy', 'micro_f1' or 'roc_auc'"),
        ("train.settings.gcn.hiden", 4, "setting of model gcn: hiden: unknown field; did you mean hidden?"),
        (
            "train",
            {"techniques": ["halo", "mgg"], "dtype": "bf16"},
            "train.dtype: technique mgg takes no bf16 embeddings; those that do: halo, local",
        ),
        (
            "train",
            {"techniques": ["local"], "pes": [1, 2]},
            "train.techniques: technique local runs on one PE, and train.pes has 2",
        ),
        ("train.pes", [3], "train.pes: 3 is not in partition.pes"),
    ],
)
def test_invalid_config_field_is_named(folder: Folder, field: str, value: object, message: str, monkeypatch):
    monkeypatch.chdir(folder.path)
    for name in reversed(field.split(".")):
        value = {name: value}
    with pytest.raises(InputError) as refused:
        settings_of(value)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_invalid_config_is_one_line(folder: Folder):
    folder.overlay({"partition": {"scheme": "metys"}}, "wrong.yaml")
    run = folder.run("--dry-run", overlay="wrong.yaml")
    assert run.returncode == 2 and "Traceback" not in run.stdout
    [error] = [line for line in run.stdout.splitlines() if "rror" in line]
    assert error.startswith("error: partition.scheme: partition scheme 'metys': unknown; did you mean metis")


def test_duplicate_key_of_an_overlay_is_refused_with_its_line(folder: Folder):
    wrong = folder.overlay({}, "wrong.yaml")
    wrong.write_text("graph: {datasets: {digits: {}}}\ntrain: {models: []}\ngraph: {datasets: {planted: {}}}\n")
    run = folder.run("--dry-run", overlay="wrong.yaml")
    assert run.returncode == 2
    assert "wrong.yaml: line 3: graph is there again: line 1 has it, too" in run.stdout


@pytest.mark.slow
def test_snakemake_lint_passes():
    run = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_rules_are_formatted():
    snakefmt = Path(sys.executable).with_name("snakefmt")
    run = subprocess.run(
        [snakefmt, "--check", "Snakefile", "workflow"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_config_text_never_reaches_the_shell(folder: Folder):
    nasty = "a b; touch pwned $(touch pwned) `touch pwned` 'x' \"y\" & | > pwned"
    folder.overlay(
        {
            "results": "my results; touch pwned",
            "graph": {"datasets": {"planted": {"scale": 0.05}}},
            "partition": {"pes": [1], "quality_pes": []},
            "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 0, "iterations": 1},
            "train": {"models": []},
            "report": {"title": nasty},
        },
        "nasty.yaml",
    )
    run = folder.run(overlay="nasty.yaml")
    assert run.returncode == 0, run.stdout
    assert not (folder.path / "pwned").exists()
    page = folder.path / "my results; touch pwned" / "report" / "index.html"
    assert "a b; touch pwned $(touch pwned)" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("given", [None, [1]])
def test_an_overlay_that_empties_the_graph_is_refused_by_field(given):
    """Behind an overlay with data sets, which replace those of the demo; a key without values is null in YAML."""
    with pytest.raises(InputError, match=r"config: graph: input should be a valid dictionary"):
        settings_of({"graph": {"datasets": {"digits": {}}}}, {"graph": given})
