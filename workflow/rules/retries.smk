# Retries of failed jobs, if a profile sets `retries`: only jobs that may end differently the next time. Also, which of them
# lacked memory or time.
from mgg.errors import NOT_ENOUGH_MEMORY
from snakemake.jobs import Job

# Exit codes of mgg that a second attempt does not change: a user's mistake, or a result that differs from its reference, which
# a retry would hide.
FINAL = (2, 4)
# Exit code of a training that was told to stop, as Slurm does shortly before the time limit. It has written a checkpoint,
# unless it says that there was nothing to keep.
STOPPED = 5
UNBEGUN = re.compile(rb"^mgg: stopped before the first epoch", re.MULTILINE)
# Slurm states of jobs whose next attempt gets twice as much.
LACKED = {"memory": ("OUT_OF_MEMORY",), "time": ("TIMEOUT", "DEADLINE")}
# Log lines about lack of memory: mgg's own; srun's and slurmstepd's on ranks, whose job may just be FAILED. Exit code 3 of mgg
# stands for any lack, including what no memory replaces.
SHORT_OF_MEMORY = re.compile(
    rf"""^\s*(
    mgg:\ (PE\ \d+:\ )?{re.escape(NOT_ENOUGH_MEMORY)}:
    | srun:\ error:\ \S+:\ tasks?\ [\d,-]+:\ Out\ Of\ Memory
    | slurmstepd(-\S+)?:\ error:\ .*(oom[-_]kill\ event|exceeded\ memory\ limit)
    )""".encode(),
    re.MULTILINE | re.VERBOSE,
)
# Largest number of resubmissions while Slurm is too busy; at least TAKEN seconds lie between two of them.
BUSY = 30
# Bytes at the end of a log that contain the exit code and any lack of memory.
TAIL = 2**16


def tail_of(log):
    """Return the last bytes of a log; empty if it cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read()
    except OSError:
        return b""


def exit_code(record):
    """Return the exit code of a failed Slurm job's command from its inner Snakemake's log; None if absent."""
    if not record.aux.get("external_jobid") or not record.log:
        return None
    told = re.findall(rb"returned non-zero exit status (\d+)", tail_of(record.log[-1]))
    return int(told[-1]) if told else None


def short_of_memory(record):
    """Return whether a failed Slurm job's logs (the rule's and Slurm's) report a lack of memory."""
    logs = {*record.log[:1], *record.log[-1:]} if record.aux.get("external_jobid") else ()
    return any(SHORT_OF_MEMORY.search(tail_of(log)) for log in logs)


def unbegun(record):
    """Return whether a failed job's own log says that training stopped before it had anything to keep."""
    return any(UNBEGUN.search(tail_of(log)) for log in (record.log or [])[:1])


def lacked(what, rule, wildcards):
    """Return how many attempts of a job have failed so far for lack of "memory" or "time"."""

    def did(record):
        if slurm_state(record)[0] in LACKED[what]:
            return True
        if what == "memory":
            return record.short_of_memory
        return stopped(record) and slurm_state(record)[0] != "PREEMPTED"

    return sum(map(did, FAILURES.attempts(rule, wildcards)))


def stopped(record):
    """Return whether Slurm, and not somebody's scancel, told an attempt to stop."""
    return exit_code(record) == STOPPED and slurm_state(record)[0] != "CANCELLED"


def paused(record):
    """Return whether Slurm told an attempt to stop and it kept its progress."""
    return stopped(record) and not record.unbegun


def attempts_left(job):
    """Return how often Snakemake may restart a job; it asks once the job's error is in its log.

    Paused attempts do not count: each has trained at least one epoch, so their number is finite. Up to BUSY attempts
    that Slurm was too busy for do not count either.
    """
    allowed, records = job.rule.restart_times, FAILURES.failed.get(job.jobid, [])
    if not allowed or (records and (exit_code(records[-1]) in FINAL or not nothing_submitted(records[-1]))):
        return 0
    unanswered = sum(slurm_state(each)[0] == "not answered" for each in records)
    return allowed + sum(map(paused, records)) + min(unanswered, BUSY)


def nothing_submitted(record):
    """Return whether an unanswered submission left no job; Slurm may have accepted it.

    Such a job is cancelled, since the next attempt would write to the same place. If Slurm does not confirm that it is gone,
    there is no next attempt, and the next run ends it by its name.
    """
    if slurm_state(record)[0] != "not answered":
        return True
    call = re.search(r"sbatch call:\s+(.*)", record.rule_msg)
    comment = call and re.search(r"--comment ('[^']*'|\S+)", call[1])
    return bool(comment) and end_unheard(slurm_run(), comment[1].strip("'"))


# Snakemake itself supports only a number of attempts.
Job.restart_times = property(attempts_left)
