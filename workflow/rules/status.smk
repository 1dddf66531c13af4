# States of Slurm jobs in cases where the plugin alone would wait forever: sacct has no database or uses other words; a
# single query went unanswered; Slurm does not restart preempted jobs; jobs ask for more than they are allowed.
import asyncio
import math
import sys
import time

PLUGIN = "snakemake_executor_plugin_slurm"
# Seconds that Slurm must remember ended jobs: the plugin queries at least every three minutes.
REMEMBERED = 240
# Replacement for PREEMPTED: the plugin's only word for a failed job that is not a Slurm state.
PREEMPTED = "ERROR"
# Slurm's reasons for jobs that will never start with their current requests.
NEVER = re.compile(r"(QOS|Assoc)Max\w+PerJob(Limit)?|MaxMemPerLimit|Partition(Time|Node)Limit")
# Seconds between two checks of why jobs wait.
REASONS_EVERY = 60


def ask_who_answers():
    """Use squeue for job states if sacct is chosen but cannot answer, and vice versa; report it in one line."""
    settings = workflow.executor_settings
    if getattr(settings, "status_command", None) is None:
        return
    plugin = sys.modules[PLUGIN]
    plugin.query_job_status = Understood(plugin.query_job_status, settings.requeue)
    lack = sacct_lacks()
    if settings.status_command == "sacct":
        if not lack:
            return
        logger.warning(f"squeue tells how jobs are, because sacct does not: {lack}")
    age = plugin.get_min_job_age()
    if age is not None and age < REMEMBERED:
        if lack:
            refuse(
                f"Slurm forgets jobs {age} s after their end (MinJobAge) and sacct knows none, so their ends would be missed:"
                f" ask for MinJobAge={REMEMBERED} or more in slurm.conf, or for slurmdbd",
                3,
            )
        logger.warning(f"sacct tells how jobs are: squeue forgets them {age} s after their end (MinJobAge)")
        settings.status_command = "sacct"
        return
    settings.status_command = "squeue"
    # Otherwise the plugin returns to sacct once scontrol is slow to answer.
    plugin.is_query_tool_available = lambda name: name != "sacct"


def sacct_lacks():
    """Return what keeps sacct from answering; '' if nothing does."""
    command = ["sacct", "--allocations", "--noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    return " ".join(asked.stderr.split()) or f"exit code {asked.returncode}" if asked.returncode else ""


class Understood:
    """The plugin's query of job states, with answers that it understands."""

    def __init__(self, query, requeue):
        self.query = query
        self.requeue = requeue
        self.silent = 0
        self.looked = -math.inf
        self.told = set()

    async def __call__(self, *arguments):
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

    def state(self, words):
        """Return a state in the plugin's words: sacct adds who cancelled a job, and marks truncated states."""
        state = words.split()[0].rstrip("+") if words.split() else words
        # Slurm requeues none of our jobs unless the user asks for it.
        return PREEMPTED if state == "PREEMPTED" and not self.requeue else state

    async def warn_of_the_waiting(self):
        """Report once per job that it asks for more than a limit of its user, account or partition."""
        command = ["squeue", "--noheader", "--states=PENDING", "--format=%i|%r", f"--name={slurm_run()}"]
        options = {"capture_output": True, "text": True, "timeout": ANSWER, "check": False}
        try:
            asked = await asyncio.to_thread(subprocess.run, command, **options)
        except (OSError, subprocess.TimeoutExpired):
            return
        for job, _, reason in (line.partition("|") for line in asked.stdout.splitlines()):
            if job not in self.told and NEVER.fullmatch(reason):
                self.told.add(job)
                logger.warning(
                    f"Slurm job {job} waits, perhaps for ever: {reason}; `scontrol show job {job}` says what it asks for."
                    " If that is more than a limit grants, `scancel` it and give its rule less in the profile"
                )
