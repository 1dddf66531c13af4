"""Inside a Slurm job: the environment that a job's command has, and the trials of ``mgg doctor --slurm`` in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

#: What launchers other than srun read of their job, to start ranks on all of its nodes; what ``held_gpus`` reads.
ALLOCATION = (
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_TASKS_PER_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_GPUS_ON_NODE",
)
#: What Snakemake's plugin leaves of Slurm's variables to a job's command.
_LEFT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST")


def environment() -> dict[str, str]:
    """Of a command that the workflow starts in this job: as good as nothing that could steer srun, and the nodes."""
    steering = ("SLURM_", "SRUN_", "SBATCH_")
    kept = {*_LEFT, *ALLOCATION}
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(steering)}


def held_gpus() -> int:
    """GPUs of this host that Slurm has given to the job; 0 outside of one, whatever GPUs can be seen there."""
    count = os.environ.get("SLURM_GPUS_ON_NODE", "")
    if count.isdigit():
        return int(count)
    return len(os.environ.get("SLURM_STEP_GPUS", "").replace(",", " ").split())


def attempt(command: list[str], limit: float) -> dict[str, int | str | None]:
    """Run ``command`` for at most ``limit`` seconds.

    Returns:
        ``code``: its exit status, None where it did not end; ``out`` and ``err``: what it printed.
    """
    try:
        run = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=limit, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"code": None, "out": "", "err": f"does not end within {limit:.0f} s"}
    except OSError as error:
        return {"code": None, "out": "", "err": f"{command[0]}: {error.strerror}"}
    return {"code": run.returncode, "out": run.stdout, "err": run.stderr}


def main(limit: str, commands: str) -> None:
    """Print a JSON line for each of ``commands`` (JSON: a list of lists of words), one after the other."""
    for command in json.loads(commands):
        print(json.dumps(attempt(command, float(limit))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
