"""The demo from any folder, with nothing of the environment on PATH; a wheel's is tried by ``make dist``."""

import os
import subprocess
import sys

import pytest
from support.workflow import ROOT

from mgg.cli.demo import workflow_files

CONFIG = "partition: {pes: [1]}\naggregate: {techniques: []}\ntrain: {models: []}\n"


def demo(folder, *words):
    """Run the command where PATH has no mgg and no mpiexec of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "mgg.cli", "demo", *words], cwd=folder, env=os.environ | {"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.slow
def test_demo_runs_in_its_own_folder(tmp_path):
    (tmp_path / "small.yaml").write_text(CONFIG + "graph: {datasets: {digits: {}}}\n")
    code, said = demo(tmp_path, "--configfile", "small.yaml", "--out", "here")
    assert code == 0, said
    page = tmp_path / "here" / "results" / "report" / "index.html"
    assert f"Report: {page}" in said and page.is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "small.yaml"]


@pytest.mark.slow
def test_demo_has_the_exit_codes_of_the_workflow(tmp_path):
    (tmp_path / "wrong.yaml").write_text("aggregate: {dims: [0]}\n")
    code, said = demo(tmp_path, "--configfile", "wrong.yaml", "--dry-run")
    assert code == 2 and "aggregate.dims" in said


def test_checkout_has_the_files_of_a_wheel():
    assert workflow_files() == ROOT
    assert all((ROOT / name).exists() for name in ("Snakefile", "config/config.yaml", "profiles/local", "workflow"))
