"""Inside a Slurm job: the environment of the job's commands, and the trial runs of ``mgg doctor --slurm``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

#: Variables that launchers other than srun read to start ranks on all nodes, and that ``held_gpus`` reads.
ALLOCATION = (
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_TASKS_PER_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_GPUS_ON_NODE",
)
#: Slurm's variables that Snakemake's plugin leaves to a job's command.
_LEFT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST")


def environment() -> dict[str, str]:
    """Return the environment for the workflow's commands: the nodes, but no variables that would steer srun."""
    steering = ("SLURM_", "SRUN_", "SBATCH_")
    kept = {*_LEFT, *ALLOCATION}
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(steering)}


def held_gpus() -> int:
    """Return the number of GPUs of this host that Slurm has given to the job; 0 outside a Slurm job."""
    count = os.environ.get("SLURM_GPUS_ON_NODE", "")
    if count.isdigit():
        return int(count)
    return len(os.environ.get("SLURM_STEP_GPUS", "").replace(",", " ").split())


def attempt(command: list[str], limit: float) -> dict[str, int | str | None]:
    """Run ``command`` for at most ``limit`` seconds.

    Returns:
        ``code``: its exit status, None if it did not start or end; ``out`` and ``err``: its output.
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
    """Run ``commands`` (JSON: a list of lists of words) one after another, and print a JSON line for each."""
    for command in json.loads(commands):
        print(json.dumps(attempt(command, float(limit))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
