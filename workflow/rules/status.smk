# How Slurm's jobs are, where the plugin by itself would wait for ever: for ends of jobs that it never hears of because sacct
# has no database behind it, and for preempted jobs that Slurm does not start again.
import sys

PLUGIN = "snakemake_executor_plugin_slurm"
# Seconds that Slurm must remember jobs which have ended: the plugin looks every three minutes at the latest.
REMEMBERED = 240


def ask_who_answers():
    """Have squeue asked how jobs are where sacct is to be and cannot say; say so in one line."""
    settings = workflow.executor_settings
    if getattr(settings, "status_command", None) is None:
        return
    plugin = sys.modules[PLUGIN]
    if not settings.requeue:
        plugin.query_job_status = ends_known(plugin.query_job_status)
    if settings.status_command != "sacct" or not (lack := sacct_lacks()):
        return
    logger.warning(f"squeue tells how jobs are, because sacct does not: {lack}")
    age = plugin.get_min_job_age()
    if age is not None and age < REMEMBERED:
        refuse(
            f"Slurm forgets jobs {age} s after their end (MinJobAge) and sacct knows none, so their ends would be missed:"
            f" ask for MinJobAge={REMEMBERED} or more in slurm.conf, or for slurmdbd",
            3,
        )
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


def ends_known(query):
    """The plugin's question, with preempted jobs as cancelled: no job of ours is put back into the queue by Slurm."""

    async def asked(*arguments):
        states, seconds = await query(*arguments)
        changed = states and {job: "CANCELLED" if state == "PREEMPTED" else state for job, state in states.items()}
        return changed, seconds

    return asked
