# Which failed jobs are tried again where a profile says `retries`: those that may end in another way the next time. Which
# of them lacked memory or time.
from mgg.errors import NOT_ENOUGH_MEMORY
from snakemake.jobs import Job

# Exit codes of mgg that a second attempt does not change: a mistake of the user's; a result that differs from its
# reference, which trying again would hide.
FINAL = (2, 4)
# Of a training that was told to stop, as Slurm does when its time is almost over. It has written a checkpoint, unless it says
# that there was nothing to keep.
STOPPED = 5
UNBEGUN = re.compile(rb"^mgg: stopped before the first epoch", re.MULTILINE)
# States of Slurm's jobs that get twice as much the next time.
LACKED = {"memory": ("OUT_OF_MEMORY",), "time": ("TIMEOUT", "DEADLINE")}
# What logs say where memory ran out: mgg itself; srun and slurmstepd of ranks, whose job may just have FAILED. Exit code 3 of
# mgg is any lack, also of what no memory replaces.
SHORT_OF_MEMORY = re.compile(
    rf"""^\s*(
    mgg:\ (PE\ \d+:\ )?{re.escape(NOT_ENOUGH_MEMORY)}:
    | srun:\ error:\ \S+:\ tasks?\ [\d,-]+:\ Out\ Of\ Memory
    | slurmstepd(-\S+)?:\ error:\ .*(oom[-_]kill\ event|exceeded\ memory\ limit)
    )""".encode(),
    re.MULTILINE | re.VERBOSE,
)
# How often a job is submitted anew that Slurm was too busy for: at least TAKEN seconds lie between two of these attempts.
BUSY = 30
# Bytes at the end of a log in which exit code and lack of memory stand.
TAIL = 2**16


def tail_of(log):
    """The last bytes of a log; none of one that cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read()
    except OSError:
        return b""


def exit_code(record):
    """Of a failed Slurm job's command, as the Snakemake inside the job says it in Slurm's log; None where it does not."""
    if not record.aux.get("external_jobid") or not record.log:
        return None
    told = re.findall(rb"returned non-zero exit status (\d+)", tail_of(record.log[-1]))
    return int(told[-1]) if told else None


def short_of_memory(record):
    """Whether the logs of a failed Slurm job, the rule's own and Slurm's, say that it had too little memory."""
    logs = {*record.log[:1], *record.log[-1:]} if record.aux.get("external_jobid") else ()
    return any(SHORT_OF_MEMORY.search(tail_of(log)) for log in logs)


def unbegun(record):
    """Whether the rule's own log of a failed job says that a training was stopped before it had anything to keep."""
    return any(UNBEGUN.search(tail_of(log)) for log in (record.log or [])[:1])


def lacked(what, rule, wildcards):
    """How many attempts of a job have ended so far for want of "memory" or "time"."""

    def did(record):
        if slurm_state(record)[0] in LACKED[what]:
            return True
        if what == "memory":
            return record.short_of_memory
        return stopped(record) and slurm_state(record)[0] != "PREEMPTED"

    return sum(map(did, FAILURES.attempts(rule, wildcards)))


def stopped(record):
    """Whether an attempt was told to stop, by Slurm and not by somebody's scancel."""
    return exit_code(record) == STOPPED and slurm_state(record)[0] != "CANCELLED"


def paused(record):
    """Whether an attempt was told to stop by Slurm and has kept what it had done."""
    return stopped(record) and not record.unbegun


def attempts_left(job):
    """How often Snakemake may start a job again, which it asks once the job's error is in its log.

    Attempts that paused do not count: each has trained for an epoch at least, so that their number has an end. Nor do those
    that Slurm was too busy for, up to BUSY of them.
    """
    allowed, records = job.rule.restart_times, FAILURES.failed.get(job.jobid, [])
    if not allowed or (records and (exit_code(records[-1]) in FINAL or not nothing_submitted(records[-1]))):
        return 0
    unanswered = sum(slurm_state(each)[0] == "not answered" for each in records)
    return allowed + sum(map(paused, records)) + min(unanswered, BUSY)


def nothing_submitted(record):
    """Whether no job is left of an attempt to submit one that was not answered: Slurm may have taken it all the same.

    It is cancelled, since the next attempt would write at the same place. Where Slurm does not say that it is gone there is no
    next attempt; the next run ends it by its name.
    """
    if slurm_state(record)[0] != "not answered":
        return True
    call = re.search(r"sbatch call:\s+(.*)", record.rule_msg)
    comment = call and re.search(r"--comment ('[^']*'|\S+)", call[1])
    return bool(comment) and end_unheard(slurm_run(), comment[1].strip("'"))


# Snakemake itself knows numbers of attempts alone.
Job.restart_times = property(attempts_left)
