"""A rank of a training that is killed or stopped: what is lost, who is named, and that the same command goes on."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.graphs import make_layout, planted
from support.programs import fault_program
from support.ranks import mpiexec
from support.ranks.ready import ready
from support.workflow import Folder, made
from support.workflow.attempts import newest_checkpoint, work_lost
from support.workflow.faults import FULL, RUN, FaultFolder, injected, trained
from support.workflow.left import half_written, wait_until_quiet

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
EPOCHS, INTERVAL = 80, 0.05
KILLS = 100 if FULL else 2


def train(layout: Path, out: Path, log: Path, **fault: str) -> subprocess.CompletedProcess:
    """``mgg train`` on two ranks, always by the same command, in the folder of ``out``."""
    arguments = [fault_program.__file__, "train", str(layout), "--model", "gcn", "--epochs", str(EPOCHS)]
    arguments += ["--checkpoint-every", str(INTERVAL), "--resume", "--out", str(out)]
    return mpiexec(2, arguments, under=ready(gpus=False), cwd=out.parent, FAULT_LOG=str(log), **fault)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout for two ranks, without the workflow, which takes longer than the test."""
    csr, data = planted()
    return make_layout(tmp_path_factory.mktemp("planted"), csr, 2, **data)


@pytest.fixture(scope="module")
def whole(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The same training, undisturbed."""
    path = tmp_path_factory.mktemp("whole")
    run = train(graph, path / "run", path / "log")
    assert run.returncode == 0, run.stderr
    return trained(path / "run")


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.sentinel), *range(1, KILLS)])
def test_killed_rank_loses_at_most_one_checkpoint_interval(seed: int, graph: Path, whole: dict, tmp_path: Path):
    draw = random.Random(seed)
    rank, epoch, delay = draw.randrange(2), draw.randint(1, EPOCHS - 10), draw.uniform(0, 0.01)
    out, log = tmp_path / "run", tmp_path / "log"
    run = train(graph, out, log, FAULT=f"{rank} {epoch} {delay}")
    assert run.returncode != 0 and not out.exists()
    wait_until_quiet(tmp_path)
    recovered, newest = injected("a rank killed by SIGKILL in a random epoch", f"seed {seed}"), newest_checkpoint(out)
    started = time.monotonic()
    again = train(graph, out, log)
    seconds = time.monotonic() - started
    assert again.returncode == 0, again.stderr
    assert trained(out) == whole
    wait_until_quiet(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run"] and not half_written(out)
    recovered(seconds, work_lost(log, newest, INTERVAL))


@pytest.mark.parametrize("victim", [0, 1] if FULL else [1])
def test_stopped_rank_is_named_and_the_run_recovers(victim: int, before, finished: Folder):
    folder: FaultFolder = before("train")
    run = folder.start()
    folder.wait_for_checkpoint(run)
    (log,) = made(folder.results, f"logs/{RUN}.log")
    os.kill(rank_of(folder, victim), signal.SIGSTOP)
    started = time.monotonic()
    folder.wait_for(f"PE {victim} (epoch ", run, log, seconds=60)
    named = time.monotonic() - started
    assert run.wait(60) == 1
    wait_until_quiet(folder.path)
    recovered = injected("a rank stopped by SIGSTOP", f"rank {victim}, named after {named:.0f} s")
    seconds = folder.recover(finished)
    assert folder.resumed() > 0
    recovered(seconds, folder.lost())


def rank_of(folder: FaultFolder, rank: int) -> int:
    """The process of a rank of the job that works in ``folder``."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            here = (process / "cwd").readlink()
            environment = (process / "environ").read_bytes().split(b"\0")
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        if here == folder.path and name == "mgg" and f"PMI_RANK={rank}".encode() in environment:
            return int(process.name)
    raise AssertionError(f"no process of rank {rank}")
