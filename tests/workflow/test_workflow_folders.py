"""Snakemake started from any folder: a config's paths are relative to the working folder, typed ones to one's own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.workflow import ROOT, TINY, Folder, job_counts
from support.workflow.slurm import STAND_IN, StandIns

OWN = {"mine": {"source": "data/mine", "loader": "table", "symmetrize": True, "labels": True}}
EDGES = "source,target\n0,1\n1,2\n2,3\n3,0\n"
NODES = "id,label,split,x\n0,0,train,1\n1,1,train,2\n2,0,validation,1\n3,1,test,3\n"


pytestmark = pytest.mark.slow


@pytest.fixture
def apart(tmp_path: Path) -> Folder:
    """Where snakemake is typed, with an overlay and no config beside; a folder to work in, ``work``, with own files."""
    folder = Folder(tmp_path)
    shutil.rmtree(tmp_path / "config")
    mine = tmp_path / "work/data/mine"
    mine.mkdir(parents=True)
    (mine / "edges.csv").write_text(EDGES)
    (mine / "nodes.csv").write_text(NODES)
    folder.overlay(TINY | {"results": "out", "graph": {"datasets": OWN | TINY["graph"]["datasets"]}}, "mine.yaml")
    return folder


@pytest.mark.parametrize("where", [(), ("--directory", "work")])
def test_default_config_comes_with_the_workflow(apart: Folder, where: tuple[str, ...], tmp_path: Path):
    """Those of a folder that has a copy of them, whether or not an overlay changes some."""
    own = Folder(tmp_path / "own")
    for overlay in (None, "tiny.yaml"):
        expected = own.run("--dry-run", overlay=overlay)
        found = apart.run("--dry-run", *where, overlay=overlay)
        assert expected.returncode == found.returncode == 0, found.stdout
        assert job_counts(expected.stdout) == job_counts(found.stdout)


def test_workflow_runs_in_another_folder(apart: Folder):
    checkout, here = apart.path / "checkout", apart.path / "here"
    checkout.symlink_to(ROOT)
    here.mkdir()
    base = [sys.executable, "-m", "snakemake", "--nocolor", "--profile", "../checkout/profiles/local"]
    base += ["--snakefile", "../checkout/Snakefile", "--configfile", "../mine.yaml"]

    def run(where: str, *arguments: str) -> str:
        done = subprocess.run(
            [*base, *arguments],
            cwd=apart.path / where,
            env=apart.environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    counts = job_counts(run("here", "--directory", "../work"))
    assert counts["graph"] == counts["generate"] == 1
    assert not list(here.iterdir()) and (apart.path / "work/out/report/index.html").is_file()
    # The same from within, and to Snakemake nothing has changed.
    assert "Nothing to be done" in run("work")


def test_slurm_jobs_use_the_working_folder(apart: Folder):
    stand_ins = StandIns(apart)
    apart.overlay(TINY, "mine.yaml")
    words = ("--slurm-status-command", "squeue", "--until", "partition", "--directory", "work")
    python, _, _, *rest = apart.command(*words, profile="slurm-cpu", overlay="mine.yaml")
    run = apart.run_command([python, str(STAND_IN), *rest], stand_ins.environment())
    assert run.returncode == 0, run.stdout
    jobs = stand_ins.submitted()
    assert {rule for rule, _ in jobs} == {"generate", "partition"}
    for arguments, script in jobs.values():
        assert arguments[arguments.index("-D") + 1] == str(apart.path / "work")
        assert (
            f"--configfiles {apart.path / 'mine.yaml'} " in script and f"--snakefile '{ROOT / 'Snakefile'}'" in script
        )
