# Summary of failures at the end of a run: rule, wildcards, Slurm job and state, end of the log, next step.
import logging
from collections import deque

from mgg.backend.machine.slurm import UNANSWERED
from snakemake_interface_logger_plugins.common import LogEvent

# States of an attempt that never became a Slurm job: sbatch refused, or did not answer.
REFUSED = ("not submitted", "not answered")
# Largest number of jobs, and of lines per log, in the summary.
SHOWN_JOBS = 10
SHOWN_LINES = 5

RETRY = "then run the same command again; what is finished is kept"
NEXT = {
    "TIMEOUT": "give it more time: runtime (minutes) of rule {rule} in the profile",
    "DEADLINE": "give it more time: runtime (minutes) of rule {rule} in the profile",
    "OUT_OF_MEMORY": "give it more memory: mem_mb of rule {rule} in the profile",
    "CANCELLED": "somebody or Slurm itself ended it (`sacct -j {job}` or `scontrol show job {job}` says who and why);"
    f" {RETRY.removeprefix('then ')}",
    "PREEMPTED": "Slurm gave its nodes to other jobs: run the same command again, or take a partition that nobody preempts",
    "NODE_FAIL": "its node went down (`sinfo -R` says why): run the same command again",
    "BOOT_FAIL": "its node did not start (`sinfo -R` says why): run the same command again",
    "not submitted": "correct partition, account, GPU model or numbers in the profile; `mgg doctor --slurm` shows what there is",
    "not answered": "Slurm is busy or does not answer: run the same command again; what is finished is kept",
}
# Advice by exit code, for Slurm states that only say that the job failed. 6 is mgg's for a PE that died or stalled;
# srun's exceeds 128 if a signal ended a rank, whatever the other ranks return.
DIED = 6
NEXT_BY_CODE = {
    3: f"get what the log names, or a node that has it (partition, gpu_model of rule {{rule}} in the profile), {RETRY}",
    DIED: "a process died or stalled: run the same command again; a training goes on from its checkpoint",
}


class Failures(logging.Handler):
    """The failed jobs of this run with all their attempts, from Snakemake's log events."""

    def __init__(self):
        super().__init__()
        self.wildcards = {}
        self.failed = {}

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            self.wildcards[record.jobid] = dict(record.wildcards or {})
        elif event == LogEvent.JOB_ERROR and not INTERRUPTION.ended(record):
            # Read the log now, because the next attempt overwrites it.
            record.short_of_memory, record.unbegun = short_of_memory(record), unbegun(record)
            self.failed.setdefault(record.jobid, []).append(record)
        elif event == LogEvent.JOB_FINISHED:
            self.failed.pop(record.job_id, None)

    def attempts(self, rule, wildcards):
        """Return the failed attempts of a job so far."""
        return [
            record
            for job, records in self.failed.items()
            for record in records
            if record.rule_name == rule and self.wildcards.get(job, {}) == dict(wildcards.items())
        ]

    def summary(self):
        """Return one paragraph per job."""
        shown = [self.described(records) for records in list(self.failed.values())[:SHOWN_JOBS]]
        more = len(self.failed) - len(shown)
        return "\n".join(["What failed:", *shown, *([f"  ... and {more} more jobs"] if more > 0 else [])])

    def described(self, records):
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


def advice(record):
    """Return advice after a failed attempt."""
    state, code = slurm_state(record)[0], exit_code(record)
    if code == STOPPED:
        if record.unbegun:
            return f"it was told to stop before its first epoch; where its time was over, {NEXT['TIMEOUT']}"
        return "it was told to stop and has a checkpoint: run the same command again"
    if record.short_of_memory:
        return NEXT["OUT_OF_MEMORY"]
    code = DIED if code and code > 128 else code
    return NEXT.get(state) or NEXT_BY_CODE.get(code) or f"correct what the log says, {RETRY}"


def slurm_state(record):
    """Return a Slurm job's state and id as the executor reports them, '' if there is none."""
    message = record.rule_msg or ""
    told = re.search(r"SLURM status is:\s*'(\w+)", message)
    refused = "sbatch failed" in message or "submission failed" in message
    state = ""
    if told:
        state = "PREEMPTED" if told[1] == PREEMPTED else told[1]
    elif refused:
        state = REFUSED[bool(UNANSWERED.search(refusal(record)))]
    return state, record.aux.get("external_jobid", "")


def refusal(record):
    """Return sbatch's message on one line."""
    said = re.search(r"error message was '(.*?)'\.\n", record.rule_msg, re.DOTALL)
    return " ".join((said[1] if said else record.rule_msg).split())[:300]


def ends_of_logs(logs):
    """Return the end of the rule's log, or of Slurm's log (the last one) if the command wrote none."""
    found = []
    for path in dict.fromkeys([*logs[:1], *logs[-1:]]):
        last = last_lines(path)
        if last:
            return [*found, f"{path} ends:", *(f"| {line}" for line in last)]
        found.append(f"{path}: {'not written' if last is None else 'empty'}")
    return found


def last_lines(path):
    """Return the last non-blank lines of a file, None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.rstrip()[:300] for line in deque(filter(str.strip, file), SHOWN_LINES)]
    except OSError:
        return None


FAILURES = Failures()
logger.addHandler(FAILURES)


onerror:
    JOB_RECORDS.write()
    if FAILURES.failed:
        logger.error(FAILURES.summary())
    if INTERRUPTION.at is not None:
        INTERRUPTION.tell(logger.error)
        workflow.logger_manager.logfile_hint()
        sys.exit(INTERRUPTED)  # Snakemake would go on to say that a job has failed
