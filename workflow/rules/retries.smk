# Which failed jobs are tried again where a profile says `retries`: those that may end in another way the next time. Which
# of them lacked memory or time.
from snakemake.jobs import Job

# Exit codes of mgg that a second attempt does not change: a mistake of the user's; a result that differs from its
# reference, which trying again would hide.
FINAL = (2, 4)
# Of a training that was told to stop, as Slurm does when its time is almost over, and has written a checkpoint.
STOPPED = 5
# How the attempts end that get twice as much the next time: Slurm's state, or the exit code of mgg.
LACKED = {"memory": ("OUT_OF_MEMORY", 3), "time": ("TIMEOUT", "DEADLINE", STOPPED)}
# Bytes at the end of a log in which the exit code stands.
TAIL = 2**16


def exit_code(record):
    """Of a failed Slurm job's command, as the Snakemake inside the job says it in Slurm's log; None where it does not."""
    if not record.aux.get("external_jobid"):
        return None
    try:
        with open(record.log[-1], "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            told = re.findall(rb"returned non-zero exit status (\d+)", file.read())
    except (OSError, IndexError):
        return None
    return int(told[-1]) if told else None


def lacked(what, rule, wildcards):
    """How many attempts of a job have ended so far for want of "memory" or "time"."""
    ends = [{slurm_state(record)[0], exit_code(record)} for record in FAILURES.attempts(rule, wildcards)]
    return sum(bool(end.intersection(LACKED[what])) for end in ends)


def paused(record):
    """Whether an attempt was told to stop, by Slurm and not by somebody's scancel, and has kept what it had done."""
    return exit_code(record) == STOPPED and slurm_state(record)[0] != "CANCELLED"


def attempts_left(job):
    """How often Snakemake may start a job again, which it asks once the job's error is in its log.

    Attempts that paused do not count: each has trained for an epoch at least, so that their number has an end.
    """
    allowed, records = job.rule.restart_times, FAILURES.failed.get(job.jobid, [])
    if not allowed or (records and exit_code(records[-1]) in FINAL):
        return 0
    return allowed + sum(map(paused, records))


# Snakemake itself knows numbers of attempts alone.
Job.restart_times = property(attempts_left)
