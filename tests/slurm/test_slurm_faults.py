"""Jobs that Slurm ends: cancelled, of a node that dies, told to stop, out of time. One command sees each through."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from slurm_folder import SlurmFolder
from support.faults import FULL, injected, trained
from support.workflow import ROOT, Folder

from mgg.record import read_run

RUN = "train/digits/gcn-halo-p4-s0"
#: One PE, of which the Slurm plugin makes no MPI job.
ALONE = "train/digits/gcn-halo-p1-s0"
#: Four ranks, which profiles/slurm-cpu puts on one node: the other one is left when it dies.
CONFIG = {
    "graph": {"datasets": {"digits": {}}},
    "partition": {"pes": [1, 4], "quality_pes": []},
    "aggregate": {"techniques": []},
    "train": {"models": ["gcn"], "pes": [1, 4], "epochs": 200, "checkpoint_every": 1},
}
TARGET = f"results/{RUN}"
LONG = pytest.mark.skipif(not FULL, reason="takes minutes: make test-faults")


class TrainingFolder(SlurmFolder):
    """A working folder whose layout is there, and whose training is about to be disturbed."""

    def __init__(self, path: Path, made: Folder, name: str = RUN, **changes: int):
        super().__init__(path)
        self.name = name
        self.overlay(CONFIG | {"train": CONFIG["train"] | changes})
        shutil.copytree(made.path / ".snakemake", self.path / ".snakemake")
        shutil.copytree(made.results, self.results, ignore=shutil.ignore_patterns("train", "logs"))

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints of the training, the oldest first."""
        return sorted(self.results.glob(f"{self.name}.checkpoint/*.safetensors"))

    def age(self) -> float:
        """Seconds since the newest checkpoint, which is what a fault now would cost."""
        return time.time() - max(file.stat().st_mtime for file in self.checkpoints)

    def train(self, profile: str = "slurm-cpu") -> tuple[subprocess.Popen, str]:
        """Start the training, alone; returns when its job has written a checkpoint, with the job's number."""
        run = self.start("--printshellcmds", f"results/{self.name}", profile=profile)
        deadline = time.monotonic() + 300
        while not self.checkpoints:
            assert run.poll() is None and time.monotonic() < deadline, (self.path / "run.log").read_text()
            time.sleep(0.05)
        return run, self.numbers()[-1]

    def numbers(self) -> list[str]:
        """The numbers of its training jobs so far."""
        return [re.search(r"JobId=(\d+)", line)[1] for line in self.jobs().get("train", [])]

    def states(self) -> list[str]:
        """How its training jobs stand."""
        return [re.search(r"JobState=(\w+)", line)[1] for line in self.jobs()["train"]]

    def stopped(self) -> str:
        """What a job has lost that was told to stop: nothing, once its log says so and the checkpoint is there."""
        log, deadline = self.results / "logs" / f"{self.name}.log", time.monotonic() + 60
        while not (told := re.search(r"stopped after epoch \d+ of \d+: (\S+) is written", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        assert Path(told[1]).is_file()
        return "nothing"

    def finish(self, run: subprocess.Popen) -> None:
        """Wait for the run's end, and look what is left."""
        assert run.wait(self.limit) == 0, (self.path / "run.log").read_text()
        assert not list(self.results.rglob("*.checkpoint"))
        left = subprocess.run(["squeue", "-h", "-o%i"], capture_output=True, text=True, check=True).stdout
        assert not left


def locally(path: Path, *names: str, **changes: int) -> Folder:
    """A folder in which trainings have run undisturbed, without Slurm: where they run changes no result."""
    folder = Folder(path)
    folder.limit = 900
    folder.overlay(CONFIG | {"train": CONFIG["train"] | changes})
    run = folder.run("--printshellcmds", *(f"results/{name}" for name in names))
    assert run.returncode == 0, run.stdout
    return folder


@pytest.fixture(scope="module")
def undisturbed(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """What the others compare with, and start from."""
    return locally(tmp_path_factory.mktemp("undisturbed"), RUN, ALONE)


def lasting(seconds: float, undisturbed: Folder, name: str) -> dict[str, int]:
    """A change by which a training takes about so long, on whatever machine."""
    return {"epochs": int(seconds / read_run(undisturbed.results / name)[0].median)}


def scancel(job: str, *options: str) -> None:
    """End a job, or signal it."""
    subprocess.run(["scancel", *options, job], check=True)


def test_a_cancelled_job_is_tried_again(undisturbed: Folder, tmp_path: Path):
    folder = TrainingFolder(tmp_path, undisturbed)
    run, job = folder.train()
    started, lost = time.monotonic(), folder.age()
    scancel(job)
    recovered = injected("a job cancelled by scancel", "training")
    folder.finish(run)
    assert folder.states() == ["CANCELLED", "COMPLETED"]
    assert trained(folder.results / RUN) == trained(undisturbed.results / RUN)
    recovered(time.monotonic() - started, f"{lost:.2f} s")


def test_a_killed_snakemake(undisturbed: Folder, tmp_path: Path):
    """Slurm knows nothing of it: the next one ends the job that is left before it starts the same one again."""
    folder = TrainingFolder(tmp_path, undisturbed)
    run, job = folder.train()
    started, lost = time.monotonic(), folder.age()
    run.kill()
    run.wait()
    recovered = injected("Snakemake killed by SIGKILL on Slurm", "training")
    assert folder.states() == ["RUNNING"]
    folder.finish(folder.start("--printshellcmds", TARGET))
    assert f"now cancelled: {job}\n" in (tmp_path / "run.log").read_text()
    assert folder.states() == ["CANCELLED", "COMPLETED"]
    first, second = folder.jobs()["train"]
    ended, began = re.search(r" EndTime=(\S+)", first)[1], re.search(r" SubmitTime=(\S+)", second)[1]
    assert ended <= began
    assert trained(folder.results / RUN) == trained(undisturbed.results / RUN)
    recovered(time.monotonic() - started, f"{lost:.2f} s")


@pytest.mark.parametrize("name", [pytest.param(RUN, marks=LONG), ALONE], ids=["four", "one"])
def test_a_job_that_is_told_to_stop_writes_a_checkpoint(undisturbed: Folder, tmp_path: Path, name: str):
    """SIGUSR1 to its ranks, as `--signal=USR1@120` has it sent before the time is over."""
    changes = lasting(12, undisturbed, name)
    folder = TrainingFolder(tmp_path / "run", undisturbed, name, **changes)
    run, job = folder.train()
    started = time.monotonic()
    scancel(job, "--signal=USR1")
    recovered, lost = injected("a job told to stop by SIGUSR1", f"training, {name}"), folder.stopped()
    folder.finish(run)
    assert folder.states() == ["FAILED", "COMPLETED"]
    assert trained(folder.results / name) == trained(locally(tmp_path / "whole", name, **changes).results / name)
    recovered(time.monotonic() - started, lost)


@LONG
def test_a_node_that_dies(supervisor: tuple[subprocess.Popen, Path], undisturbed: Folder, tmp_path: Path):
    folder = TrainingFolder(tmp_path, undisturbed)
    run, _ = folder.train()
    started, lost = time.monotonic(), folder.age()
    node = re.search(r" NodeList=(node\d) ", folder.jobs()["train"][-1])[1]
    order(supervisor[0], f"kill {node}")
    recovered = injected("a node killed under a running job", "training")
    try:
        folder.finish(run)
        seconds = time.monotonic() - started
        assert folder.states() == ["NODE_FAIL", "COMPLETED"]
        assert f" NodeList={node} " not in folder.jobs()["train"][-1]
    finally:
        order(supervisor[0], f"start {node}")
    assert trained(folder.results / RUN) == trained(undisturbed.results / RUN)
    recovered(seconds, f"{lost:.2f} s")


@LONG
@pytest.mark.parametrize("name", [RUN, ALONE], ids=["four", "one"])
def test_a_time_limit(undisturbed: Folder, tmp_path: Path, name: str):
    """A minute, less the seconds before its end at which the ranks are told; the next attempt has eight."""
    changes = lasting(90, undisturbed, name)
    folder = TrainingFolder(tmp_path / "run", undisturbed, name, **changes)
    profile = yaml.safe_load((ROOT / "profiles/slurm-cpu/config.yaml").read_text())
    ranks = {"runtime": "attempt ** 3", "slurm_extra": "'--signal=USR1@15'"}
    profile["set-resources"]["train"] = profile["set-resources"]["train"] | ranks
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile/config.yaml").write_text(yaml.safe_dump(profile))
    run, _ = folder.train(str(tmp_path / "profile"))
    while folder.states() == ["RUNNING"]:
        time.sleep(0.2)
    started = time.monotonic()
    recovered, lost = injected("a time limit reached", f"{folder.states()[0]}, {name}"), folder.stopped()
    folder.finish(run)
    seconds = time.monotonic() - started
    assert folder.states() in (["FAILED", "COMPLETED"], ["TIMEOUT", "COMPLETED"])
    assert trained(folder.results / name) == trained(locally(tmp_path / "whole", name, **changes).results / name)
    recovered(seconds, lost)


def order(supervisor: subprocess.Popen, words: str) -> None:
    """Have the cluster's process do something."""
    supervisor.stdin.write(f"{words}\n")
    supervisor.stdin.flush()
    assert supervisor.stdout.readline() == "done\n"
