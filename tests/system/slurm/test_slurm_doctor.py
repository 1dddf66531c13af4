"""`mgg doctor --slurm` on a real cluster."""

import json
import subprocess
import sys
from pathlib import Path


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "mgg.cli", "doctor", "--slurm", "--json", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)


def test_doctor_finds_the_working_settings(cluster: Path, tmp_path: Path):
    run = doctor(tmp_path, "--partition", "gpu")
    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout)
    assert "128 cores" in facts["partition cpu"] and "gpu:h200:8" in facts["partition gpu"]
    assert facts["two ranks by srun --mpi=pmi2, partition gpu"] == "work on node1 (GPU 0), node2 (GPU 0)"
    assert facts["two ranks by mpiexec, partition gpu"] == "work on node1 (GPU 0), node2 (GPU 0)"
    assert facts["mpi in the profile"] == "'srun'", "MpiDefault is pmi2"
    assert facts[f"folder {tmp_path}"] == "the same on node1, node2"
    assert "the workflow asks squeue" in facts["accounting"]
    assert not list(tmp_path.iterdir())


def test_refused_trial_does_not_stop_the_others(cluster: Path, tmp_path: Path):
    run = doctor(tmp_path, "--partition", "closed")
    assert run.returncode == 3 and "cannot run the workflow yet" in run.stderr
    facts = json.loads(run.stdout)
    assert (
        "gpu:h200:8" in facts["partition gpu"]
        and "sbatch: error: " in facts["two ranks by any launcher, partition closed"]
    )


def test_unknown_partition_is_named(cluster: Path, tmp_path: Path):
    run = doctor(tmp_path, "--partition", "large")
    assert (run.returncode, run.stderr) == (2, "mgg: --partition large: the cluster has batch, cpu, gpu, closed\n")
