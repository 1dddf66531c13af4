"""Configs and profiles that ``mgg init`` writes."""

import shlex

import pytest
import yaml
from support.ranks.commands import mgg
from support.workflow import ROOT

from mgg import config

EDGES = "source,target\n0,1\n1,2\n"
FAILS = "echo no controller >&2; exit 1"


@pytest.fixture
def init(tmp_path):
    """Runs the command where ``sinfo`` prints ``cluster``; None: there is none."""

    def run(*words, code=0, cluster=None, mpi="pmi2 pmix"):
        programs = tmp_path.with_name(f"{tmp_path.name}.programs")
        programs.mkdir(exist_ok=True)
        for name, said in {"sinfo": cluster, "srun": mpi}.items() if cluster else ():
            script = said if said == FAILS else f"echo '{said}'"
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        done = mgg("init", *words, cwd=tmp_path, code=code, PATH=str(programs))
        return done.stderr if code else dict(line.split(": ", 1) for line in done.stdout.splitlines())

    (tmp_path / "my data").mkdir()
    (tmp_path / "my data" / "edges.csv").write_text(EDGES)
    (tmp_path / "roads.mtx.gz").write_text("")
    return run


def read(path):
    return config.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_init_writes_a_config_for_tables(init, tmp_path):
    facts = init("my data", "--loader", "table", "--labels", "--symmetrize", "--name", "mine", "--pes", "2,4")
    made = read(tmp_path / "mine.yaml")
    [(name, dataset)] = made.graph.datasets.items()
    assert (name, dataset.source, dataset.loader, dataset.labels) == ("mine", "my data", "table", True)
    assert dataset.symmetrize and (made.train.models, made.train.pes, made.partition.pes) == (["gcn"], [2], [2, 4])
    words = shlex.split(facts["run"])
    assert words[0] == "snakemake" and words[-2:] == ["--configfile", "mine.yaml"] and "profile" not in facts
    assert all((ROOT / words[place]).exists() for place in (2, 4))
    text = (tmp_path / "mine.yaml").read_text()
    assert text.splitlines()[0] == f"# {facts['run']}" and text.count("#") > 10


@pytest.mark.parametrize(("source", "words", "name"), [
    ("roads.mtx.gz", [], "roads"), ("roads.mtx.gz", ["--name", "1e3"], "1e3"), ("cora", [], "cora"),
])  # fmt: skip
def test_init_writes_a_config_for_a_file_and_a_data_set(init, tmp_path, source, words, name):
    init(source, *words)
    made = read(tmp_path / f"{name}.yaml")
    assert list(made.graph.datasets) == [name] and made.report.title == name
    assert made.train.models == (["gcn"] if source == "cora" else [])


def test_init_without_slurm_writes_a_local_config(init):
    assert "profile" not in init("cora", cluster=FAILS)
    assert init("cora", "--force", "--partition", "gpu", code=3, cluster=FAILS) == "mgg: sinfo: no controller\n"


def test_init_replaces_nothing_without_force(init, tmp_path):
    init("cora")
    (tmp_path / "cora.yaml").write_text("mine: true\n")
    assert init("cora", code=2).startswith("mgg: cora.yaml: is there already: --force replaces it")
    gpus = "gpu*|2|8|1024|gpu:4|1:00:00|idle"
    (tmp_path / "profiles" / "cluster").mkdir(parents=True)
    (tmp_path / "profiles" / "cluster" / "config.yaml").write_text("mine: true\n")
    assert "profiles/cluster/config.yaml: is there already" in init("cora", "--out", "b.yaml", code=2, cluster=gpus)
    assert not (tmp_path / "b.yaml").exists() and (tmp_path / "cora.yaml").read_text() == "mine: true\n"
    init("cora", "--force", cluster=gpus)
    assert read(tmp_path / "cora.yaml").partition.workgroup == 4
    assert "mine" not in (tmp_path / "profiles/cluster/config.yaml").read_text()


@pytest.mark.parametrize(
    ("cluster", "words", "kind", "partition", "gpus"),
    [
        ("gpu*|2|8|1024|gpu:h200:4|1:00:00|idle", [], "dgx-multi", "gpu", 4),
        ("long-1*|1|8|1024|gpu:8|1:00:00|idle", [], "dgx", "long-1", None),
        ("a*|1|8|1024|gpu:8|1:00:00|idle\ncpu|9|8|1024|(null)|1:00:00|idle", ["--partition", "cpu"], "slurm-cpu",
         "cpu", None),
    ],
)  # fmt: skip
def test_init_writes_a_cluster_profile(init, tmp_path, cluster, words, kind, partition, gpus):
    """That of MGG that fits, with the partition, its GPUs per node and its MPI."""
    facts = init("cora", *words, cluster=cluster)
    assert facts["profile"] == "profiles/cluster" and "--profile profiles/cluster " in facts["run"]
    made = yaml.safe_load((tmp_path / "profiles/cluster/config.yaml").read_text())
    usual = yaml.safe_load((ROOT / "profiles" / kind / "config.yaml").read_text())
    usual["default-resources"]["slurm_partition"] = partition
    for resources in usual["set-resources"].values():
        resources["mpi"] = "'srun --mpi=pmi2'"
        if gpus:
            resources["nodes"] = f"-(-int(wildcards.pes) // {gpus})"
    assert made == usual


@pytest.mark.parametrize(("words", "said"), [
    (["my data"], "so --loader must say how to read it"), (["coraa"], "did you mean cora"),
    (["some/thing"], "source 'some/thing': no such file or folder"),
    (["roads.mtx.gz", "--name", "cora"], "name 'cora': is that of a real data set"),
    (["roads.mtx.gz", "--loader", "tabel"], "unknown loader 'tabel'"),
    (["cora", "--labels"], "cora: a data set: --name, --loader"),
    (["cora", "--partition", "x"], "--partition: there is no Slurm here"),
    (["cora", "--profile", "mine"], "--profile: there is no Slurm here"),
])  # fmt: skip
def test_init_error_is_one_line_and_writes_nothing(init, tmp_path, words, said):
    before = sorted(tmp_path.iterdir())
    assert said in init(*words, code=2) and sorted(tmp_path.iterdir()) == before


def test_models_are_trained_on_a_graph_folder_with_labels(init, tmp_path):
    mgg("generate", "planted", "--scale", "0.05", "--out", "with-labels", cwd=tmp_path)
    init("with-labels")
    assert read(tmp_path / "with-labels.yaml").train.models == ["gcn"]
