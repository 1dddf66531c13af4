# Slurm jobs that a killed snakemake has left: the next run in its results folder ends them before it submits its own.
import time

import psutil

# Seconds in which such jobs must be gone (Slurm's KillWait, 30 by default, and a site's epilog pass until then), and in
# which Slurm must answer.
GONE = 300
ANSWER = 60


def slurm_run():
    """The name that all Slurm jobs of this run have and no other run's ever get; '' where none goes to Slurm."""
    return getattr(workflow.scheduler._executor, "run_uuid", "")


def jobs_named(run):
    """The numbers of a run's jobs that wait, run or are being ended."""
    command = ["squeue", "--noheader", "--format=%i", f"--name={run}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True).stdout.split()


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
    except (OSError, subprocess.SubprocessError) as error:
        told = " ".join((getattr(error, "stderr", "") or str(error)).split())
        refuse(f"the run before was killed, and Slurm does not say whether its jobs ({run}) are still there: {told}", 3)
    if left:
        refuse(
            f"the run before was killed, and its Slurm jobs do not end: {', '.join(left)}; `scontrol show job` says why",
            3,
        )


def ended_by_itself(run):
    """Whether nothing of a run is left in Slurm's queue, as far as Slurm can say."""
    try:
        return not jobs_named(run)
    except (OSError, subprocess.SubprocessError):
        return False
