"""What the workflow writes of its jobs for the report."""

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from support.records import altered, file_of
from support.workflow import ROOT, Folder, job_counts
from support.workflow.slurm import StandIns

from mgg.records import read_lines
from mgg.records.job import JobRecord

#: Jobs of TINY by rule, without the report's own.
COUNTS = {"generate": 1, "partition": 3, "layout": 2, "aggregate": 2, "train": 1}

#: The date of every copied file.
COPIED = 1_600_000_000


def copied(finished: Folder, path: Path, notes: bool = True) -> Folder:
    """A copy of what a run has made, with dates of its own; without ``notes`` Snakemake's are left behind."""
    copy = Folder(path)
    shutil.copytree(finished.results, copy.results)
    for made in copy.results.rglob("*"):
        os.utime(made, (COPIED, COPIED))
    if notes:
        shutil.copytree(finished.path / ".snakemake", path / ".snakemake")
    return copy


def records(folder: Folder) -> dict[tuple[str, ...], JobRecord]:
    """The records of a folder's jobs, by rule and values of wildcards."""
    return {(r.rule, *r.wildcards.values()): r for r in read_lines(folder.results / "jobs.jsonl", JobRecord)}


@pytest.mark.slow
def test_every_job_has_a_record(finished: Folder):
    found = records(finished)
    assert Counter(rule for rule, *_ in found) == COUNTS
    for (rule, *_), record in found.items():
        assert record.rule == rule and record.stage == {"generate": "graph"}.get(rule, rule)
        assert record.runtime_asked >= 600 and record.memory_asked > 10**9 and record.cores_asked >= 1
        assert not record.granted and record.slurm_job is None and record.attempts == 1
        made = max(path.stat().st_mtime for path in (finished.results / record.stage).rglob("*"))
        assert 0 <= made - record.ended < 300 and record.seconds > 0
    benchmark = json.loads(finished.made("benchmarks/aggregate/planted/p2.jsonl").read_text())
    timed = found["aggregate", "planted", "2"]
    assert timed.seconds == benchmark["s"] and timed.memory == int(benchmark["max_pss"] * 2**20)
    assert timed.memory_asked == benchmark["resources"]["mem_mb"] * 10**6
    page = (finished.results / "report/index.html").read_text(encoding="utf-8")
    assert "How the workflow ran" in page and "<title>train dataset=planted" in page


@pytest.mark.slow
def test_rerun_changes_only_the_records_of_its_jobs(finished: Folder, tmp_path: Path):
    """Even in a copy whose files have other dates, and where Snakemake's own notes are gone."""
    copy = copied(finished, tmp_path, notes=False)
    before = records(copy)
    started = time.time()
    run = copy.run("--forcerun", "train", "--until", "train", "report", "--rerun-triggers", "mtime")
    assert run.returncode == 0, run.stdout
    after = records(copy)
    changed = {key for key in after if after[key] != before.get(key)}
    assert {rule for rule, *_ in changed} == {"train"} and after.keys() == before.keys()
    [key] = changed
    assert after[key].ended > started > before[key].ended > COPIED + 1


@pytest.mark.slow
def test_missing_benchmark_does_not_rerun_a_job(finished: Folder, tmp_path: Path):
    copy = copied(finished, tmp_path)
    shutil.rmtree(copy.results / "benchmarks/layout")
    copy.made("benchmarks/train/planted/gcn-halo-p2-s0.jsonl").write_text("torn {")
    (copy.results / "jobs.jsonl").unlink()
    run = copy.run("--forcerun", "report")
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {"report": 1, "default": 1, "total": 2}
    found = records(copy)
    assert {rule: found[rule, *rest].seconds is None for rule, *rest in found} == {
        rule: rule in ("layout", "train") for rule in COUNTS
    }


@pytest.mark.slow
def test_dry_run_writes_no_records(folder: Folder):
    assert folder.run("--dry-run").returncode == 0
    assert not folder.results.exists()


@pytest.mark.slow
def test_page_is_built_without_job_records(finished: Folder, tmp_path: Path):
    """Something else in their place costs the section, not the results."""
    copy = copied(finished, tmp_path)
    (copy.results / "jobs.jsonl").unlink()
    (copy.results / "jobs.jsonl").mkdir()
    page = copy.results / "report" / "index.html"
    page.unlink()
    run = copy.run("--forcerun", "report", "--rerun-triggers", "mtime")
    assert run.returncode == 0 and "jobs.jsonl: not written" in run.stdout, run.stdout
    assert page.exists()


@pytest.mark.parametrize("profile", ["local", "dgx", "dgx-multi", "slurm-cpu"])
def test_profiles_record_requests_in_benchmarks(profile: str):
    text = (ROOT / "profiles" / profile / "config.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["benchmark-extended"] is True


@pytest.mark.slow
def test_slurm_job_ids_and_requests_are_recorded(tmp_path: Path):
    """Through stand-ins for Slurm's commands; a later run that submits nothing leaves them as they are."""
    folder = Folder(tmp_path)
    stand_ins = StandIns(folder)
    # As the Snakemake of a job writes it, which knows of no earlier attempts.
    partition = folder.names(profile="slurm-cpu")["results/partition/planted/p2"]
    benchmark = folder.path / f"{partition}.jsonl".replace("results/", "results/benchmarks/")
    benchmark.parent.mkdir(parents=True)
    resources = {"mem_mb": 1, "runtime": 1, "nodes": 1, "tasks": 2, "cpus_per_task": 3}
    benchmark.write_text(json.dumps({"s": 40.0, "max_pss": 100, "cpu_time": 3, "threads": 1, "resources": resources}))
    for _ in range(2):
        run = stand_ins.run("--until", "partition")
        assert run.returncode == 0, run.stdout
        found = records(folder)
        asked = {record.slurm_job for (rule, *_), record in found.items() if rule in ("generate", "partition")}
        assert asked == {path.stem for path in stand_ins.calls.glob("*.json")} and len(asked) == 4
        record = found["partition", "planted", "2"]
        words, _ = stand_ins.submitted()["partition", ("planted", "2")]
        assert record.memory_asked == int(words[words.index("--mem") + 1]) * 10**6 > 10**9
        assert record.runtime_asked == int(words[words.index("-t") + 1]) * 60 > 600
        # Looked at after 15 seconds for the last time.
        assert (record.granted, record.seen, record.memory) == (True, 15.0, 100 * 2**20)
        assert (record.ranks, record.cores_asked) == (2, 6)


@pytest.mark.slow
def test_ranks_started_by_slurm_record_their_usage(finished: Folder, tmp_path: Path):
    """Snakemake sees srun alone; one rank is started by it, too. Records of another run say nothing."""
    copy = copied(finished, tmp_path)
    (copy.results / "jobs.jsonl").unlink()
    for name in ("aggregate/planted/p1.jsonl", "aggregate/planted/p2.jsonl", "train/planted/gcn-halo-p2-s0.jsonl"):
        ranks = 1 if "p1" in name else 2
        resources = {"mem_mb": 1000, "runtime": 60, "mpi": "srun" * (ranks > 1), "tasks": ranks, "nodes": ranks}
        seen = {"s": 40.0, "max_pss": 7.0, "cpu_time": 0.1, "threads": 1, "resources": resources}
        copy.made(f"benchmarks/{name}").write_text(json.dumps(seen))
    one, two = (copy.made(f"aggregate/planted/p{pes}.jsonl") for pes in (1, 2))
    run = copy.made("train/planted/gcn-halo-p2-s0/run.json")

    def used(file: Path, memory: int, cpu: float, seconds: float, **changes: int) -> str:
        use = {"used": {"memory": memory, "cpu_seconds": cpu, "seconds": seconds}}
        return altered(file.read_text(), **use, **changes)

    one.write_text(file_of(used(one, 300, 50.0, 41.0)))
    two.write_text(file_of(used(two, 300, 30.0, 20.0), used(two, 400, 60.0, 39.0, dim=8)))
    run.write_text(used(run, 500, 70.0, 40.0))
    done = copy.run("--forcerun", "report", "--rerun-triggers", "mtime")
    assert done.returncode == 0, done.stdout
    assert job_counts(done.stdout)["total"] == 2
    found = records(copy)
    assert {
        (rule, *rest): (record.memory, record.cpu_seconds, record.seen)
        for (rule, *rest), record in found.items()
        if rule in ("aggregate", "train")
    } == {
        ("aggregate", "planted", "1"): (None, None, None),
        ("aggregate", "planted", "2"): (400, 60.0, 40.0),
        ("train", "planted", "gcn", "halo", "2", "0"): (500, 70.0, 40.0),
    }
    assert found["layout", "planted", "2"].memory > 500, "what Snakemake sees it says itself"
