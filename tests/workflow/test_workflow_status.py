"""What becomes of a run when Slurm is slow, silent or says no: stand-ins for its commands."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.slurm import StandIns
from support.workflow import TINY, Folder

pytestmark = pytest.mark.slow


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


#: Like sacct: every job is in that state.
ALL_ARE = 'for file in *.json; do [ -e $file ] && echo "${{file%.json}}|{}"; done; exit 0'


@pytest.mark.parametrize("state", ["CANCELLED by 1000", "CANCELLED+"])
def test_a_job_that_somebody_cancelled_has_ended_for_sacct_too(tmp_path: Path, state: str):
    """It says who; the plugin knows CANCELLED alone, and waits for anything else."""
    cluster = Cluster(tmp_path, sacct=ALL_ARE.format(state))
    run = cluster.run(status="sacct", STAND_IN_CODE="1")
    assert run.returncode == 1 and re.search(r"Slurm job \d+, CANCELLED\n", run.stdout), run.stdout
    assert len(cluster.stand_ins.memory()) == 3


def test_jobs_are_not_forgotten_while_slurm_does_not_answer(tmp_path: Path):
    """More questions than the plugin asks at a time."""
    silent = "case $* in *%T*) echo >> asked; [ $(wc -l < asked) -le 7 ] && exit 1;; esac"
    cluster = Cluster(tmp_path, squeue=silent)
    run = cluster.run()
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("Slurm does not say how its jobs are; asking again") == 1
    assert len(cluster.stand_ins.memory()) == 1


@pytest.mark.parametrize(("reason", "warned"), [("QOSMaxWallDurationPerJobLimit", 1), ("Priority", 0)])
def test_a_job_that_waits_for_ever_is_named(tmp_path: Path, reason: str, warned: int):
    waits = (
        "case $* in *%T*) echo >> asked; [ $(wc -l < asked) -le 3 ] && echo '1000|PENDING' && exit 0;;"
        f" *%r*) echo '1000|{reason}'; exit 0;; esac"
    )
    run = Cluster(tmp_path, squeue=waits).run()
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(f"Slurm job 1000 waits, perhaps for ever: {reason};") == warned


def test_a_run_cancels_the_jobs_that_it_would_leave(tmp_path: Path):
    """Ctrl-C comes while others are being submitted."""
    left = "case $* in *--format=%i\\ *) [ -e *.cancelled ] || echo 77; exit 0;; esac"
    cluster = Cluster(tmp_path, squeue=left)
    run = cluster.run()
    assert run.returncode == 0 and "cancelled Slurm jobs that this run would leave: 77\n" in run.stdout, run.stdout
    assert len(list(cluster.calls.glob("*.cancelled"))) == 1
    assert (cluster.folder.results / ".lock").read_text() == ""


def test_a_job_that_slurm_took_without_an_answer_is_not_doubled(tmp_path: Path):
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


def test_a_host_without_slurm_is_told_of_at_once_and_nothing_is_locked(folder: Folder):
    run = without_slurm(folder, profile="dgx")
    assert run.returncode == 3 and run.stdout.splitlines()[-1] == (
        "error: no sbatch on this host, and the profile hands its jobs to Slurm: run this on a login node of the"
        " cluster, or here with --profile profiles/local"
    )
    assert not folder.results.exists()


def test_jobs_of_a_killed_run_that_this_host_cannot_ask_for(folder: Folder):
    folder.results.mkdir()
    (folder.results / ".lock").write_text(f"process 1 on {socket.gethostname()}\nSlurm run dead-1\n")
    run = without_slurm(folder)
    assert run.returncode == 3 and run.stdout.splitlines()[-1].endswith(
        "this host has no squeue that says whether its Slurm jobs (dead-1) are still there: run this on a host of that"
        " cluster, or remove results/.lock if they are not"
    )


@pytest.mark.sentinel
def test_a_busy_controller_is_asked_until_it_takes_the_job(tmp_path: Path):
    """However many attempts the profile allows."""
    busy = (
        "echo >> asked; [ $(wc -l < asked) -gt 10 ] ||"
        " { echo 'sbatch: error: Batch job submission failed: Unexpected message received' >&2; exit 1; }"
    )
    cluster = Cluster(tmp_path, sbatch=busy)
    run = cluster.run("--retries", "1")
    assert run.returncode == 0, run.stdout
    assert len(cluster.stand_ins.memory()) == 1


@pytest.mark.parametrize(("sacct", "said", "code"), [
    ("exit 0", "sacct tells how jobs are: squeue forgets them 130 s after their end (MinJobAge)", 1),
    ("exit 1", "Slurm forgets jobs 130 s after their end (MinJobAge) and sacct knows none", 3),
])  # fmt: skip
def test_squeue_that_forgets_is_not_asked_even_where_it_is_wanted(tmp_path: Path, sacct: str, said: str, code: int):
    cluster = Cluster(tmp_path, sacct=sacct, sbatch="echo no >&2; exit 1")
    run = cluster.run("--retries", "0", STAND_IN_AGE="130")
    assert run.returncode == code and said in run.stdout, run.stdout


def test_what_the_submitting_job_holds_does_not_reach_the_jobs(tmp_path: Path):
    """Somebody starts the workflow within an allocation of GPUs."""
    cluster = Cluster(tmp_path, sbatch="env > environment; exit 1")
    cluster.run("--retries", "0", MGG_SLURM_GPUS_ON_NODE="2")
    assert "MGG_SLURM" not in (cluster.calls / "environment").read_text()


@pytest.mark.slow
def test_all_nodes_get_the_memory_of_the_fullest(folder: Folder):
    """Of 5 ranks on 2 nodes one has 3."""
    folder.overlay(TINY | {"partition": {"pes": [5], "quality_pes": []}, "train": TINY["train"] | {"pes": [5]}})
    shown = folder.run("--dry-run", "--until", "aggregate", profile="slurm-cpu").stdout
    [asked] = re.findall(r"rule aggregate:.*?mem_mb=(\d+)", shown, re.DOTALL)
    assert 1500 + 3 * 2000 <= int(asked) < 1500 + 3 * 2000 + 100
