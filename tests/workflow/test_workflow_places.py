"""Names of results: another place, other options or other files are other outputs, and nobody's are taken away."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.workflow import Folder, job_counts, made
from support.workflow.slurm import StandIns

from mgg.hashed import SEAL, sealed

pytestmark = pytest.mark.slow
OTHER = {
    "graph": {"datasets": {"planted": {"scale": 0.06}}},
    "aggregate": {"dims": [3]},
    "train": {"datasets": ["planted"], "epochs": 2},
}


@pytest.fixture(scope="module")
def both(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder in which the tiny workflow has run, and after it an overlay that makes its data set another way."""
    path = tmp_path_factory.mktemp("both") / "copy"
    shutil.copytree(whole, path, symlinks=True)
    folder = Folder.at(path)
    folder.overlay(OTHER, "other.yaml")
    run = folder.run(overlay=["tiny.yaml", "other.yaml"])
    assert run.returncode == 0, run.stdout
    assert {"generate", "layout", "aggregate", "train"} <= job_counts(run.stdout).keys()
    return folder


@pytest.fixture
def copy(both: Folder, tmp_path: Path) -> Folder:
    """One that a test may change."""
    shutil.copytree(both.path, tmp_path / "copy", symlinks=True)
    return Folder.at(tmp_path / "copy")


@pytest.mark.parametrize("profile", [pytest.param("dgx", marks=pytest.mark.sentinel), "slurm-cpu"])
def test_local_results_are_not_reused_for_a_cluster(finished: Folder, profile: str, tmp_path: Path):
    """Every timing and training runs there, on the layouts that are there."""
    if not (finished.path / "bin").exists():
        StandIns(finished)
    programs = f"{finished.path / 'bin'}:{os.environ['PATH']}"
    run = finished.run("--dry-run", profile=profile, env=finished.environment(PATH=f"{finished.programs}:{programs}"))
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {"aggregate": 2, "train": 1, "report": 1, "default": 1, "total": 5}
    place = "slurm-cpus-srun_mpi_pmi2" if profile == "slurm-cpu" else "slurm-gpus-srun"
    for stage, jobs in (("aggregate", 2), ("train", 1)):
        runs = "1 job runs" if jobs == 1 else f"{jobs} jobs run"
        why = rf"^{stage}: {runs} on {place}: the results so far are of local-cpus-mpiexec-[0-9a-f]{{6}}; both are kept"
        assert len(re.findall(why, run.stdout, re.MULTILINE)) == 1
    assert "Nothing to be done" in finished.run("--dry-run").stdout


def test_results_of_two_places_are_separate_in_one_report(whole: Path, tmp_path: Path):
    """What the same config measured elsewhere comes into the report of the next run here, which runs nothing else."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    folder = Folder.at(tmp_path / "copy")
    (here,) = made(folder.results, "aggregate/planted/p1.jsonl")
    there = Path(str(here).replace("/local-", "/slurm-"))
    there.parent.mkdir(parents=True)
    records = [json.loads(line) for line in here.read_text().splitlines()]
    for record in records:
        record.pop(SEAL)
        record["machine"]["place"] = "slurm-cpus-srun"
    there.write_text("".join(json.dumps(sealed(record)) + "\n" for record in records))
    run = folder.run()
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {"report": 1, "default": 1, "total": 2}
    machines = (folder.results / "report/machines.csv").read_text()
    assert all(text in machines for text in ('"slurm-cpus-srun"', '"local-cpus-mpiexec-', '"M2"'))
    assert folder.run("--dry-run").stdout.count("Nothing to be done") == 1


def test_overlay_keeps_earlier_results(both: Folder):
    """But for the report, which is of the newest config, nothing of the first config runs again, nor of the second."""
    assert job_counts(both.run("--dry-run").stdout).keys() == {"report", "default", "total"}
    assert "Nothing to be done" in both.run("--dry-run", overlay=["tiny.yaml", "other.yaml"]).stdout
    assert len(made(both.results, "graph/planted")) == len(made(both.results, "layout/planted/p2")) == 2
    assert made(both.results, "graph/planted")[0].name.startswith("planted@scale0.05-")


def clean(folder: Folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mgg clean there."""
    command = [sys.executable, "-m", "mgg.cli", "clean", *arguments]
    return subprocess.run(command, cwd=folder.path, capture_output=True, text=True, check=False)


def test_unnamed_results_are_listed_and_removed(copy: Folder):
    assert clean(copy).stdout.split() == ["0.0", "MB", "that", "no", "config", "names:", "nothing", "to", "remove"]
    (copy.path / "other.yaml").unlink()
    listed = json.loads(clean(copy, "--json").stdout)["unnamed"]
    outputs = {each["path"] for each in listed if not re.search("/(logs|benchmarks)/", each["path"])}
    assert {path.split("@")[0] for path in outputs} == {
        "results/graph/planted", "results/partition/planted", "results/layout/planted",
        *(f"results/{stage}/{place.name}/planted" for stage in ("aggregate", "train")
          for place in (copy.results / stage).iterdir()),
    }  # fmt: skip
    assert all("@scale0.06-" in path for path in outputs)
    size = sum(file.stat().st_size for file in made(copy.results, "layout/planted")[1].rglob("*") if file.is_file())
    assert size in [each["bytes"] for each in listed]
    kept = {path: path.read_bytes() for path in copy.results.rglob("*") if path.is_file() and "@scale0.05" in str(path)}
    removed = clean(copy, "--remove")
    assert removed.returncode == 0 and "that no config names: removed" in removed.stdout, removed.stderr
    assert not [path for path in copy.results.rglob("*") if "@scale0.06" in str(path)]
    assert kept == {path: path.read_bytes() for path in kept}
    assert "Nothing to be done" not in copy.run("--dry-run").stdout  # the page was of the other config
    assert job_counts(copy.run("--dry-run").stdout).keys() == {"report", "default", "total"}


def test_busy_folder_is_not_cleaned(copy: Folder):
    (copy.results / ".lock").write_text("process 1 on another\n")
    (copy.results / "graph/left").mkdir()
    ended = clean(copy, "--remove")
    assert (ended.returncode, (copy.results / "graph/left").exists()) == (3, True)
    assert "results: process 1 on another was working here and has not left" in ended.stderr
    shutil.rmtree(copy.results / ".kept")
    ended = clean(copy)
    assert ended.returncode == 2 and "no run of the workflow has noted here what its config names" in ended.stderr


def test_disk_usage_is_reported_before_the_start(folder: Folder):
    folder.overlay({"graph": {"datasets": {"products-like": {}}}, "train": {"models": []}}, "large.yaml")
    said = folder.run("--dry-run", overlay="large.yaml").stdout
    (size,) = re.findall(r"^results: this run will write about ([\d.]+) GB; [\d.]+ GB are free$", said, re.MULTILINE)
    # 123.7 million arcs: a graph of 4 bytes each at most, and three layouts of some 22 (docs/concepts/scaling.md).
    assert 3 * 22 * 0.1237 < float(size) < 1.3 * (4 + 3 * 24) * 0.1237
    assert "will write about" not in folder.run("--dry-run").stdout


def test_graph_name_includes_a_hash_of_user_files(folder: Folder):
    """A file with an older time and a link that points elsewhere are seen; one that was only touched makes no work."""
    for name, end in (("one.csv", "1,2"), ("two.csv", "2,1")):
        (folder.path / name).write_text(f"source,target\n0,1\n{end}\n")
    (folder.path / "mine.csv").symlink_to("one.csv")
    datasets = {"linked": {"source": "mine.csv"}, "plain": {"source": "one.csv"}}
    untrained = {"train": {"datasets": None, "models": []}}
    folder.overlay({"graph": {"datasets": datasets}, "aggregate": {"techniques": []}} | untrained, "o.yaml")
    run = folder.run(overlay=["tiny.yaml", "o.yaml"])
    assert run.returncode == 0, run.stdout

    def again() -> set[str]:
        shown = folder.run("--dry-run", overlay=["tiny.yaml", "o.yaml"]).stdout
        return set(re.findall(r"output: results/graph/(\w+)", shown))

    os.utime(folder.path / "one.csv")
    assert again() == set()
    (folder.path / "mine.csv").unlink()
    (folder.path / "mine.csv").symlink_to("two.csv")
    assert again() == {"linked"}
    os.utime(folder.path / "two.csv", (10**9, 10**9))
    (folder.path / "two.csv").replace(folder.path / "one.csv")
    (folder.path / "mine.csv").unlink()
    (folder.path / "mine.csv").symlink_to("one.csv")
    assert again() == {"linked", "plain"}
