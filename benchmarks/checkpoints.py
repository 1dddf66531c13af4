"""What a checkpoint costs a training: python benchmarks/checkpoints.py [--hidden 16,4096] [--interval 30].

For each width of GCN's hidden layer on a random graph: seconds that the training loop stops for a checkpoint (copies of
weights, moments and best weights), seconds that a thread then takes beside it (hash, write, fsync), processor time that
the thread uses, and all as a share of an interval between checkpoints. The first is what PEs on GPUs pay; PEs on CPUs
without a spare core pay the processor time, too. With ``--busy N`` that many processes use the cores meanwhile.

Whole trainings with and without checkpoints: benchmarks/compare.py with ``--way "--checkpoint-every 5" --way
"--checkpoint-every 1e6"``.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from common import head, laid_out, row

from mgg import layout
from mgg.backend import World, launch
from mgg.graph.csr import from_arcs
from mgg.graph.store import write_graph
from mgg.model import settings_of
from mgg.train import Trainer
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
    return laid_out(folder, 1)


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


def spin() -> None:
    """Use a core."""
    while True:
        pass


@click.command()
@click.option("--hidden", default="16,256,4096", show_default=True, help="widths of the hidden layer")
@click.option("--interval", default=30.0, show_default=True, help="seconds between checkpoints")
@click.option("--repeats", default=7, show_default=True)
@click.option("--busy", default=0, show_default=True, help="processes that use a core each meanwhile")
@click.option("--out", type=click.Path(path_type=Path), help="folder of the checkpoints  [default: a temporary one]")
def main(hidden: str, interval: float, repeats: int, busy: int, out: Path | None) -> None:
    """Print a row a width."""
    for _ in range(busy):
        multiprocessing.Process(target=spin, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        made, place = make(Path(temporary)), out or Path(temporary)
        click.echo(head("parameters", "MB", "pause, ms", "share", "thread, ms", "share", "processor, ms", "share"))
        for width in map(int, hidden.split(",")):
            parameters, taken = launch(
                "simulated", lambda: 1, lambda world, w=width: measure(world, made, place, w, repeats)
            )[0]
            cells = (text for seconds in taken for text in (f"{1e3 * seconds:.1f}", f"{seconds / interval:.3%}"))
            click.echo(row(f"{parameters:,}", f"{16 * parameters / 1e6:.1f}", *cells))


if __name__ == "__main__":
    main()
