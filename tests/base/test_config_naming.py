"""Names of results: equal for what is made alike, different for all else, short enough for file systems."""

import hashlib
import re

import pytest

from mgg.config import DatasetConfig, PartitionConfig
from mgg.errors import InputError
from mgg.graph.user_files import Contents
from mgg.naming import is_own_model, model_name, place_name, recipe, split_name
from mgg.origin import PLACE_PATTERN

OPTIONS = [
    {}, {"scale": 0.5}, {"seed": 3}, {"shuffle": True}, {"order": "rabbit"}, {"order": "degree"}, {"symmetrize": True},
    {"repeats": "sum"}, {"loops": "keep"}, {"features": 4, "classes": 2}, {"generator": "planted"}, {"labels": True},
    {"columns": ["source", "target"]}, {"column": {"weight": "w"}}, {"loader": "table"},
]  # fmt: skip


def test_every_option_changes_the_graph_name():
    names = [recipe("mine", DatasetConfig(**options)) for options in OPTIONS]
    names += [recipe("mine", DatasetConfig(), scale=0.25), recipe("mine", DatasetConfig(), content="a" * 64)]
    names += [recipe("mine", DatasetConfig(), content="b" * 64), recipe("yours", DatasetConfig())]
    assert len({name[-8:] for name in names}) == len(names)
    assert all(re.fullmatch(r"([a-z0-9.]+-)*[0-9a-f]{8}", name) for name in names)


def test_equal_graphs_have_one_name():
    plain = recipe("mine", DatasetConfig())
    assert plain == recipe("mine", DatasetConfig(seed=None, order="natural", scale=None))
    assert recipe("mine", DatasetConfig(scale=0.5)) == recipe("mine", DatasetConfig(), scale=0.5)
    assert recipe("mine", DatasetConfig(source="a.csv"), content="c") == recipe(
        "mine", DatasetConfig(source="b/a.csv"), content="c"
    )
    assert recipe("mine", DatasetConfig(scale=0.004, order="rabbit")).startswith("scale0.004-rabbit-")


@pytest.mark.parametrize(
    ("model", "name"),
    [("gcn", "gcn"), ("./mine.py", "mine"), ("mine.py", "mine"), ("~/a b/mine.py", "mine"), ("a/gcn", "gcn")],
)
def test_models_are_named_after_their_files(model, name):
    assert (model_name(model), is_own_model(model)) == (name, model != "gcn")


def test_partition_name_has_every_field():
    changes = [{}, {"scheme": "metis"}, {"workgroup": 4}, {"dim": 16}]
    names = [split_name(PartitionConfig(**change)) for change in changes]
    assert names == ["edge_balanced-w8-d64", "metis-w8-d64", "edge_balanced-w4-d64", "edge_balanced-w8-d16"]
    assert split_name(PartitionConfig(pes=[2], quality_pes=[64])) == names[0]


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (("local", "cpus", "mpiexec", "1a2b3c"), "local-cpus-mpiexec-1a2b3c"),
        (("slurm", "gpus", "", "srun", ""), "slurm-gpus-srun"),
        (("slurm", "gpus", "h200", "srun --mpi=pmi2", "gpu"), "slurm-gpus-h200-srun_mpi_pmi2-gpu"),
    ],
)
def test_places_are_parsed(facts, name):
    assert place_name(*facts) == name


def test_long_places_stay_distinct():
    names = {place_name("slurm", "gpus", "h200", f"srun --mpi=pmix --cpu-bind=map_cpu:0,{core}") for core in range(9)}
    assert len(names) == 9 and all(len(name) == 40 and re.fullmatch(PLACE_PATTERN, name) for name in names)


def test_file_contents_are_read_once(tmp_path, monkeypatch):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"source,target\n0,{ord(name[0])}\n")
    monkeypatch.chdir(tmp_path.parent)
    source = str(tmp_path)
    first = Contents()
    found = first.of(source)
    file = str(tmp_path / "a.csv")
    content = hashlib.sha256((tmp_path / "a.csv").read_bytes()).hexdigest()
    monkeypatch.setattr("hashlib.file_digest", None)  # nothing is read
    assert first.of_file(file) == Contents(first.known, trust=True).of_file(file) == content
    assert Contents(first.known).of(source) == Contents(first.known, trust=True).of(source) == found
    (tmp_path / "a.csv").write_text("source,target\n0,1\n")
    assert Contents(first.known, trust=True).of(source) == found  # a job's own look is that of its run
    assert Contents(first.known, trust=True).of_file(file) == content
    monkeypatch.undo()
    assert (
        Contents(first.known).of_file(file) == hashlib.sha256((tmp_path / "a.csv").read_bytes()).hexdigest() != content
    )
    monkeypatch.chdir(tmp_path.parent)
    assert Contents(first.known).of(source) not in (found, Contents().of(str(tmp_path / "a.csv")))
    (tmp_path / "a.csv").rename(tmp_path / "c.csv")
    renamed = Contents(first.known).of(source)
    assert renamed not in (found, Contents().of(str(tmp_path / "c.csv")))
    (tmp_path / "c.csv").unlink()
    (tmp_path / "b.csv").unlink()
    with pytest.raises(InputError, match="the folder has no files"):
        Contents(first.known).of(source)
