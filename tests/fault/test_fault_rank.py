"""A rank of a training that is killed or stopped: what is lost, who is named, and that the same command goes on."""

import os
import random
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from support import fault_program
from support.faults import FULL, RUN, FaultFolder, injected, trained
from support.ranks import mpiexec
from support.workflow import Folder

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
EPOCHS, INTERVAL = 80, 0.05
KILLS = 100 if FULL else 3


def train(layout: Path, out: Path, log: Path, **fault: str) -> subprocess.CompletedProcess:
    """``mgg train`` on two ranks, always by the same command."""
    arguments = [fault_program.__file__, "train", str(layout), "--model", "gcn", "--epochs", str(EPOCHS)]
    arguments += ["--checkpoint-every", str(INTERVAL), "--resume", "--out", str(out)]
    return mpiexec(2, arguments, FAULT_LOG=str(log), **fault)


def noted(log: Path, what: str) -> list[tuple[int, float]]:
    """Epochs and times of the lines of one kind."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(int(epoch), float(when)) for kind, epoch, when in lines if kind == what]


@pytest.fixture(scope="module")
def whole(finished: Folder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The same training, undisturbed."""
    path = tmp_path_factory.mktemp("whole")
    run = train(finished.results / "layout/digits/p2", path / "run", path / "log")
    assert run.returncode == 0, run.stderr
    return trained(path / "run")


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_rank_costs_at_most_an_interval(seed: int, finished: Folder, whole: dict, tmp_path: Path):
    draw = random.Random(seed)
    rank, epoch, delay = draw.randrange(2), draw.randint(1, EPOCHS - 10), draw.uniform(0, 0.01)
    layout, out, log = finished.results / "layout/digits/p2", tmp_path / "run", tmp_path / "log"
    run = train(layout, out, log, FAULT=f"{rank} {epoch} {delay}")
    killed = time.time()
    assert run.returncode != 0 and not out.exists()
    recovered = injected("a rank killed by SIGKILL in a random epoch", f"seed {seed}")
    kept = sorted(int(file.stem[-6:]) for file in tmp_path.glob("run.checkpoint/*.safetensors"))
    reached, asked = noted(log, "epoch")[-1], noted(log, "checkpoint")
    newest = kept[-1] if kept else 0
    # The last one asked for is on the disk, or it was being written and the one before it is there.
    assert newest in [0, *(each for each, _ in asked)][-2:]
    began = dict(noted(log, "epoch"))
    unwritten = [when for each, when in asked if each > newest]
    killed = min(killed, reached[1])
    lost = killed - began[newest + 1]
    # An epoch may take longer than the one before, which is all that is known when a checkpoint is put off.
    assert min([killed, *unwritten]) - began[newest + 1] <= INTERVAL + max_gap(began)
    started, seen = time.monotonic(), len(noted(log, "epoch"))
    again = train(layout, out, log)
    assert again.returncode == 0, again.stderr
    assert noted(log, "epoch")[seen][0] == newest + 1, "it began somewhere else than after the newest checkpoint"
    assert trained(out) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run"]
    recovered(time.monotonic() - started, f"{reached[0] - 1 - newest} epochs, {lost:.2f} s")


def max_gap(began: dict[int, float]) -> float:
    """The longest time from one epoch's begin to the next one's."""
    return max((after - before for before, after in pairwise(sorted(began.values()))), default=0)


@pytest.mark.parametrize("victim", [0, 1] if FULL else [1])
def test_a_stopped_rank_is_named_and_the_rest_recovers(victim: int, before, finished: Folder):
    folder: FaultFolder = before("train")
    run = folder.start()
    log = folder.results / "logs" / f"{RUN}.log"
    folder.wait_for("epoch ", run, log)
    os.kill(rank_of(folder, victim), signal.SIGSTOP)
    started = time.monotonic()
    folder.wait_for(f"PE {victim} (epoch ", run, log, seconds=60)
    named = time.monotonic() - started
    assert run.wait(60) == 1
    folder.wait_until_quiet()
    recovered = injected("a rank stopped by SIGSTOP", f"rank {victim}, named after {named:.0f} s")
    recovered(folder.recover(finished))


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
