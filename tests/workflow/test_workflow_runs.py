"""The whole workflow, at its smallest: reruns, two runs at once, a killed run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.workflow import Folder, job_counts, made

from mgg.records import AggregateRecord, read_lines, read_partition, read_run
from mgg.records.job import JobRecord

NOTHING = "Nothing to be done"
#: Snakemake on a host of that name, which touches its lock five times a second, where locks hold on one host alone.
ON_HOST = """
import fcntl, runpy, socket, sys
import mgg.heartbeat
_, host, *words = sys.argv
socket.gethostname = lambda: host
fcntl.lockf = lambda *_: None
mgg.heartbeat.PERIOD = 0.2
sys.argv = ["snakemake", *words]
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""


def _started(folder: Folder, run: subprocess.Popen, words: str) -> None:
    """Wait until the run that ``folder.start`` started has printed ``words``."""
    for _ in range(3600):
        if words in (folder.path / "run.log").read_text():
            return
        assert run.poll() is None, (folder.path / "run.log").read_text()
        time.sleep(0.05)
    raise AssertionError(f"{words!r} never came")


def _scores(results: Path) -> dict[str, object]:
    """Everything in the records that a clock does not change."""
    records = read_lines(made(results, "aggregate/planted/p2.jsonl")[0], AggregateRecord)
    run, epochs = read_run(made(results, "train/planted/gcn-halo-p2-s0")[0])
    return {
        "graph": records[0].graph_hash,
        "wire": [record.bytes_wire for record in records],
        "loss": run.loss,
        "losses": [epoch.loss for epoch in epochs],
        "accuracy": run.test_accuracy,
    }


@pytest.mark.slow
def test_all_records_of_a_workflow_share_one_run(finished: Folder):
    """Of ranks that a launcher starts and of Snakemake's own process, too."""
    results = finished.results
    records = [
        *read_lines(made(results, "aggregate/planted/p2.jsonl")[0], AggregateRecord),
        read_run(made(results, "train/planted/gcn-halo-p2-s0")[0])[0],
        read_partition(made(results, "partition/planted/p2")[0]),
        *read_lines(results / "jobs.jsonl", JobRecord),
    ]
    origins = {(record.run_id, record.config_hash, record.machine_id) for record in records}
    assert len(origins) == 1 and None not in origins.pop()


@pytest.mark.sentinel
@pytest.mark.slow
def test_every_stage_leaves_its_output_log_and_benchmark(finished: Folder):
    assert (finished.results / "report/index.html").stat().st_size > 10_000
    assert list((finished.results / "report").glob("*.csv"))
    records = read_lines(finished.made("aggregate/planted/p2.jsonl"), AggregateRecord)
    assert [(record.pes, record.backend, record.dim) for record in records] == [(2, "mpi", 4)]
    for stage in ("graph", "partition", "layout", "aggregate", "train"):
        assert list((finished.results / "logs" / stage).rglob("*.log")), stage
        for benchmark in (finished.results / "benchmarks" / stage).rglob("*.jsonl"):
            assert json.loads(benchmark.read_text().splitlines()[0])["s"] >= 0


@pytest.mark.slow
def test_outputs_are_not_world_writable(finished: Folder):
    """Outputs of every stage, logs, benchmarks and records, files and folders; the run's user keeps nothing back."""
    made = [finished.results, *finished.results.rglob("*")]
    stages = {"graph", "partition", "layout", "aggregate", "train", "report", "logs", "benchmarks", "jobs.jsonl"}
    assert stages <= {path.name for path in finished.results.iterdir()}
    assert {path.suffix for path in made} >= {
        ".parquet",
        ".json",
        ".jsonl",
        ".safetensors",
        ".csv",
        ".svg",
        ".html",
        ".log",
    }
    assert [path for path in made if path.stat().st_mode & 0o002] == []


@pytest.mark.sentinel
@pytest.mark.slow
def test_second_run_does_nothing(finished: Folder):
    run = finished.run()
    assert run.returncode == 0
    assert NOTHING in run.stdout


@pytest.mark.slow
def test_run_ends_with_the_path_of_its_page(finished: Folder):
    run = finished.run("--forcerun", "report")
    assert run.returncode == 0
    *_, last = [line for line in run.stdout.splitlines() if line.startswith(("Report: ", "[", "Finished"))]
    assert last == f"Report: {finished.results / 'report/index.html'}"


@pytest.mark.slow
def test_forcing_a_stage_runs_only_that_stage(finished: Folder):
    before = _scores(finished.results)
    run = finished.run("--forcerun", "train", "--until", "train")
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {"train": 1, "total": 1}
    assert _scores(finished.results) == before


@pytest.mark.slow
def test_second_live_run_is_refused(folder: Folder):
    first = folder.start()
    try:
        _started(folder, first, "rule ")
        second = folder.run()
        assert second.returncode != 0
        refusals = [line for line in second.stdout.splitlines() if "another run" in line]
        assert len(refusals) == 1, second.stdout
        assert f"process {first.pid} " in refusals[0]
        assert "Traceback" not in second.stdout
        planned = folder.run("--dry-run")
        assert planned.returncode == 0, planned.stdout
    finally:
        first.kill()
        first.wait()


@pytest.mark.slow
def test_phases_and_metric_are_trained_and_shown(whole: Path, tmp_path: Path):
    """The trainings alone are made, beside those without."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    folder = Folder.at(tmp_path / "copy")
    out, before = folder.made("train/planted/gcn-halo-p2-s0"), _scores(folder.results)
    assert read_run(out)[1][0].aggregate is None
    folder.overlay({"train": {"phases": True, "metric": "accuracy"}}, "asked.yaml")
    run = folder.run(overlay=["tiny.yaml", "asked.yaml"])
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {"train": 1, "report": 1, "default": 1, "total": 3}
    (asked,) = {*made(folder.results, "train/planted/gcn-halo-p2-s0")} - {out}
    assert all(epoch.aggregate > 0 for epoch in read_run(asked)[1])
    shutil.rmtree(out)
    assert _scores(folder.results) == before
    assert "Time by phase" in (folder.results / "report/index.html").read_text()


def _on_host(folder: Folder, host: str, *arguments: str) -> subprocess.Popen:
    """Start snakemake on a host of that name."""
    command = [sys.executable, "-c", ON_HOST, host, *folder.command(*arguments)[3:]]
    return subprocess.Popen(
        command, cwd=folder.path, env=folder.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_live_run_on_another_host_is_detected(folder: Folder):
    lock = folder.results / ".lock"
    first = _on_host(folder, "login1")
    try:
        while not (lock.exists() and f"process {first.pid} on login1" in lock.read_text()):
            assert first.poll() is None
            time.sleep(0.05)
        os.utime(lock, (0, 0))
        while lock.stat().st_mtime == 0:
            assert first.poll() is None
            time.sleep(0.05)
        first.send_signal(signal.SIGSTOP)  # it must not end before the second has looked
        second = _on_host(folder, "login2", "--until", "generate")
        said, _ = second.communicate(timeout=folder.limit)
        assert second.returncode == 3 and f"results: process {first.pid} on login1 was working here" in said, said
    finally:
        first.kill()
        first.communicate()
    again = _on_host(folder, "login1", "--until", "generate")
    said, _ = again.communicate(timeout=folder.limit)
    assert again.returncode == 0, said


@pytest.mark.slow
@pytest.mark.parametrize("results", ["/proc/results", "locked"])
def test_unwritable_results_folder_is_one_line(folder: Folder, results: str):
    """Only an attempt tells."""
    (folder.path / "locked/.lock").mkdir(parents=True)
    folder.overlay({"results": results}, "elsewhere.yaml")
    run = folder.run(overlay=["tiny.yaml", "elsewhere.yaml"])
    assert run.returncode == 2 and "Traceback" not in run.stdout, run.stdout
    assert run.stdout.splitlines()[-1].startswith(f"error: results: {results}/.lock: cannot be written: ")


@pytest.mark.slow
def test_killed_run_is_completed_by_the_same_command(folder: Folder, finished: Folder):
    for words in ("rule layout", "rule train"):
        run = folder.start()
        _started(folder, run, words)
        time.sleep(0.3)
        run.kill()
        run.wait()
    again = folder.run()
    assert again.returncode == 0, again.stdout
    assert _scores(folder.results) == _scores(finished.results)
    left = [path.name for path in folder.results.rglob("*") if path.name.endswith((".part", ".old"))]
    assert not left
    assert NOTHING in folder.run().stdout


@pytest.mark.slow
def test_jobs_die_with_a_killed_snakemake(folder: Folder):
    run = folder.start()
    _started(folder, run, "rule ")
    run.kill()
    run.wait()
    here = str(folder.path)
    for _ in range(100):
        if not [entry for entry in Path("/proc").glob("[0-9]*/cwd") if _target(entry) == here]:
            return
        time.sleep(0.05)
    raise AssertionError("a job outlived the snakemake that started it")


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
