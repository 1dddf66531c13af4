"""What becomes of a run when Slurm is slow, silent or says no: stand-ins for its commands."""

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.jobs import Job
from snakemake.logging import logger
from snakemake.scheduling.job_scheduler import JobScheduler
from support.workflow import Folder
from support.workflow.slurm import StandIns

from mgg.backend.machine.slurm_job import ALLOCATION
from mgg.workflow import internals
from mgg.workflow.launch import hand_on_allocation
from mgg.workflow.slurm import Slurm, Understood, end_jobs_of, end_own_jobs


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the only programs that there are: shell scripts by name."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        "mgg.workflow.slurm.time", SimpleNamespace(sleep=lambda _: None, monotonic=itertools.count().__next__)
    )

    def make(**scripts: str) -> None:
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    return make


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What the workflow has logged."""
    monkeypatch.setattr(logger, "propagate", True)
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def understood(*answers: dict[str, str] | None, requeue: bool = False) -> list[dict[str, str]]:
    """What the plugin is told for these answers of Slurm."""

    async def query(number: int):
        return answers[number], 0.1

    async def ask():
        asked = Understood(query, requeue, "run-1")
        return [(await asked(number))[0] for number in range(len(answers))]

    return asyncio.run(ask())


def test_slurm_states_are_translated_for_the_plugin():
    """It waits for anything else, and leaves preempted jobs to Slurm, which is told not to start them again."""
    states = {"1": "CANCELLED by 1000", "2": "CANCELLED+", "3": "PREEMPTED", "4": "RUNNING"}
    assert understood(states) == [{"1": "CANCELLED", "2": "CANCELLED", "3": "ERROR", "4": "RUNNING"}]
    assert understood({"3": "PREEMPTED"}, requeue=True) == [{"3": "PREEMPTED"}]


def test_forever_pending_jobs_are_named_once(programs, said):
    """A minute lies between two looks."""
    programs(squeue="echo '1|QOSMaxWallDurationPerJobLimit'; echo '2|Priority'")
    understood({"1": "PENDING"}, {"1": "PENDING"}, *[{"1": "RUNNING"}] * 3, {"1": "PENDING"})
    assert said().count("Slurm job 1 waits, perhaps for ever: QOSMaxWallDurationPerJobLimit;") == 1
    assert "Slurm job 2" not in said()


@pytest.mark.parametrize(
    ("wanted", "sacct", "age", "taken", "words"),
    [
        ("sacct", "exit 0", 3600, "sacct", ""),
        ("sacct", "echo disabled >&2; exit 1", 3600, "squeue", "because sacct does not: disabled"),
        ("squeue", "exit 1", 3600, "squeue", ""),
        ("squeue", "exit 0", 130, "sacct", "squeue forgets them 130 s after their end (MinJobAge)"),
        ("squeue", "exit 1", 130, "", "Slurm forgets jobs 130 s after their end (MinJobAge) and sacct knows none"),
        ("sacct", "exit 1", 30, "", "because sacct does not: exit code 1"),
    ],
)
def test_status_command_is_chosen(
    programs, said, capsys, monkeypatch, wanted: str, sacct: str, age: int, taken: str, words: str
):
    """By itself the plugin takes sacct, even one that does not answer, or a squeue that forgets jobs."""
    programs(sacct=sacct, which='command -v "$1"')
    monkeypatch.setattr(internals.plugin(), "get_min_job_age", lambda: age)
    for name in ("query_job_status", "is_query_tool_available"):
        monkeypatch.setattr(internals.plugin(), name, getattr(internals.plugin(), name))
    settings = SimpleNamespace(status_command=wanted, requeue=False)
    try:
        Slurm(SimpleNamespace(executor_settings=settings)).ask_who_answers()
        assert taken == settings.status_command
    except SystemExit as end:
        assert end.code == 3 and not taken
    assert words in said() + capsys.readouterr().err
    assert isinstance(internals.plugin().query_job_status, Understood)
    assert internals.plugin().is_query_tool_available("sacct") == (taken != "squeue")


def test_changed_snakemake_internals_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys):
    workflow = SimpleNamespace(scheduler=SimpleNamespace(_handle_error=JobScheduler._handle_error))
    for break_it, use in (
        (lambda: setattr(workflow.scheduler, "_handle_error", len), lambda: internals.limit_attempts(workflow, len)),
        (lambda: monkeypatch.setattr(Job, "restart_times", 2), lambda: internals.limit_attempts(workflow, len)),
        (lambda: monkeypatch.delattr(internals.plugin(), "query_job_status"), lambda: internals.change_states(len)),
        (lambda: monkeypatch.delattr(internals.plugin(), "get_min_job_age"), internals.min_job_age),
    ):
        break_it()
        with pytest.raises(SystemExit, match="3"):
            use()
        [line] = capsys.readouterr().err.splitlines()
        assert re.match(r"error: snakemake\S* [\d.]+: \S+ is not what this workflow knows: install", line)


def test_jobs_of_a_killed_run_on_another_cluster_are_named(programs, capsys):
    with pytest.raises(SystemExit, match="3"):
        end_jobs_of("dead-1", "results")
    assert capsys.readouterr().err.endswith(
        "this host has no squeue that says whether its Slurm jobs (dead-1) are still there: run this on a host of that"
        " cluster, or remove results/.lock if they are not\n"
    )


def test_interrupted_run_cancels_its_jobs(programs, said, tmp_path: Path):
    """Ctrl-C comes while others are being submitted."""
    gone = tmp_path / "gone"
    programs(squeue=f"[ -e {gone} ] || echo 77", scancel=f'[ "$*" = --name=run-1 ] && : > {gone}')
    assert end_own_jobs("run-1") and "cancelled Slurm jobs that this run would leave: 77" in said()
    programs(squeue="echo 77", scancel="exit 0")
    assert not end_own_jobs("run-1"), "the lock keeps the run's name"


def test_allocation_of_the_submitter_does_not_reach_the_jobs(monkeypatch: pytest.MonkeyPatch):
    """Somebody starts the workflow within an allocation of GPUs; a job's own Snakemake hands on what it has."""
    name = ALLOCATION[0]
    monkeypatch.setenv(f"MGG_{name}", "2")
    monkeypatch.delenv(name, raising=False)
    hand_on_allocation(SimpleNamespace(is_main_process=True))
    assert f"MGG_{name}" not in os.environ
    monkeypatch.setenv(name, "3")
    hand_on_allocation(SimpleNamespace(is_main_process=False))
    assert os.environ[f"MGG_{name}"] == "3"


class Cluster:
    """A folder and its stand-ins, some of which do something else first."""

    def __init__(self, path: Path, **first: str):
        self.folder = Folder(path)
        self.stand_ins = StandIns(self.folder)
        self.calls = self.stand_ins.calls
        for name, script in first.items():
            program = self.stand_ins.programs / name
            real = self.stand_ins.programs / "real" / name  # by whose name it knows what it stands for
            real.parent.mkdir(exist_ok=True)
            program.rename(real)
            program.write_text(f'#!/bin/sh\ncd {self.calls}\n{script}\ncd ..; exec {real} "$@"\n')
            program.chmod(0o755)

    def run(self, *arguments: str, status: str = "squeue", **environment: str) -> subprocess.CompletedProcess[str]:
        return self.stand_ins.run("--until", "generate", *arguments, status=status, env=environment)


@pytest.mark.slow
def test_jobs_are_kept_while_slurm_does_not_answer(tmp_path: Path):
    """More questions than the plugin asks at a time."""
    silent = "case $* in *%T*) echo >> asked; [ $(wc -l < asked) -le 7 ] && exit 1;; esac"
    cluster = Cluster(tmp_path, squeue=silent)
    run = cluster.run()
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("Slurm does not say how its jobs are; asking again") == 1
    assert len(cluster.stand_ins.memory()) == 1


@pytest.mark.slow
def test_job_accepted_without_an_answer_is_not_duplicated(tmp_path: Path):
    """It is cancelled before the next attempt, and no other is."""
    took = (
        'if [ ! -e twin ]; then while [ $# -gt 0 ]; do [ "$1" = --comment ] && echo "55|$2" > twin; shift; done;'
        " echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1; fi;"
        " [ -e ended ] || { echo 'a job of this rule is there' >&2; exit 1; }"
    )
    queue = "case $* in *%k*) echo '56|rule_other'; [ -e ended ] || cat twin; exit 0;; esac"
    cluster = Cluster(tmp_path, sbatch=took, squeue=queue, scancel='[ "$*" = 55 ] && touch ended')
    run = cluster.run()
    assert run.returncode == 0 and "without an answer to sbatch: cancelling 55\n" in run.stdout, run.stdout
    assert (cluster.calls / "twin").read_text().startswith("55|rule_generate_wildcards_")
    assert len(cluster.stand_ins.memory()) == 1


def without_slurm(folder: Folder, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    """A run on a host that has no command of Slurm's."""
    for name in ("bash", "which"):
        folder.program(name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    path = os.pathsep.join([str(folder.programs), str(Path(sys.executable).parent)])
    return folder.run(*arguments, env=folder.environment(PATH=path), **options)


@pytest.mark.slow
def test_host_without_slurm_is_refused_without_a_lock(folder: Folder):
    run = without_slurm(folder, profile="dgx")
    assert run.returncode == 3 and run.stdout.splitlines()[-1] == (
        "error: no sbatch on this host, and the profile hands its jobs to Slurm: run this on a login node of the"
        " cluster, or here with --profile profiles/local"
    )
    assert not folder.results.exists()


@pytest.mark.sentinel
@pytest.mark.slow
def test_busy_controller_is_retried(tmp_path: Path):
    """However many attempts the profile allows."""
    busy = (
        "echo >> asked; [ $(wc -l < asked) -gt 10 ] ||"
        " { echo 'sbatch: error: Batch job submission failed: Unexpected message received' >&2; exit 1; }"
    )
    cluster = Cluster(tmp_path, sbatch=busy)
    run = cluster.run("--retries", "1")
    assert run.returncode == 0, run.stdout
    assert len(cluster.stand_ins.memory()) == 1
