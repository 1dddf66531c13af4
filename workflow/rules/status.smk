# How Slurm's jobs are, where the plugin by itself would wait for ever: for jobs whose ends it never hears of, because sacct has
# no database behind it or tells them in other words, or because one question was not answered; for preempted jobs that Slurm
# does not start again; for jobs that ask for more than they are allowed.
import asyncio
import math
import sys
import time

PLUGIN = "snakemake_executor_plugin_slurm"
# Seconds that Slurm must remember jobs which have ended: the plugin looks every three minutes at the latest.
REMEMBERED = 240
# What stands for PREEMPTED towards the plugin: of its words for a failed job the one that is no state of Slurm's.
PREEMPTED = "ERROR"
# Why a job waits that will not start as it is, in Slurm's words.
NEVER = re.compile(r"(QOS|Assoc)Max\w+PerJob(Limit)?|MaxMemPerLimit|Partition(Time|Node)Limit")
# Seconds between two looks at why jobs wait.
REASONS_EVERY = 60


def ask_who_answers():
    """Have squeue asked how jobs are where sacct is to be and cannot say, and the other way round; say so in one line."""
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
    # Otherwise it goes back to sacct, once scontrol takes long to answer.
    plugin.is_query_tool_available = lambda name: name != "sacct"


def sacct_lacks():
    """What keeps sacct from answering; '' if nothing does."""
    command = ["sacct", "--allocations", "--noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    return " ".join(asked.stderr.split()) or f"exit code {asked.returncode}" if asked.returncode else ""


class Understood:
    """The plugin's question how jobs are, whose answers it understands."""

    def __init__(self, query, requeue):
        self.query = query
        self.requeue = requeue
        self.silent = 0
        self.looked = -math.inf
        self.told = set()

    async def __call__(self, *arguments):
        """States by job, and seconds that it took."""
        states, seconds = await self.query(*arguments)
        if states is None:
            # The plugin forgets all jobs where it gets no answer, and not those of which an answer says nothing.
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
        """A state as the plugin knows it: sacct says who cancelled a job, and marks what it cut short."""
        state = words.split()[0].rstrip("+") if words.split() else words
        # No job of ours is put back into the queue by Slurm, unless the user asks for that.
        return PREEMPTED if state == "PREEMPTED" and not self.requeue else state

    async def warn_of_the_waiting(self):
        """Say once of each job that it asks for more than a limit of its user, account or partition grants."""
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
