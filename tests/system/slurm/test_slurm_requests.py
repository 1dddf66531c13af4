"""A real Slurm grants what the profiles ask for: as many tasks, GPUs and nodes as meant, evenly spread."""

import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from support.workflow.slurm import ALIKE, RANKS

#: Those that two nodes can grant, each once.
REQUESTS = {
    line: name
    for name, line in (
        ALIKE | {f"{profile}: {job}": line for profile in RANKS for job, line in RANKS[profile].items()}
    ).items()
    if "--nodes=4" not in line
}


@pytest.fixture(scope="module")
def granted(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what the jobs say, all at once: what Slurm knows of a job, and the node of each of its tasks."""
    folder = tmp_path_factory.mktemp("granted")
    jobs = []
    for number, line in enumerate(REQUESTS):
        inside = f"scontrol -d -o show job $SLURM_JOB_ID; srun -n {tasks_of(line)} printenv SLURMD_NODENAME"
        command = ["sbatch", "--parsable", "--output", str(folder / str(number)), *shlex.split(line), "--wrap", inside]
        jobs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    deadline = time.monotonic() + 120
    asked = ["squeue", "-h", "-j", ",".join(jobs)]
    while left := subprocess.run(asked, capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    return folder


def tasks_of(line: str) -> int:
    """The tasks that a line asks for."""
    found = re.search(r"--ntasks=(\d+)", line)
    return int(found[1]) if found else 1


@pytest.mark.parametrize(("number", "line"), list(enumerate(REQUESTS)), ids=REQUESTS.values())
def test_requests_are_granted(granted: Path, number: int, line: str):
    job, *tasks = (granted / str(number)).read_text().splitlines()
    wanted = {key: int(found[1]) for key in ("nodes", "gpus", "cpus-per-task")
              if (found := re.search(rf"--{key}=(\d+)", line))}  # fmt: skip
    nodes = wanted["nodes"]
    assert len(tasks) == tasks_of(line)
    assert f" NumNodes={nodes} " in job and f"CPUs/Task={wanted['cpus-per-task']} " in job
    # Of 16 tasks on 2 nodes each has 8, not the first 15.
    assert {tasks.count(node) for node in set(tasks)} == {len(tasks) // nodes}
    assert len(set(tasks)) == nodes
    gpus = re.findall(r" GRES=gpu:h200:(\d+)\(", job)
    share = [str(wanted["gpus"] // nodes)] if "gpus" in wanted else []
    # Once for both nodes, or once for each.
    assert gpus in (share, share * nodes)


def test_impossible_requests_are_refused_at_once(cluster: Path):
    line = RANKS["dgx"]["aggregate digits 8"].replace("gpus=8", "gpus=9")
    run = subprocess.run(["sbatch", *shlex.split(line), "--wrap", "true"], capture_output=True, text=True, check=False)
    assert run.returncode != 0 and "not available" in run.stderr
