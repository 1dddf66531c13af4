"""What profiles/dgx asks of Slurm: stand-ins for Slurm's commands write down what they were called with."""

import shlex
from pathlib import Path

import pytest
from support.workflow import TINY, Folder

COMMANDS = ("sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "sinfo", "scancel")


@pytest.fixture(scope="module")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sbatch line of each job of the stages aggregate and train, by the job's target."""
    folder = Folder(tmp_path_factory.mktemp("slurm"))
    folder.overlay(TINY | {"partition": {"pes": [1, 8], "quality_pes": []}, "train": TINY["train"] | {"pes": [8]}})
    made = folder.run("--until", "layout")
    assert made.returncode == 0, made.stdout
    calls = _stand_ins(folder.path / "bin", folder.path / "calls")
    env = folder.environment()
    env["PATH"] = f"{folder.path / 'bin'}:{env['PATH']}"
    quick = ("--retries", "0", "--slurm-init-seconds-before-status-checks", "1")
    run = folder.run("--until", "aggregate", "train", *quick, profile="dgx", env=env)
    assert run.returncode != 0, "the stand-in for sbatch refuses every job"
    assert "srun -n 8 mgg aggregate results/layout/planted/p8" in run.stdout
    assert "srun -n 1" not in run.stdout
    lines = [call.read_text() for call in calls.iterdir()]
    return {_target(line): line for line in lines}


def _stand_ins(folder: Path, calls: Path) -> Path:
    folder.mkdir()
    calls.mkdir()
    for name in COMMANDS:
        script = '#!/bin/sh\nprintf "%s " "$@" > {calls}/$$; exit 1\n'
        other = "#!/bin/sh\nexit 0\n"
        (folder / name).write_text(script.format(calls=shlex.quote(str(calls))) if name == "sbatch" else other)
        (folder / name).chmod(0o755)
    return calls


def _target(line: str) -> str:
    return line.split("--target-jobs '")[1].split("'", maxsplit=1)[0]


@pytest.mark.parametrize(
    "target", ["aggregate:dataset=planted,pes=8", "train:dataset=planted,model=gcn,technique=halo,pes=8,seed=0"]
)
def test_eight_pes_are_eight_tasks_on_eight_gpus_of_one_node(submissions: dict[str, str], target: str):
    asked = submissions[target].split("--wrap")[0].split()
    assert {"--ntasks=8", "--gpus=8", "--nodes=1", "--cpus-per-task=8", "--no-requeue"} <= set(asked)
    assert not [word for word in asked if word.startswith("--ntasks-per-gpu")], "that would be 64 tasks"
    assert asked[asked.index("--mem") + 1] == "256000"
    assert int(asked[asked.index("-t") + 1]) > 0


def test_one_pe_is_a_job_without_mpi(submissions: dict[str, str]):
    asked = submissions["aggregate:dataset=planted,pes=1"].split("--wrap")[0].split()
    assert "--gpus=1" in asked
    assert not [word for word in asked if word.startswith("--ntasks")]


def test_the_overlay_travels_with_the_job(submissions: dict[str, str]):
    assert "tiny.yaml" in submissions["aggregate:dataset=planted,pes=8"]
