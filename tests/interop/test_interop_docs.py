"""What docs/guides/interop.md shows, and docs/guides/vertex.md for PyTorch, runs as it stands there."""

import re
import runpy
import shlex
import subprocess
import sys

import pytest
from support.graphs.train_graphs import layouts_below
from support.models.pyg import torch
from support.ranks import changed_environment, mpiexec
from support.vertex.docs import written
from support.workflow import ROOT

TEXT = (ROOT / "docs" / "guides" / "interop.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python)?\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.mpi
def test_documented_examples_run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    scripts = [block for language, block in BLOCKS if language]
    commands = [line for _, block in BLOCKS for line in block.splitlines() if line.startswith("mgg ")]
    assert [line.split()[1] for line in commands] == ["partition", "layout", "train"]
    for name, text in zip(("shards.py", "aggregate.py", "train.py"), scripts, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    names = runpy.run_path("shards.py")
    for line in commands[:2]:  # the third one is of another graph
        call = [sys.executable, "-m", "mgg.cli", *shlex.split(line)[1:]]
        subprocess.run(call, check=True, env=changed_environment({}))
    runpy.run_path("aggregate.py", names)
    capfd.readouterr()
    threads = torch.get_num_threads()
    runpy.run_path("train.py")
    assert torch.get_num_threads() == threads
    said = capfd.readouterr().out
    ranks = mpiexec(2, ["train.py"])
    assert ranks.stdout == said, ranks.stderr
    loss, right = re.fullmatch(r"loss ([\d.]+), (\d+) of 34 right\n", said).groups()
    assert float(loss) < 0.2 and int(right) > 25


@pytest.mark.slow
@pytest.mark.mpi
def test_documented_vertex_program_trains_in_torch(tmp_path, tmp_path_factory, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "layout2").symlink_to(layouts_below(tmp_path_factory.mktemp)("planted", 2))
    written(tmp_path, "my_gcn")
    script = written(tmp_path, "train_gcn")
    runpy.run_path(script)
    said = capfd.readouterr().out
    ranks = mpiexec(2, ["train_gcn.py"])
    assert ranks.stdout == said, ranks.stderr
    assert float(re.fullmatch(r"loss ([\d.]+)\n", said)[1]) < 1
