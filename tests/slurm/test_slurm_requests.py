"""A real Slurm grants what the profiles ask for: as many tasks, GPUs and nodes as meant, evenly spread."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support.slurm import ALIKE, RANKS

#: Those that two nodes can grant.
REQUESTS = {
    name: line
    for name, line in (
        ALIKE | {f"{profile}: {job}": line for profile in RANKS for job, line in RANKS[profile].items()}
    ).items()
    if "--nodes=4" not in line
}


def granted(folder: Path, line: str) -> tuple[str, list[str]]:
    """What Slurm says of the running job, and the node of each of its tasks."""
    tasks = re.search(r"--ntasks=(\d+)", line)
    inside = f"scontrol -d -o show job $SLURM_JOB_ID; srun -n {tasks[1] if tasks else 1} printenv SLURMD_NODENAME"
    command = ["sbatch", "--wait", "--output", str(folder / "out"), *shlex.split(line), "--wrap", inside]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr + (folder / "out").read_text()
    job, *nodes = (folder / "out").read_text().splitlines()
    return job, nodes


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_asked_for_is_granted(cluster: Path, tmp_path: Path, name: str):
    line = REQUESTS[name]
    job, tasks = granted(tmp_path, line)
    wanted = {key: int(found[1]) for key in ("ntasks", "nodes", "gpus", "cpus-per-task")
              if (found := re.search(rf"--{key}=(\d+)", line))}  # fmt: skip
    assert len(tasks) == wanted.get("ntasks", 1)
    assert f" NumNodes={wanted['nodes']} " in job and f"CPUs/Task={wanted['cpus-per-task']} " in job
    # Of 16 tasks on 2 nodes each has 8, not the first 15.
    assert {tasks.count(node) for node in set(tasks)} == {len(tasks) // len(set(tasks))}
    assert len(set(tasks)) == wanted["nodes"]
    gpus = re.findall(r" GRES=gpu:h200:(\d+)\(", job)
    nodes = wanted["nodes"]
    assert gpus == ([str(wanted["gpus"] // nodes)] if "gpus" in wanted else [])


def test_more_than_there_is_is_refused_at_once(cluster: Path):
    line = RANKS["dgx"]["aggregate digits 8"].replace("gpus=8", "gpus=9")
    run = subprocess.run(["sbatch", *shlex.split(line), "--wrap", "true"], capture_output=True, text=True, check=False)
    assert run.returncode != 0 and "not available" in run.stderr
