"""Slurm jobs of this run and of killed ones, and their states where the plugin alone would wait forever.

That is where sacct has no database or uses other words, a query went unanswered, Slurm does not restart preempted jobs,
or jobs ask for more than they are allowed. The next run in a killed one's results folder ends the jobs that it left.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
from snakemake.logging import logger

from mgg.workflow import internals, refuse

#: Seconds until jobs of a killed run must be gone (Slurm's KillWait, 30 by default, and a site's epilog come first),
#: and until Slurm must answer.
GONE = 300
ANSWER = 60
#: Seconds until a job that Slurm took without answering sbatch shows up in the queue.
TAKEN = 10
#: Commands that the plugin and the workflow call; a host that lacks one of them has no Slurm.
COMMANDS = ("sbatch", "squeue", "sacct", "scancel")
#: Seconds that Slurm must remember ended jobs: the plugin queries at least every three minutes.
REMEMBERED = 240
#: Replacement for PREEMPTED: the plugin's only word for a failed job that is not a Slurm state.
PREEMPTED = "ERROR"
#: Slurm's reasons for jobs that will never start with their current requests.
NEVER = re.compile(r"(QOS|Assoc)Max\w+PerJob(Limit)?|MaxMemPerLimit|Partition(Time|Node)Limit")
#: Seconds between two checks of why jobs wait.
REASONS_EVERY = 60


class Slurm(logging.Handler):
    """The Slurm jobs of one run, whose name it notes when the plugin prints it."""

    def __init__(self, workflow: Any):
        super().__init__()
        self.workflow = workflow
        #: Name that only this run's Slurm jobs have; '' if no job goes to Slurm.
        self.run = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Note the run's name."""
        if run := re.fullmatch(r"SLURM run ID: (\S+)", record.getMessage()):
            self.run = run[1]

    @property
    def used(self) -> bool:
        """Whether the profile hands jobs to Slurm."""
        return self.workflow.executor_plugin is not None and self.workflow.executor_plugin.name == "slurm"

    def refuse_without(self) -> None:
        """End a run that needs Slurm on a host without it, before anything is locked."""
        if not self.used:
            return
        if lack := next((name for name in COMMANDS if shutil.which(name) is None), None):
            refuse(
                f"no {lack} on this host, and the profile hands its jobs to Slurm: run this on a login node of the"
                " cluster, or here with --profile profiles/local",
                3,
            )
        internals.need(bool(self.run), internals.PLUGIN, "the line `SLURM run ID: `")

    def ask_who_answers(self) -> None:
        """Use squeue for job states if sacct is chosen but cannot answer, and vice versa; report it in one line."""
        settings = self.workflow.executor_settings
        if getattr(settings, "status_command", None) is None:
            return
        internals.change_states(lambda query: Understood(query, settings.requeue, self.run))
        lack = sacct_lacks()
        if settings.status_command == "sacct":
            if not lack:
                return
            logger.warning(f"squeue tells how jobs are, because sacct does not: {lack}")
        age = internals.min_job_age()
        if age is not None and age < REMEMBERED:
            if lack:
                refuse(
                    f"Slurm forgets jobs {age} s after their end (MinJobAge) and sacct knows none, so their ends would"
                    f" be missed: ask for MinJobAge={REMEMBERED} or more in slurm.conf, or for slurmdbd",
                    3,
                )
            logger.warning(f"sacct tells how jobs are: squeue forgets them {age} s after their end (MinJobAge)")
            settings.status_command = "sacct"
            return
        settings.status_command = "squeue"
        internals.never_ask_sacct()

    def end_unheard(self, comment: str) -> bool:
        """Cancel this run's job with this comment; return whether Slurm confirms within a minute that it is gone."""
        time.sleep(TAKEN)
        deadline = time.monotonic() + ANSWER
        while time.monotonic() < deadline:
            try:
                found = [line.partition("|") for line in queue("%i|%k", self.run).splitlines()]
                left = [job for job, _, words in found if words == comment]
                if not left:
                    return True
                logger.warning(f"Slurm had taken a job without an answer to sbatch: cancelling {', '.join(left)}")
                subprocess.run(["scancel", *left], timeout=ANSWER, check=False)
            except (OSError, subprocess.SubprocessError):
                pass
            time.sleep(1)
        return False


def queue(format: str, run: str, *options: str) -> str:
    """Return squeue's output on a run's jobs; without options, on those that wait, run or are ending."""
    command = ["squeue", "--noheader", f"--format={format}", f"--name={run}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True).stdout


def jobs_named(run: str) -> list[str]:
    """Return the ids of a run's jobs that wait, run or are ending."""
    return queue("%i", run).split()


def being_submitted(run: str) -> bool:
    """Return whether an sbatch of a killed run still lives on this host: its job is not in the queue yet."""
    lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return any("sbatch" in line and run in line for line in lines)


def end_jobs_of(run: str, folder: str) -> None:
    """Cancel the jobs of a run that was killed in ``folder`` and wait until they are gone, with their checkpoints."""
    left: list[str] = []
    try:
        last = time.monotonic() + GONE
        while being_submitted(run) and time.monotonic() < last:
            time.sleep(0.1)
        left = jobs_named(run)
        if left:
            logger.warning(
                f"the run before was killed: waiting for the end of its Slurm jobs, now cancelled: {', '.join(left)}"
            )
            subprocess.run(["scancel", f"--name={run}"], timeout=ANSWER, check=False)
        deadline = time.monotonic() + GONE
        while left and time.monotonic() < deadline:
            time.sleep(1)
            left = jobs_named(run)
    except FileNotFoundError:
        refuse(
            f"the run before was killed, and this host has no squeue that says whether its Slurm jobs ({run}) are still"
            f" there: run this on a host of that cluster, or remove {folder}/.lock if they are not",
            3,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = " ".join((getattr(error, "stderr", "") or str(error)).split())
        refuse(
            f"the run before was killed, and Slurm does not say whether its jobs ({run}) are still there: {reason}", 3
        )
    if left:
        refuse(
            f"the run before was killed, and its Slurm jobs do not end: {', '.join(left)}; `scontrol show job`"
            " says why",
            3,
        )


def end_own_jobs(run: str) -> bool:
    """At the end of a run, cancel its remaining Slurm jobs (Ctrl-C can leave some); return whether none is left.

    Snakemake cancels only the jobs it knows at that moment, and still submits those it has begun to.
    """
    try:
        # Skip jobs that are ending: those that wrote their output may take a while to go.
        left = queue("%i", run, "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED").split()
        if left:
            logger.warning(f"cancelled Slurm jobs that this run would leave: {', '.join(left)}")
            subprocess.run(["scancel", f"--name={run}"], timeout=ANSWER, check=False)
        return not jobs_named(run)
    except (OSError, subprocess.SubprocessError):
        return False


def sacct_lacks() -> str:
    """Return what keeps sacct from answering; '' if nothing does."""
    command = ["sacct", "--allocations", "--noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    return " ".join(asked.stderr.split()) or f"exit code {asked.returncode}" if asked.returncode else ""


class Understood:
    """The plugin's query of job states, with answers that it understands."""

    def __init__(self, query: Callable[..., Awaitable[tuple[Any, Any]]], requeue: bool, run: str):
        self.query, self.requeue, self.run = query, requeue, run
        self.silent = 0
        self.looked = -math.inf
        self.reported: set[str] = set()

    async def __call__(self, *arguments: Any) -> tuple[dict[str, str], float]:
        """Return the states by job, and the seconds of the query."""
        states, seconds = await self.query(*arguments)
        if states is None:
            # Without an answer the plugin forgets all jobs; if an answer only omits jobs, it keeps them.
            if self.silent % 100 == 0:
                logger.warning("Slurm does not say how its jobs are; asking again until it does")
            self.silent += 1
            await asyncio.sleep(1)
            return {}, 0.0
        self.silent = 0
        if "PENDING" in states.values() and time.monotonic() > self.looked + REASONS_EVERY:
            self.looked = time.monotonic()
            await self.warn_of_the_waiting()
        return {job: self.state(words) for job, words in states.items()}, seconds

    def state(self, words: str) -> str:
        """Return a state in the plugin's words: sacct adds who cancelled a job, and marks truncated states."""
        state = words.split(maxsplit=1)[0].rstrip("+") if words.split() else words
        # Slurm requeues none of our jobs unless the user asks for it.
        return PREEMPTED if state == "PREEMPTED" and not self.requeue else state

    async def warn_of_the_waiting(self) -> None:
        """Report once per job that it asks for more than a limit of its user, account or partition."""
        try:
            asked = await asyncio.to_thread(queue, "%i|%r", self.run, "--states=PENDING")
        except (OSError, subprocess.SubprocessError):
            return
        for job, _, reason in (line.partition("|") for line in asked.splitlines()):
            if job not in self.reported and NEVER.fullmatch(reason):
                self.reported.add(job)
                logger.warning(
                    f"Slurm job {job} waits, perhaps for ever: {reason}; `scontrol show job {job}` says what it asks"
                    " for. If that is more than a limit grants, `scancel` it and give its rule less in the profile"
                )
