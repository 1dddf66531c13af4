# Slurm jobs left by a killed snakemake: the next run in its results folder ends them before it submits its own.
import time

import psutil

# Seconds until such jobs must be gone (Slurm's KillWait, 30 by default, and a site's epilog come first), and until Slurm
# must answer.
GONE = 300
ANSWER = 60
# Seconds until a job that Slurm took without answering sbatch shows up in the queue.
TAKEN = 10


# Commands that the plugin and the rules call; a host that lacks one of them has no Slurm.
COMMANDS = ("sbatch", "squeue", "sacct", "scancel")


def refuse_without_slurm():
    """End a run that needs Slurm on a host without it, before anything is locked."""
    lack = next((name for name in COMMANDS if slurm_run() and shutil.which(name) is None), None)
    if lack:
        refuse(
            f"no {lack} on this host, and the profile hands its jobs to Slurm: run this on a login node of the cluster, or here"
            " with --profile profiles/local",
            3,
        )


def slurm_run():
    """Return the name that only this run's Slurm jobs have; '' if no job goes to Slurm."""
    return getattr(workflow.scheduler._executor, "run_uuid", "")


def queue(format, run, *options):
    """Return squeue's output on a run's jobs; without options, on those that wait, run or are ending."""
    command = ["squeue", "--noheader", f"--format={format}", f"--name={run}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True).stdout


def jobs_named(run):
    """Return the ids of a run's jobs that wait, run or are ending."""
    return queue("%i", run).split()


def being_submitted(run):
    """Return whether an sbatch of a killed run still lives on this host: its job is not in the queue yet."""
    lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return any("sbatch" in line and run in line for line in lines)


def end_jobs_of(run):
    """Cancel a killed run's jobs and wait until they are gone: by then trainings have their checkpoints."""
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
            f"the run before was killed, and this host has no squeue that says whether its Slurm jobs ({run}) are still there:"
            f" run this on a host of that cluster, or remove {RESULTS}/.lock if they are not",
            3,
        )
    except (OSError, subprocess.SubprocessError) as error:
        told = " ".join((getattr(error, "stderr", "") or str(error)).split())
        refuse(f"the run before was killed, and Slurm does not say whether its jobs ({run}) are still there: {told}", 3)
    if left:
        refuse(
            f"the run before was killed, and its Slurm jobs do not end: {', '.join(left)}; `scontrol show job` says why",
            3,
        )


def end_unheard(run, comment):
    """Cancel a run's job with this comment; return whether Slurm confirms within a minute that it is gone."""
    time.sleep(TAKEN)
    deadline = time.monotonic() + ANSWER
    while time.monotonic() < deadline:
        try:
            found = [line.partition("|") for line in queue("%i|%k", run).splitlines()]
            left = [job for job, _, words in found if words == comment]
            if not left:
                return True
            logger.warning(f"Slurm had taken a job without an answer to sbatch: cancelling {', '.join(left)}")
            subprocess.run(["scancel", *left], timeout=ANSWER, check=False)
        except (OSError, subprocess.SubprocessError):
            pass
        time.sleep(1)
    return False


def end_own_jobs(run):
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
