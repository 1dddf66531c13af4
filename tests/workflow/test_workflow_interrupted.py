"""Ctrl-C ends a run with one line and exit code 130, and the same command goes on."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.workflow import TINY, Folder, job_counts
from support.workflow.slurm import StandIns
from test_workflow_progress import seen

SAID = "Interrupted: run the same command again, it goes on where it stopped."
#: Snakemake that is interrupted when it begins to import a module of ours.
WHILE_READ = """
import importlib.abc, os, runpy, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "mgg.report.figures.files":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[0] = "snakemake"
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""
RUN = 'sys.argv[0] = "snakemake"\nrunpy.run_module("snakemake", run_name="__main__", alter_sys=True)\n'
#: Snakemake that is interrupted where an exception would break what it needs in order to end.
WHILE_BUSY = {
    # Its pool does not know the thread of a job yet, which has begun.
    "a thread starts": """
import os, runpy, signal, sys, threading, time
real = threading.Thread.start
def start(self):
    real(self)
    pool, executor = sys._getframe(2).f_code, sys._getframe(3).f_code
    if pool.co_name == "submit" and executor.co_filename.endswith("executors/local.py"):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)  # the handler is called
threading.Thread.start = start
"""
    + RUN,
    # asyncio says of a task's exception that nobody asked for it.
    "a loop has a task": """
import asyncio, os, runpy, signal, sys
import snakemake.jobs
real = snakemake.jobs.Job.prepare
async def prepare(self):
    async def press():
        os.kill(os.getpid(), signal.SIGINT)
    async with asyncio.TaskGroup() as group:
        group.create_task(press())
    await real(self)
snakemake.jobs.Job.prepare = prepare
"""
    + RUN,
}
#: In the place of mgg, which starts it: what fails by itself, and what Ctrl-C ends.
FAILS_THEN_INTERRUPTED = """#!/bin/sh
case "$*" in
  *"partition "*"--pes 4"*) echo "mgg: a mistake"; exit 2;;
  *"partition "*"--pes 1"*)
    until grep -qs "Error in rule partition" .snakemake/log/*.log; do sleep 0.1; done
    sleep 2; kill -INT $PPID; sleep 2; echo; exit 130;;
esac
exec {python} -m mgg.cli "$@"
"""


def interrupted(folder: Folder, words: str) -> str:
    """What a run prints whose terminal sends Ctrl-C a moment after ``words``; it must end with 130."""
    log = folder.path / "run.log"
    with log.open("w") as output:
        run = subprocess.Popen(
            folder.command(), cwd=folder.path, env=folder.environment(), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    while words not in log.read_text():
        assert run.poll() is None, log.read_text()
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(folder.limit) == 130, log.read_text()
    return log.read_text()


@pytest.mark.slow
def test_ctrl_c_is_no_failure_and_the_command_resumes(folder: Folder):
    for words in ("rule partition", "rule train"):
        *_, said, last = interrupted(folder, words).splitlines()
        assert said == SAID and last.startswith("Complete log(s): ")
        log = (folder.path / "run.log").read_text()
        assert not any(wrong in log for wrong in ("What failed", "Error in rule", "Traceback", "RuleException"))
        assert (folder.results / ".lock").read_text() == ""
    again = folder.run()
    assert again.returncode == 0, again.stdout
    assert "generate" not in job_counts(again.stdout)


@pytest.mark.slow
def test_ctrl_c_during_parsing_is_one_line(folder: Folder):
    run = folder.run_command([sys.executable, "-c", WHILE_READ, *folder.command()[3:]], folder.environment())
    assert run.returncode == 130, run.stdout
    assert run.stdout.splitlines()[-1] == SAID and "Traceback" not in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("when", WHILE_BUSY)
def test_ctrl_c_waits_for_critical_sections(folder: Folder, when: str):
    folder.program("mgg", "#!/bin/sh\nsleep 1; exit 130\n")
    run = folder.run_command([sys.executable, "-c", WHILE_BUSY[when], *folder.command()[3:]], folder.environment())
    *_, said, log = run.stdout.splitlines()
    assert run.returncode == 130 and said == SAID and log.startswith("Complete log(s): "), run.stdout
    assert not any(wrong in run.stdout for wrong in ("event loop", "Traceback", "never retrieved", "What failed"))


@pytest.mark.slow
def test_ctrl_c_waits_for_local_jobs_beside_cluster_jobs(folder: Folder):
    folder.overlay({"graph": {"datasets": {"digits": {}}}, "train": {"models": []}})
    folder.program("mgg", "#!/bin/sh\nkill -INT $PPID; sleep 1; touch ended; exit 130\n")
    run = StandIns(folder).run("--until", "retrieve")
    *_, said, log = run.stdout.splitlines()
    assert run.returncode == 130 and said == SAID and log.startswith("Complete log(s): "), run.stdout
    assert "event loop" not in run.stdout and (folder.path / "ended").exists()


@pytest.mark.slow
def test_background_run_ignores_ctrl_c(folder: Folder):
    """As shell scripts start it in the background."""
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", WHILE_READ]
    run = folder.run_command([*ignoring, *folder.command("--dry-run")[3:]], folder.environment())
    assert run.returncode == 0 and SAID not in run.stdout, run.stdout
    assert job_counts(run.stdout)["report"] == 1


@pytest.mark.slow
def test_failures_before_ctrl_c_are_reported(folder: Folder):
    folder.overlay(TINY | {"partition": {"pes": [1], "quality_pes": [4]}, "train": {"models": []}})
    folder.program("mgg", FAILS_THEN_INTERRUPTED.format(python=sys.executable))
    run = folder.run("--cores", "2", "--until", "partition")
    assert run.returncode == 130, run.stdout
    failed = run.stdout[run.stdout.index("What failed:") :].splitlines()
    assert failed[1:4] == [
        "  partition (dataset=planted, pes=4)",
        "    results/logs/partition/planted/p4.log ends:",
        "    | mgg: a mistake",
    ]
    assert failed[5] == SAID and len(failed) == 7


@pytest.mark.slow
def test_terminal_shows_the_interruption(folder: Folder):
    pytest.importorskip("snakemake_logger_plugin_rich")
    folder.program("mgg", "#!/bin/sh\nkill -INT $PPID; sleep 1; exit 130\n")
    output = seen(folder, code=130, PATH=folder.environment()["PATH"])
    said, end = output.rfind("Interrupted: "), output.rfind("Workflow interrupted")
    assert -1 < said < end and "Workflow Finished" not in output and "What failed" not in output, output


@pytest.mark.slow
def test_blank_log_is_called_empty(folder: Folder):
    folder.program("mgg", "#!/bin/sh\necho; exit 1\n")
    run = folder.run("--until", "generate")
    failures = run.stdout[run.stdout.index("What failed:") :].splitlines()
    assert run.returncode == 1 and failures[2] == "    results/logs/graph/planted.log: empty", failures
    assert folder.made("logs/graph/planted.log").read_text() == "\n"
