"""A PE that makes no progress is named with its epoch and phase, and the job ends with exit code 6."""

import os
import pkgutil
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest
from support.programs.train_program import layouts as parts_of
from support.ranks import changed_environment, mpi_command, mpiexec

from mgg.backend import launch
from mgg.errors import PeError, StoppedError
from mgg.train import Trainer, loop, train

pytestmark = pytest.mark.slow

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 10_000, "stall_after": 0.5}


@pytest.mark.parametrize(
    ("method", "epoch", "place", "pes"),
    [("step", 1, "first pass", 2), ("step", 3, "epoch 2, evaluation", 1), ("evaluate", 3, "epoch 3, update", 2)],
)
def test_blocked_pe_is_named(method, epoch, place, pes, layouts, monkeypatch):
    """In the first epoch as later, and without another PE that waits for it."""
    plain, stuck = getattr(Trainer, method), threading.Event()
    parts, last = parts_of("simulated", layouts("planted", pes), pes), pes - 1

    def step(trainer, number):
        if trainer._world.rank == last and number == epoch:
            stuck.wait(30)
        return plain(trainer, number)

    monkeypatch.setattr(Trainer, method, step)
    # The thread that is stuck is a daemon; the run does not wait for it for long.
    with pytest.raises(
        PeError, match=rf"^PE {last} \({place}\) (has not moved for|did not reach a barrier within) 0\.5 s"
    ):
        launch("simulated", lambda: pes, lambda world: train(world, parts(world.rank), **OPTIONS))
    stuck.set()


def test_slow_start_is_no_stall(layouts, monkeypatch):
    """Before the first epoch each part of it may take as long as the limit: features, plans, the pass without steps."""
    parts = parts_of("simulated", layouts("planted", 1), 1)
    for name in ("trainer.prepare_features", "trainer.Neighborhood.prepare", "Trainer._logits"):
        place, _, call = f"mgg.train.{name}".rpartition(".")
        plain = getattr(pkgutil.resolve_name(place), call)
        monkeypatch.setattr(
            f"{place}.{call}", lambda *given, plain=plain, **named: [time.sleep(1), plain(*given, **named)][1]
        )
    monkeypatch.setattr(loop, "DEFAULT_TIMEOUT", 2.5)
    options = {**OPTIONS, "epochs": 1, "stall_after": 2.4}
    found = launch("simulated", lambda: 1, lambda world: train(world, parts(world.rank), **options))
    assert len(found[0].epochs) == 1


@pytest.mark.parametrize("backend", ["simulated", "mpi"])
def test_single_working_pe_is_no_stall(backend, layouts, monkeypatch):
    plain, parts = Trainer.step, parts_of(backend, layouts("planted", 1), 1)
    monkeypatch.setattr(Trainer, "step", lambda trainer, epoch: [work(0.6), plain(trainer, epoch)][1])
    options = {**OPTIONS, "epochs": 1, "stall_after": 0.2}
    found = launch(backend, lambda: 1, lambda world: train(world, parts(world.rank), **options))
    assert len(found[0].epochs) == 1


def work(seconds):
    """Use a core for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_slow_epoch_is_no_stall(layouts, monkeypatch):
    """Ten times the last epoch: PE 1 works for longer than the limit, but not than that."""
    plain, parts = Trainer.step, parts_of("simulated", layouts("planted", 2), 2)

    def step(trainer, epoch):
        if trainer._world.rank == 1:
            work(0.6)
        return plain(trainer, epoch)

    monkeypatch.setattr(Trainer, "step", step)
    options = {**OPTIONS, "epochs": 2, "stall_after": 0.3}  # a busy host may leave a thread without a core for 0.1 s
    assert len(launch("simulated", lambda: 2, lambda world: train(world, parts(world.rank), **options))[0].epochs) == 2


def test_endless_computation_is_named(layouts, monkeypatch):
    """It uses its core all the time, and comes no further."""
    plain, ended = Trainer.step, threading.Event()
    parts = parts_of("simulated", layouts("planted", 2), 2)

    def step(trainer, epoch):
        while trainer._world.rank == 1 and epoch == 3 and not ended.is_set():
            pass
        return plain(trainer, epoch)

    monkeypatch.setattr(Trainer, "step", step)
    said = r"^PE 1 \(epoch 2, evaluation\) (has worked for [\d.]+ s without coming further|did not reach a barrier)"
    with pytest.raises(PeError, match=said):
        launch("simulated", lambda: 2, lambda world: train(world, parts(world.rank), **OPTIONS))
    ended.set()


@pytest.mark.parametrize(("method", "place"), [("step", "first pass"), ("predict", "epoch 1, prediction")])
def test_endless_computation_of_a_single_pe_is_named(method, place, layouts, tmp_path, monkeypatch):
    """Where nothing is known of epochs, or disks may be slow, others would wait for the default limit; nobody waits."""
    plain, ended = getattr(Trainer, method), threading.Event()
    parts, end = parts_of("simulated", layouts("planted", 1), 1), time.monotonic() + 20

    def spin(trainer, *arguments):
        while not ended.is_set() and time.monotonic() < end:
            pass
        return plain(trainer, *arguments)

    monkeypatch.setattr(Trainer, method, spin)
    monkeypatch.setattr(loop, "DEFAULT_TIMEOUT", 1.0)
    options = {**OPTIONS, "epochs": 1, "stall_after": 0.2, "out": tmp_path / "run"}
    with pytest.raises(PeError, match=rf"^PE 0 \({place}\) has worked for 1 s without coming further$"):
        launch("simulated", lambda: 1, lambda world: train(world, parts(world.rank), **options))
    ended.set()


def test_resumed_run_takes_its_limit_from_earlier_epochs(layouts, tmp_path, monkeypatch):
    """Its first one may take ten times as long, too."""
    plain, stop, seconds = Trainer.step, threading.Event(), iter((0.4, 1.5))
    parts = parts_of("simulated", layouts("planted", 1), 1)

    def step(trainer, epoch):
        work(next(seconds))
        stop.set()
        return plain(trainer, epoch)

    monkeypatch.setattr(Trainer, "step", step)
    options = {**OPTIONS, "epochs": 2, "stall_after": 0.2, "out": tmp_path / "run"}

    def run(**more):
        return launch("simulated", lambda: 1, lambda world: train(world, parts(world.rank), **options, **more))

    with pytest.raises(StoppedError):
        run(stop=stop)
    monkeypatch.setattr(loop, "DEFAULT_TIMEOUT", 1.0)
    assert len(run(resume=True)[0].epochs) == 2


STUCK = """
import os
import numba, numpy as np
from mgg.cli import main
from mgg.train import Trainer
def spin(flag):
    while flag[0] == 0:
        flag[1] += 1
HOW = {
    "computing": numba.njit(nogil=True)(spin),
    "holding": numba.njit(spin),
}
plain = Trainer.step
def step(trainer, epoch):
    if trainer._world.rank == int(os.environ["VICTIM"]) and epoch == int(os.environ["EPOCH"]):
        HOW[os.environ["HOW"]](np.zeros(2, np.int64))
    return plain(trainer, epoch)
Trainer.step = step
main()
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "ranks", "hosts"), [("computing", 2, 1), ("holding", 1, 1), ("holding", 2, 1), ("holding", 2, 2)]
)
def test_endless_native_call_is_named(how, ranks, hosts, layouts, tmp_path):
    """With the interpreter's lock and without; alone, beside another rank, and as the only rank of its host."""
    arguments = ["train", str(layouts("planted", ranks)), "--model", "gcn", "--technique", "halo", "--stall-after", "2"]
    arguments += ["--backend", "mpi", "--out", str(tmp_path / "run")]
    known = {"VICTIM": str(ranks - 1), "EPOCH": "3", "HOW": how, "MGG_MPI_SHARED_MEMORY": str(2 - hosts)}
    done = mpiexec(ranks, ["-c", STUCK, *arguments], timeout=60, **known)
    assert done.returncode == 6, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("mgg: ")]
    assert lines, done.stderr
    assert all(f"PE {ranks - 1} (epoch 2, evaluation) " in line for line in lines), done.stderr
    # Beside another rank it is that one that says so: after its own limit, or because nothing of this one moves.
    said = {
        "computing": r"has worked for [\d.]+ s without coming further",
        "holding": "(has not moved for 2 s: (a native call does not return|neither worked .*)|did not reach a barr.*)",
    }
    assert re.fullmatch(rf"mgg: (PE 0: )?PE {ranks - 1} \(epoch 2, evaluation\) {said[how]}", lines[0]), lines


@pytest.mark.mpi
@pytest.mark.parametrize(("victim", "hosts"), [(1, 1), (0, 2), (1, 3)])
def test_stopped_rank_is_named_and_ends_the_job(victim, hosts, layouts, tmp_path):
    """SIGSTOP at any moment: what the other rank waits for then may be anything. Between hosts it asks."""
    out, ranks = tmp_path / "run", max(2, hosts)
    arguments = ["-m", "mgg.cli", "train", str(layouts("planted", ranks)), "--model", "gcn", "--epochs", "1000000"]
    arguments += ["--technique", "halo", "--stall-after", "2", "--checkpoint-every", "0.1", "--out", str(out)]
    environment = changed_environment({"MGG_MPI_SHARED_MEMORY": str(int(hosts == 1))})
    job = subprocess.Popen(
        mpi_command(ranks, arguments), env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("run.checkpoint/*.safetensors")):
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(rank_process(job.pid, victim), signal.SIGSTOP)
        errors = job.communicate(timeout=60)[1]
    finally:
        job.kill()
    assert job.returncode == 6, errors
    said = [line for line in errors.splitlines() if line.startswith("mgg: ")]
    unseen = rf"PE {victim} of another host did not answer PE [02{1 - victim}] \(epoch "
    known = rf"PE {victim} \(epoch " if hosts == 1 else unseen
    # Every rank that waits may say so before the job has ended.
    assert 0 < len(said) < ranks and all(re.search(known, line) for line in said), errors
    assert any(f", {phase})" in said[0] for phase in ("forward", "backward", "all-reduce", "update", "evaluation"))
    assert list(tmp_path.glob("run.checkpoint/*.safetensors")) and not out.exists()


def rank_process(job: int, rank: int) -> int:
    """The process of a rank below the launcher ``job``."""
    for process in psutil.Process(job).children(recursive=True):
        with suppress(psutil.Error):
            if process.environ().get("PMI_RANK") == str(rank) and process.cmdline()[0] == sys.executable:
                return process.pid
    raise AssertionError(f"no process of rank {rank}")
