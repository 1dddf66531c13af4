# Slurm jobs that a killed snakemake has left: the next run in its results folder ends them before it submits its own.
import time

import psutil

# Seconds in which such jobs must be gone (Slurm's KillWait, 30 by default, and a site's epilog pass until then), and in
# which Slurm must answer.
GONE = 300
ANSWER = 60
# Seconds after which a job is in the queue that Slurm has taken without an answer to its sbatch.
TAKEN = 10


# What the plugin and the rules call, so that a host without one of them has no Slurm.
COMMANDS = ("sbatch", "squeue", "sacct", "scancel")


def refuse_without_slurm():
    """End a run whose jobs would go to a Slurm that this host does not have, before anything is locked."""
    lack = next((name for name in COMMANDS if slurm_run() and shutil.which(name) is None), None)
    if lack:
        refuse(
            f"no {lack} on this host, and the profile hands its jobs to Slurm: run this on a login node of the cluster, or here"
            " with --profile profiles/local",
            3,
        )


def slurm_run():
    """The name that all Slurm jobs of this run have and no other run's ever get; '' where none goes to Slurm."""
    return getattr(workflow.scheduler._executor, "run_uuid", "")


def queue(format, run, *options):
    """What squeue says of a run's jobs; without options of those that wait, run or are being ended."""
    command = ["squeue", "--noheader", f"--format={format}", f"--name={run}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True).stdout


def jobs_named(run):
    """The numbers of a run's jobs that wait, run or are being ended."""
    return queue("%i", run).split()


def being_submitted(run):
    """Whether an sbatch of that run outlives it on this host: its job is not in the queue yet."""
    lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return any("sbatch" in line and run in line for line in lines)


def end_jobs_of(run):
    """Cancel what a killed run has left and wait until it is gone: a training has its checkpoint then."""
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
    """Cancel the job of a run that has this comment; whether Slurm says within a minute that there is none any more."""
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
    """At the end of a run, cancel its jobs that Slurm still has, as Ctrl-C leaves some; whether there are none.

    Snakemake cancels those that it knows of at that moment, and goes on to submit what it had begun to.
    """
    try:
        # Not those that are being ended: what has written its output may take a while to go.
        left = queue("%i", run, "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED").split()
        if left:
            logger.warning(f"cancelled Slurm jobs that this run would leave: {', '.join(left)}")
            subprocess.run(["scancel", f"--name={run}"], timeout=ANSWER, check=False)
        return not jobs_named(run)
    except (OSError, subprocess.SubprocessError):
        return False
