"""Jobs that end early: cancelled, told to stop, out of time, a node or rank dies. One command sees each through."""

import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from slurm_folder import SlurmFolder
from support.workflow import ROOT, Folder, made
from support.workflow.attempts import newest_checkpoint, read_attempts, work_lost
from support.workflow.faults import FULL, RUN, injected, outcome, trained, training
from support.workflow.left import half_written, wait_until_quiet

#: One PE, of which the Slurm plugin makes no MPI job.
ALONE = "train/digits/gcn-halo-p1-s0"
#: Seconds of work that a fault may cost.
INTERVAL = 0.5
#: Two ranks, which profiles/slurm-cpu puts on one node: the other one is left when it dies.
CONFIG = {
    "graph": {"datasets": {"digits": {}}},
    "partition": {"pes": [1, 2], "quality_pes": []},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 1, "iterations": 2},
    "train": {
        "models": ["gcn"],
        "pes": [1, 2],
        "epochs": 400,
        "checkpoint_every": INTERVAL,
        "stall_after": 5 if not FULL else 45,
    },
}
#: Seconds that the first attempt of a training takes at least, however fast the machine is: the fault meets it.
SHORT = 20
#: Seconds that srun waits for the others here after a rank has ended; by itself the workflow says many more.
WAIT = 3
LONG = pytest.mark.skipif(not FULL, reason="takes minutes: make test-faults")


class TrainingFolder(SlurmFolder):
    """A working folder in which all is there but a training, which is about to be disturbed, and the report."""

    def __init__(self, path: Path, undisturbed: Folder, name: str = RUN, seconds: float = SHORT):
        super().__init__(path)
        self.name, self.undisturbed = name, undisturbed
        self.overlay(CONFIG)
        shutil.copytree(undisturbed.path / ".snakemake", self.path / ".snakemake")
        absent = shutil.ignore_patterns(f"{Path(name).name}-*", "report", "logs")
        shutil.copytree(undisturbed.results, self.results, ignore=absent)
        self.note_epochs(pause=seconds / CONFIG["train"]["epochs"])

    def target(self, profile: str = "slurm-cpu") -> str:
        """The training, in its place on the cluster; what was made without Slurm is said to be from there, too."""
        named = self.names(profile=profile)[f"results/{self.name}"]
        for stage in ("aggregate", "train"):
            for place in (self.results / stage).glob("local-*"):
                place.rename(place.with_name(named.split("/")[2]))
        return named

    @property
    def training(self) -> Path:
        """Its training, which may have checkpoints alone."""
        return training(self.results, self.name)

    @property
    def newest(self) -> int:
        """The epoch of the newest checkpoint; 0 if there is none."""
        return newest_checkpoint(self.training)

    def train(self, profile: str = "slurm-cpu", report: bool = False) -> tuple[subprocess.Popen, str]:
        """Start the training, alone or with what follows; returns its job's number at a drawn moment, for a fault.

        That is between one and two intervals after the first checkpoint: a training that has written no second one has
        more to lose than it may.
        """
        target = self.target(profile)
        targets = [] if report else [target]
        run = self.start("--printshellcmds", *targets, profile=profile)
        deadline = time.monotonic() + 300
        while not self.newest:
            assert run.poll() is None and time.monotonic() < deadline, (self.path / "run.log").read_text()
            time.sleep(0.05)
        time.sleep(INTERVAL * random.uniform(1, 2))
        return run, re.search(r"JobId=(\d+)", self.jobs()["train"][-1])[1]

    def reach(self, epoch: int, run: subprocess.Popen) -> None:
        """Wait until the training that ``run`` looks after has begun an epoch."""
        deadline = time.monotonic() + 300
        while not (self.epochs.exists() and f"epoch {epoch} " in self.epochs.read_text()):
            assert run.poll() is None and time.monotonic() < deadline, (self.path / "run.log").read_text()
            time.sleep(0.05)

    def states(self) -> list[str]:
        """How its training jobs stand."""
        return [re.search(r"JobState=(\w+)", line)[1] for line in self.jobs()["train"]]

    def stopped(self, within: float = 60) -> int:
        """The epoch after which a job that was told to stop has stopped, as its log says; its checkpoint is there."""
        (log,), deadline = made(self.results, f"logs/{self.name}.log"), time.monotonic() + within
        while not (stopped := re.search(r"stopped after epoch (\d+) of \d+: (\S+) is written", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        assert Path(stopped[2]).is_file() and int(stopped[1]) == self.newest
        return self.newest

    def died(self) -> int:
        """The epoch of the newest checkpoint that a job has left whose end Slurm has noticed."""
        deadline = time.monotonic() + 120
        while self.states() == ["RUNNING"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return self.newest

    def finish(self, run: subprocess.Popen) -> None:
        """Wait for the run's end, and look what is left."""
        assert run.wait(self.limit) == 0, (self.path / "run.log").read_text()
        left = subprocess.run(["squeue", "-h", "-o%i"], capture_output=True, text=True, check=True).stdout
        assert not left
        wait_until_quiet(self.path)
        assert not half_written(self.results)

    def recovered(self, newest: int) -> str:
        """Look at the training after a fault that left the checkpoint of epoch ``newest``; returns what was lost."""
        assert trained(self.training) == trained(training(self.undisturbed.results, self.name))
        assert len(read_attempts(self.epochs)) == 2
        return work_lost(self.epochs, newest, INTERVAL)


@pytest.fixture(scope="module")
def undisturbed(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """What the others compare with, and start from, made without Slurm: where trainings run changes no result."""
    folder = Folder(tmp_path_factory.mktemp("undisturbed"))
    folder.limit = 900
    folder.overlay(CONFIG)
    run = folder.run("--printshellcmds")
    assert run.returncode == 0, run.stdout
    return folder


def scancel(job: str, *options: str) -> None:
    """End a job, or signal it."""
    subprocess.run(["scancel", *options, job], check=True)


def test_cancelled_job_is_retried(undisturbed: Folder, tmp_path: Path):
    """Slurm tells it to stop before it ends it; here the run goes on to the report."""
    folder = TrainingFolder(tmp_path, undisturbed)
    run, job = folder.train(report=True)
    started = time.monotonic()
    scancel(job)
    recovered, newest = injected("a job cancelled by scancel", "training"), folder.stopped()
    folder.finish(run)
    seconds = time.monotonic() - started
    assert folder.states() == ["CANCELLED", "COMPLETED"]
    assert folder.recovered(newest) == "nothing"
    assert outcome(folder.results) == outcome(undisturbed.results)
    recovered(seconds, "nothing")


def test_killed_snakemake_leaves_no_duplicate_job(undisturbed: Folder, tmp_path: Path):
    """Slurm knows nothing of it: the next one ends the job that is left before it starts the same one again."""
    folder = TrainingFolder(tmp_path, undisturbed)
    run, job = folder.train()
    started = time.monotonic()
    run.kill()
    run.wait()
    recovered = injected("Snakemake killed by SIGKILL on Slurm", "training")
    assert folder.states() == ["RUNNING"]
    run = folder.start("--printshellcmds", folder.target())
    newest = folder.stopped()
    folder.finish(run)
    seconds = time.monotonic() - started
    assert f"now cancelled: {job}\n" in (tmp_path / "run.log").read_text()
    assert folder.states() == ["CANCELLED", "COMPLETED"]
    first, second = folder.jobs()["train"]
    ended, began = re.search(r" EndTime=(\S+)", first)[1], re.search(r" SubmitTime=(\S+)", second)[1]
    assert ended <= began
    assert folder.recovered(newest) == "nothing"
    recovered(seconds, "nothing")


@pytest.mark.parametrize("name", [pytest.param(RUN, marks=LONG), ALONE], ids=["two", "one"])
def test_signaled_job_writes_a_checkpoint(undisturbed: Folder, tmp_path: Path, name: str):
    """SIGUSR1 to its ranks, as `--signal=USR1@120` has it sent before the time is over."""
    folder = TrainingFolder(tmp_path, undisturbed, name)
    run, job = folder.train()
    started = time.monotonic()
    scancel(job, "--signal=USR1")
    recovered, newest = injected("a job told to stop by SIGUSR1", f"training, {name}"), folder.stopped()
    folder.finish(run)
    seconds = time.monotonic() - started
    assert folder.states() == ["FAILED", "COMPLETED"]
    assert folder.recovered(newest) == "nothing"
    recovered(seconds, "nothing")


@pytest.mark.parametrize("given", ["", f" --wait={WAIT}"], ids=["ours", "profile"])
def test_rank_that_dies_before_mpi_starts_is_retried(undisturbed: Folder, tmp_path: Path, given: str):
    """The other one waits in MPI's start without end, and Slurm lets it; a number of the profile's own counts."""
    folder = TrainingFolder(tmp_path, undisturbed, seconds=0)
    folder.limit = 150
    folder.lose_rank(1)
    if not given:
        folder.hurry(WAIT)
    profile = changed_profile(tmp_path, {"mpi": f"'srun --mpi=pmi2{given}'"})
    started = time.monotonic()
    run = folder.start("--printshellcmds", folder.target(profile), profile=profile)
    recovered = injected("a rank killed by SIGKILL before MPI starts, on Slurm", f"training{given}")
    folder.finish(run)
    seconds = time.monotonic() - started
    assert folder.states() == ["FAILED", "COMPLETED"]
    log = (tmp_path / "run.log").read_text()
    assert "task 1: Killed" in log and f"srun: First task exited {WAIT}s ago" in log
    assert trained(folder.training) == trained(training(undisturbed.results, RUN))
    recovered(seconds, "nothing")


@pytest.mark.parametrize(
    ("rank", "nodes"),
    [(1, 2), *(pytest.param(rank, nodes, marks=LONG) for rank, nodes in ((0, 2), (0, 1), (1, 1)))],
)
def test_rank_that_dies_in_an_epoch_is_named(undisturbed: Folder, tmp_path: Path, rank: int, nodes: int):
    """The other one, which may be on another node, notices and says who it was."""
    folder = TrainingFolder(tmp_path, undisturbed, seconds=SHORT / 2)
    # A training that has no second checkpoint has more to lose than it may.
    epoch, delay = random.randint(100, 300), random.uniform(0, SHORT / 2 / CONFIG["train"]["epochs"])
    folder.lose_rank_in(epoch, rank, delay)
    profile = changed_profile(tmp_path, {"nodes": nodes})
    run = folder.start("--printshellcmds", folder.target(profile), profile=profile)
    folder.reach(epoch, run)
    started = time.monotonic()
    recovered = injected("a rank killed by SIGKILL in a random epoch, on Slurm", f"rank {rank}, {nodes} nodes")
    newest = folder.died()
    folder.finish(run)
    seconds = time.monotonic() - started
    assert folder.states() == ["FAILED", "COMPLETED"]
    assert f"task {rank}: Killed" in (tmp_path / "run.log").read_text()
    assert max(read_attempts(folder.epochs)[0].began) in (epoch, epoch + 1)
    recovered(seconds, folder.recovered(newest))


def test_training_survives_a_dead_node(supervisor: tuple[subprocess.Popen, Path], undisturbed: Folder, tmp_path: Path):
    folder = TrainingFolder(tmp_path, undisturbed)
    run, _ = folder.train()
    started = time.monotonic()
    node = re.search(r" NodeList=(node\d) ", folder.jobs()["train"][-1])[1]
    order(supervisor[0], f"kill {node}")
    recovered = injected("a node killed under a running job", "training")
    try:
        newest = folder.died()
        folder.finish(run)
        seconds = time.monotonic() - started
        assert folder.states() == ["NODE_FAIL", "COMPLETED"]
        assert f" NodeList={node} " not in folder.jobs()["train"][-1]
    finally:
        order(supervisor[0], f"start {node}")
    recovered(seconds, folder.recovered(newest))


@pytest.mark.parametrize("name", [RUN, pytest.param(ALONE, marks=LONG)], ids=["two", "one"])
def test_time_limit_resumes_with_more_time(undisturbed: Folder, tmp_path: Path, name: str):
    """A minute, less the seconds before its end at which the ranks are told; the next attempt has eight."""
    folder = TrainingFolder(tmp_path, undisturbed, name, seconds=90)
    profile = changed_profile(tmp_path, {"runtime": "attempt ** 3", "slurm_extra": "'--signal=USR1@15'"})
    run, _ = folder.train(profile)
    newest = folder.stopped(within=200)
    while folder.states()[0] in ("RUNNING", "COMPLETING"):
        time.sleep(0.2)
    started, recovered = time.monotonic(), injected("a time limit reached", name)
    folder.finish(run)
    seconds = time.monotonic() - started
    # It has ended by itself, with its checkpoint, and not at its limit.
    assert folder.states() == ["FAILED", "COMPLETED"]
    assert folder.recovered(newest) == "nothing"
    recovered(seconds, "nothing")


def changed_profile(path: Path, changes: dict[str, str]) -> str:
    """profiles/slurm-cpu with other resources of trainings, in a folder of ``path``."""
    profile = yaml.safe_load((ROOT / "profiles/slurm-cpu/config.yaml").read_text())
    profile["set-resources"]["train"] |= changes
    (path / "profile").mkdir()
    (path / "profile/config.yaml").write_text(yaml.safe_dump(profile))
    return str(path / "profile")


def order(supervisor: subprocess.Popen, words: str) -> None:
    """Have the cluster's process do something."""
    supervisor.stdin.write(f"{words}\n")
    supervisor.stdin.flush()
    assert supervisor.stdout.readline() == "done\n"
