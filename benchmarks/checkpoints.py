"""What a checkpoint costs a training: python benchmarks/checkpoints.py [--hidden 16,4096] [--interval 30].

For each width of GCN's hidden layer on a random graph: seconds that the training loop stops for a checkpoint (copies of
weights, moments and best weights), seconds that a thread then takes beside it (hash, write, fsync), processor time that
the thread uses, and all as a share of an interval between checkpoints. The first is what PEs on GPUs pay; PEs on CPUs
without a spare core pay the processor time, too. With ``--busy N`` that many processes use the cores meanwhile.

With ``--whole N`` whole trainings instead: N without checkpoints and N with one every ``--every`` seconds, by turns, of
so many epochs that one takes about ``--length`` seconds. What those with checkpoints take longer, by medians, divided
by their checkpoints, is the cost of one; it is told as a share of the interval, of the time and of the processor time.
"""

from __future__ import annotations

import math
import multiprocessing
import tempfile
import time
from pathlib import Path
from unittest import mock

import click
import numpy as np

from mgg import layout, partition
from mgg.backend import World, launch
from mgg.graph.csr import from_arcs
from mgg.graph.store import write_graph
from mgg.model import settings_of
from mgg.train import Trainer, train
from mgg.train.loop import STALL_AFTER
from mgg.train.run.checkpoint import Checkpoint, Checkpoints, History
from mgg.train.run.identity import Identity

NODES, ARCS, FEATURES, CLASSES = 2_000, 10_000, 1_000, 40


def make(folder: Path) -> Path:
    """A layout of a small random graph for one PE: a checkpoint depends on the weights alone."""
    rng = np.random.default_rng(0)
    csr = from_arcs(rng.integers(0, NODES, ARCS), rng.integers(0, NODES, ARCS), n=NODES)
    data = {
        "features": rng.random((NODES, FEATURES), dtype=np.float32),
        "labels": rng.integers(0, CLASSES, NODES).astype(np.int32),
        "splits": rng.integers(1, 4, NODES).astype(np.uint8),
    }
    write_graph(folder / "graph", csr, name="random", source={}, **data)
    partition.build(folder / "graph", folder / "part", pes=1, scheme="equal_nodes", workgroup=1, dim=1)
    layout.build(folder / "graph", folder / "part", folder / "layout")
    return folder / "layout"


def measure(world: World, made: Path, out: Path, hidden: int, repeats: int) -> tuple[int, list[float]]:
    """Parameters, and median seconds of the pause, of the rest, and of the processor in the rest."""
    settings = settings_of("gcn", {"hidden": hidden})
    trainer = Trainer(world, layout.load(made, 0), model="gcn", technique="halo", options={}, settings=settings, seed=0)
    identity = Identity(
        model="gcn", dataset="random", graph_hash="", pes=1, technique="halo", options={}, seed=0, settings={}
    )
    trainer.keep()
    checkpoints, best = Checkpoints(out / f"{hidden}.checkpoint", identity, STALL_AFTER), trainer.kept()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        checkpoints.save(Checkpoint(History(), trainer.save() | {"best": best}))
        paused, used = time.perf_counter(), time.process_time()
        checkpoints.wait()
        taken.append((paused - start, time.perf_counter() - paused, time.process_time() - used))
    trainer.close()
    parameters = sum(int(np.prod(weight.shape)) for weight in trainer.weights.values())
    return parameters, np.median(taken, axis=0).tolist()


def run(world: World, made: Path, out: Path, hidden: int, epochs: int, every: float) -> tuple[float, float, int, int]:
    """Seconds of a whole training, processor time of all its threads, its checkpoints, and parameters."""
    part, save = layout.load(made, 0), Checkpoints.save
    with mock.patch.object(Checkpoints, "save", autospec=True, side_effect=save) as saves:
        start, used = time.perf_counter(), time.process_time()
        result = train(
            world, part, model="gcn", technique="halo", settings={"hidden": hidden}, epochs=epochs,
            out=out / f"{hidden}", checkpoint_every=every,
        )  # fmt: skip
        taken = time.perf_counter() - start, time.process_time() - used
    return *taken, saves.call_count, result.record.parameters


def alternate(world: World, made: Path, out: Path, hidden: int, runs: int, every: float, length: float) -> np.ndarray:
    """What ``run`` says, [runs, without or with checkpoints, ...], and the epochs of each."""
    few = [run(world, made, out, hidden, epochs, math.inf)[0] for epochs in (1, 2, 12)]  # the first one compiles
    epochs = math.ceil(length / ((few[2] - few[1]) / 10))
    taken = []
    for number in range(runs):
        for each in (math.inf, every):
            taken.append((*run(world, made, out, hidden, epochs, each), epochs))
            seconds, used, saves, *_ = taken[-1]
            click.echo(f"{hidden}: {number}: {seconds:.2f} s, processor {used:.2f} s, {saves} checkpoints", err=True)
    return np.array(taken).reshape(runs, 2, -1)


def row(taken: np.ndarray, interval: float) -> str:
    """A row of ``WHOLE``."""
    saves, parameters, epochs = np.median(taken[:, 1, 2:], axis=0)
    cells = [f"{parameters:,.0f}", f"{16 * parameters / 1e6:.1f}", f"{epochs:,.0f}", f"{saves:g}"]
    for column in (0, 1):
        middle = np.median(taken[:, :, column], axis=0)
        ends = np.stack([taken[:, :, column].min(axis=0), taken[:, :, column].max(axis=0)], axis=1)
        cells += [f"{mid:.2f} ({low:.2f} to {high:.2f})" for mid, (low, high) in zip(middle, ends, strict=True)]
        cells += [f"{middle[1] / middle[0]:.4f}", f"{(middle[1] - middle[0]) / saves / interval:.2%}"]
    return f"| {' | '.join(cells)} |"


def spin() -> None:
    """Use a core."""
    while True:
        pass


PARTS = ("parameters", "MB", "pause, ms", "share", "thread, ms", "share", "processor, ms", "share")
WHOLE = ("parameters", "MB", "epochs", "checkpoints", "without, s", "with, s", "ratio", "share of the interval")
WHOLE += ("processor without, s", "with, s", "ratio", "share of the interval")


@click.command()
@click.option("--hidden", default="16,256,4096", show_default=True, help="widths of the hidden layer")
@click.option("--interval", default=30.0, show_default=True, help="seconds between checkpoints")
@click.option("--repeats", default=7, show_default=True)
@click.option("--busy", default=0, show_default=True, help="processes that use a core each meanwhile")
@click.option("--whole", default=0, metavar="N", help="whole trainings: N without and N with checkpoints, by turns")
@click.option("--every", default=5.0, show_default=True, help="whole trainings: seconds between checkpoints")
@click.option("--length", default=40.0, show_default=True, help="whole trainings: seconds that one takes")
@click.option("--out", type=click.Path(path_type=Path), help="folder of the checkpoints  [default: a temporary one]")
def main(
    hidden: str, interval: float, repeats: int, busy: int, whole: int, every: float, length: float, out: Path | None
) -> None:
    """Print a row a width."""
    spinning = [multiprocessing.Process(target=spin, daemon=True) for _ in range(busy)]
    for process in spinning:
        process.start()
    with tempfile.TemporaryDirectory() as temporary:
        made = make(Path(temporary))
        told = WHOLE if whole else PARTS
        click.echo(f"| {' | '.join(told)} |\n|{' --- |' * len(told)}")
        for width in map(int, hidden.split(",")):
            place = out or Path(temporary)
            if whole:
                taken = launch(
                    "simulated", lambda: 1,
                    lambda world, w=width, p=place: alternate(world, made, p, w, whole, every, length),
                )[0]  # fmt: skip
                click.echo(row(taken, interval))
                continue
            parameters, taken = launch(
                "simulated", lambda: 1, lambda world, w=width, p=place: measure(world, made, p, w, repeats)
            )[0]
            cells = " | ".join(f"{1e3 * seconds:.1f} | {seconds / interval:.3%}" for seconds in taken)
            click.echo(f"| {parameters:,} | {16 * parameters / 1e6:.1f} | {cells} |")


if __name__ == "__main__":
    main()
