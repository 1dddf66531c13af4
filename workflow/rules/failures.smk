# What failed, once more at the end of a run: rule, wildcards, Slurm's job and state, the end of the log, what to do next.
import logging
from collections import deque

from mgg.backend.machine.slurm import UNANSWERED
from snakemake_interface_logger_plugins.common import LogEvent

# States of an attempt that never became a job of Slurm's: it said no, or nothing.
REFUSED = ("not submitted", "not answered")
# Most jobs and lines of each log that the summary shows.
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
# By exit code, where Slurm's state says no more than that the job has failed. 6: mgg's, of a PE that died or stalled; srun's
# is above 128 where a signal ended one of the ranks, whatever the others say.
DIED = 6
NEXT_BY_CODE = {
    3: f"get what the log names, or a node that has it (partition, gpu_model of rule {{rule}} in the profile), {RETRY}",
    DIED: "a process died or stalled: run the same command again; a training goes on from its checkpoint",
}


class Failures(logging.Handler):
    """The failed jobs of this run, of each all its attempts, as Snakemake's log events tell them."""

    def __init__(self):
        super().__init__()
        self.wildcards = {}
        self.failed = {}

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            self.wildcards[record.jobid] = dict(record.wildcards or {})
        elif event == LogEvent.JOB_ERROR and not INTERRUPTION.ended(record):
            # Now: the next attempt writes the rule's log anew.
            record.short_of_memory, record.unbegun = short_of_memory(record), unbegun(record)
            self.failed.setdefault(record.jobid, []).append(record)
        elif event == LogEvent.JOB_FINISHED:
            self.failed.pop(record.job_id, None)

    def attempts(self, rule, wildcards):
        """The failed attempts of a job so far."""
        return [
            record
            for job, records in self.failed.items()
            for record in records
            if record.rule_name == rule and self.wildcards.get(job, {}) == dict(wildcards.items())
        ]

    def summary(self):
        """A paragraph a job."""
        shown = [self.described(records) for records in list(self.failed.values())[:SHOWN_JOBS]]
        more = len(self.failed) - len(shown)
        return "\n".join(["What failed:", *shown, *([f"  ... and {more} more jobs"] if more > 0 else [])])

    def described(self, records):
        """The paragraph of one job: of the last attempt that was submitted, if one was."""
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
    """What to try after a failed attempt."""
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
    """State and id of a Slurm job as the executor says them, '' where there is none."""
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
    """What sbatch said, on one line."""
    said = re.search(r"error message was '(.*?)'\.\n", record.rule_msg, re.DOTALL)
    return " ".join((said[1] if said else record.rule_msg).split())[:300]


def ends_of_logs(logs):
    """The end of the rule's log; where the command did not come to write one, of Slurm's, which comes last."""
    found = []
    for path in dict.fromkeys([*logs[:1], *logs[-1:]]):
        last = last_lines(path)
        if last:
            return [*found, f"{path} ends:", *(f"| {line}" for line in last)]
        found.append(f"{path}: {'not written' if last is None else 'empty'}")
    return found


def last_lines(path):
    """The last lines of a file that are not blank, None if it cannot be read."""
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
