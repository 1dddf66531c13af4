"""Failed jobs: which are tried again, which lacked memory or time, and their summary at the end of a run."""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from mgg.backend.machine.slurm import UNANSWERED
from mgg.errors import NOT_ENOUGH_MEMORY
from mgg.workflow.interrupted import Interruption
from mgg.workflow.plan import shown_wildcards
from mgg.workflow.slurm import PREEMPTED, Slurm

#: Exit codes of mgg that a second attempt does not change: a user's mistake, or a result that differs from its
#: reference, which a retry would hide.
FINAL = (2, 4)
#: Exit code of a training that was told to stop, as Slurm does shortly before the time limit. It has written a
#: checkpoint, unless it says that there was nothing to keep.
STOPPED = 5
UNBEGUN = re.compile(rb"^mgg: stopped before the first epoch", re.MULTILINE)
#: Slurm states of jobs whose next attempt gets twice as much.
LACKED = {"memory": ("OUT_OF_MEMORY",), "time": ("TIMEOUT", "DEADLINE")}
#: Log lines about lack of memory: mgg's own; srun's and slurmstepd's on ranks, whose job may just be FAILED. Exit code
#: 3 of mgg stands for any lack, including what no memory replaces.
SHORT_OF_MEMORY = re.compile(
    rf"""^\s*(
    mgg:\ (PE\ \d+:\ )?{re.escape(NOT_ENOUGH_MEMORY)}:
    | srun:\ error:\ \S+:\ tasks?\ [\d,-]+:\ Out\ Of\ Memory
    | slurmstepd(-\S+)?:\ error:\ .*(oom[-_]kill\ event|exceeded\ memory\ limit)
    )""".encode(),
    re.MULTILINE | re.VERBOSE,
)
#: Largest number of resubmissions while Slurm is too busy; at least TAKEN seconds lie between two of them.
BUSY = 30
#: Bytes at the end of a log that contain the exit code and any lack of memory.
TAIL = 2**16
#: States of an attempt that never became a Slurm job: sbatch refused, or did not answer.
REFUSED = ("not submitted", "not answered")
#: Largest number of jobs, and of lines per log, in the summary.
SHOWN_JOBS = 10
SHOWN_LINES = 5

RETRY = "then run the same command again; what is finished is kept"
NEXT = {
    "TIMEOUT": "give it more time: runtime (minutes) of rule {rule} in the profile",
    "DEADLINE": "give it more time: runtime (minutes) of rule {rule} in the profile",
    "OUT_OF_MEMORY": "give it more memory: mem_mb of rule {rule} in the profile",
    "CANCELLED": "somebody or Slurm itself ended it (`sacct -j {job}` or `scontrol show job {job}` says who and why);"
    f" {RETRY.removeprefix('then ')}",
    "PREEMPTED": "Slurm gave its nodes to other jobs: run the same command again, or take a partition that nobody"
    " preempts",
    "NODE_FAIL": "its node went down (`sinfo -R` says why): run the same command again",
    "BOOT_FAIL": "its node did not start (`sinfo -R` says why): run the same command again",
    "not submitted": "correct partition, account, GPU model or numbers in the profile; `mgg doctor --slurm` shows what"
    " there is",
    "not answered": "Slurm is busy or does not answer: run the same command again; what is finished is kept",
}
#: Advice by exit code, for Slurm states that only say that the job failed. 6 is mgg's for a PE that died or stalled;
# srun's exceeds 128 if a signal ended a rank, whatever the other ranks return.
DIED = 6
NEXT_BY_CODE = {
    3: f"get what the log names, or a node that has it (partition, gpu_model of rule {{rule}} in the profile), {RETRY}",
    DIED: "a process died or stalled: run the same command again; a training goes on from its checkpoint",
}


class Failures(logging.Handler):
    """The failed jobs of this run with all their attempts, from Snakemake's log events."""

    def __init__(self, interruption: Interruption, slurm: Slurm):
        super().__init__()
        self.interruption, self.slurm = interruption, slurm
        self.wildcards: dict[int, dict[str, str]] = {}
        #: Attempts of each failed job, by its number.
        self.failed: dict[int, list[Any]] = {}

    def emit(self, record: Any) -> None:
        """Note a job's start, failure or end."""
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            self.wildcards[record.jobid] = dict(record.wildcards or {})
        elif event == LogEvent.JOB_ERROR and not self.interruption.ended(record):
            # Read the log now, because the next attempt overwrites it.
            record.short_of_memory, record.unbegun = short_of_memory(record), unbegun(record)
            self.failed.setdefault(record.jobid, []).append(record)
        elif event == LogEvent.JOB_FINISHED:
            self.failed.pop(record.job_id, None)

    def attempts(self, rule: str, wildcards: Any) -> list[Any]:
        """Return the failed attempts of a job so far."""
        return [
            record
            for job, records in self.failed.items()
            for record in records
            if record.rule_name == rule and self.wildcards.get(job, {}) == dict(wildcards.items())
        ]

    def summary(self) -> str:
        """Return one paragraph per job."""
        shown = [self.described(records) for records in list(self.failed.values())[:SHOWN_JOBS]]
        more = len(self.failed) - len(shown)
        return "\n".join(["What failed:", *shown, *([f"  ... and {more} more jobs"] if more > 0 else [])])

    def described(self, records: list[Any]) -> str:
        """Describe one job by its last submitted attempt, or its last one if none was submitted."""
        last = records[-1]
        refused = slurm_state(last)[0] in REFUSED
        record = next((each for each in reversed(records) if slurm_state(each)[0] not in REFUSED), last)
        shown = shown_wildcards(self.wildcards.get(record.jobid, {}))
        wildcards = ", ".join(f"{name}={value}" for name, value in shown.items())
        state, job = slurm_state(record)
        words = [f"  {record.rule_name} ({wildcards})" if wildcards else f"  {record.rule_name}"]
        words += [f"Slurm job {job}"] if job else []
        words += [state] if state else []
        lines = [", ".join(words)]
        if record is not last:
            lines.append(f"    A further attempt was not submitted, sbatch: {refusal(last)}")
        elif refused:
            lines.append(f"    sbatch: {refusal(record)}")
        lines += [f"    {line}" for line in ends_of_logs(record.log)]
        return "\n".join([*lines, f"    Next: {advice(record).format(rule=record.rule_name, job=job)}"])

    def lacked(self, what: str, rule: str, wildcards: Any) -> int:
        """Return how many attempts of a job have failed so far for lack of "memory" or "time"."""

        def did(record: Any) -> bool:
            if slurm_state(record)[0] in LACKED[what]:
                return True
            if what == "memory":
                return bool(record.short_of_memory)
            return stopped(record) and slurm_state(record)[0] != "PREEMPTED"

        return sum(map(did, self.attempts(rule, wildcards)))

    def attempts_left(self, job: Any) -> int:
        """Return how often Snakemake may restart a job; it asks once the job's error is in its log.

        Paused attempts do not count: each has trained at least one epoch, so their number is finite. Up to BUSY
        attempts that Slurm was too busy for do not count either.
        """
        allowed: int = job.rule.restart_times
        records = self.failed.get(job.jobid, [])
        if not allowed or (records and (exit_code(records[-1]) in FINAL or not self.nothing_submitted(records[-1]))):
            return 0
        unanswered = sum(slurm_state(each)[0] == "not answered" for each in records)
        return allowed + sum(map(paused, records)) + min(unanswered, BUSY)

    def nothing_submitted(self, record: Any) -> bool:
        """Return whether an unanswered submission left no job; Slurm may have accepted it.

        Such a job is cancelled, since the next attempt would write to the same place. If Slurm does not confirm that it
        is gone, there is no next attempt, and the next run ends it by its name.
        """
        if slurm_state(record)[0] != "not answered":
            return True
        call = re.search(r"sbatch call:\s+(.*)", record.rule_msg)
        comment = call and re.search(r"--comment ('[^']*'|\S+)", call[1])
        return comment is not None and self.slurm.end_unheard(comment[1].strip("'"))


def tail_of(log: str) -> bytes:
    """Return the last bytes of a log; empty if it cannot be read."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read()
    except OSError:
        return b""


def exit_code(record: Any) -> int | None:
    """Return the exit code of a failed Slurm job's command from its inner Snakemake's log; None if absent."""
    if not record.aux.get("external_jobid") or not record.log:
        return None
    codes = re.findall(rb"returned non-zero exit status (\d+)", tail_of(record.log[-1]))
    return int(codes[-1]) if codes else None


def short_of_memory(record: Any) -> bool:
    """Return whether a failed Slurm job's logs (the rule's and Slurm's) report a lack of memory."""
    logs = {*record.log[:1], *record.log[-1:]} if record.aux.get("external_jobid") else ()
    return any(SHORT_OF_MEMORY.search(tail_of(log)) for log in logs)


def unbegun(record: Any) -> bool:
    """Return whether a failed job's own log says that training stopped before it had anything to keep."""
    return any(UNBEGUN.search(tail_of(log)) for log in (record.log or [])[:1])


def stopped(record: Any) -> bool:
    """Return whether Slurm, and not somebody's scancel, told an attempt to stop."""
    return exit_code(record) == STOPPED and slurm_state(record)[0] != "CANCELLED"


def paused(record: Any) -> bool:
    """Return whether Slurm told an attempt to stop and it kept its progress."""
    return stopped(record) and not record.unbegun


def advice(record: Any) -> str:
    """Return advice after a failed attempt."""
    state, code = slurm_state(record)[0], exit_code(record)
    if code == STOPPED:
        if record.unbegun:
            return f"it was told to stop before its first epoch; where its time was over, {NEXT['TIMEOUT']}"
        return "it was told to stop and has a checkpoint: run the same command again"
    if record.short_of_memory:
        return NEXT["OUT_OF_MEMORY"]
    code = DIED if code and code > 128 else code
    return NEXT.get(state) or NEXT_BY_CODE.get(code or 0) or f"correct what the log says, {RETRY}"


def slurm_state(record: Any) -> tuple[str, str]:
    """Return a Slurm job's state and id as the executor reports them, '' if there is none."""
    message = record.rule_msg or ""
    status = re.search(r"SLURM status is:\s*'(\w+)", message)
    refused = "sbatch failed" in message or "submission failed" in message
    state = ""
    if status:
        state = "PREEMPTED" if status[1] == PREEMPTED else status[1]
    elif refused:
        state = REFUSED[bool(UNANSWERED.search(refusal(record)))]
    return state, record.aux.get("external_jobid", "")


def refusal(record: Any) -> str:
    """Return sbatch's message on one line."""
    said = re.search(r"error message was '(.*?)'\.\n", record.rule_msg, re.DOTALL)
    return " ".join((said[1] if said else record.rule_msg).split())[:300]


def ends_of_logs(logs: list[str]) -> list[str]:
    """Return the end of the rule's log, or of Slurm's log (the last one) if the command wrote none."""
    found: list[str] = []
    for path in dict.fromkeys([*logs[:1], *logs[-1:]]):
        last = last_lines(path)
        if last:
            return [*found, f"{path} ends:", *(f"| {line}" for line in last)]
        found.append(f"{path}: {'not written' if last is None else 'empty'}")
    return found


def last_lines(path: str) -> list[str] | None:
    """Return the last non-blank lines of a file, None if it cannot be read."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip()[:300] for line in deque(filter(str.strip, file), SHOWN_LINES)]
    except OSError:
        return None
