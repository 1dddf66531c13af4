"""Trainings held to a share of the memory that they need: python benchmarks/capped.py OUT, or below mpiexec -n P.

An orkut-like graph of ``--scale``, with 128 random features and 32 classes, on CPU PEs (threads, or ranks below
mpiexec) or, where there are any, on GPUs. For GCN, GraphSAGE and GAT: what a training is predicted to take with all
activations kept; then, held to ``--share`` of that, or where that does not do, to the least share that does, by steps
of a twentieth: loss and gradients beside those of the uncapped training, which have to agree to 1e-5; then what becomes
of which layer's activations, predicted and actual peak (of GPUs what CuPy had; of CPU PEs arrays as Python traces them,
all PEs of a process together, which mapped files are not), and seconds of an epoch beside the uncapped training's, by
turns. On GPUs also bytes per epoch that are copied to and from host memory (what kernels read there in place, the lists
of arcs, is not among them), the bytes per second of such copies, and the capped epoch beside the larger of that
transfer and the uncapped epoch. OUT gets capped-pP.jsonl, one line a model.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import click
import numpy as np
from common import OUT, Results, laid_out

from mgg import layout
from mgg.backend import World, job_size, launch
from mgg.graph.generators import communities
from mgg.graph.store import write_graph
from mgg.model import settings_of
from mgg.train import Trainer
from mgg.train.memory import ShortError

GRAPH, FEATURES, CLASSES = "orkut-like", 128, 32
SETTINGS: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": 128, "layers": 4},
    "sage": {"hidden": 128, "layers": 4},
    "gat": {"hidden": 16, "heads": 8},
}
TOLERANCE, STEP, ROUNDS, EPOCHS = 1e-5, 0.05, 3, 3
#: Bytes of a copy whose rate is measured.
PIECE = 2**28


def made(folder: Path, pes: int, scale: float) -> Path:
    """A layout of the graph for ``pes`` PEs, which is made once."""
    if not (folder / "layout").is_dir():
        rng = np.random.default_rng(0)
        csr = communities.make(GRAPH, scale, communities.SEED, False).csr
        data = {
            "features": rng.random((csr.rows, FEATURES), dtype=np.float32) - np.float32(0.5),
            "labels": rng.integers(0, CLASSES, csr.rows).astype(np.int32),
            "splits": np.where(rng.random(csr.rows) < 0.5, 1, rng.integers(2, 4, csr.rows)).astype(np.uint8),
        }
        write_graph(folder / "graph", csr, name=GRAPH, source={}, **data)
        laid_out(folder, pes, workgroup=pes)
    return folder / "layout"


class Trial:
    """A model on this PE."""

    def __init__(self, world: World, part: layout.PeLayout, model: str) -> None:
        self.world, self.part, self.model = world, part, model

    def trainer(self, cap: int | None) -> Trainer:
        """Held to ``cap`` bytes a PE (collective)."""
        technique = "local" if self.world.size == 1 else "halo"
        return Trainer(
            self.world, self.part, model=self.model, technique=technique, options={}, seed=0,
            settings=settings_of(self.model, SETTINGS[self.model]), memory_per_pe=cap,
        )  # fmt: skip

    def fitting(self, share: float, need: int) -> tuple[float, Trainer]:
        """The least share from ``share`` on that does, and its trainer (collective)."""
        while True:
            try:
                return share, self.trainer(int(share * need))
            except ShortError:
                share += STEP

    def epochs(self, trainer: Trainer, done: list[float], epochs: int) -> None:
        """So many more epochs, whose seconds go to ``done`` (collective)."""
        for _ in range(epochs):
            self.world.barrier()
            started = time.perf_counter()
            trainer.epoch(len(done) + 1)
            done.append(max(self.world.gather(time.perf_counter() - started)))

    def gradients(self, trainer: Trainer) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradients; the trainer is closed (collective)."""
        loss, found = trainer.loss_and_gradients(1)
        trainer.close()
        return loss, found

    def compared(self, share: float) -> dict[str, Any]:
        """What the trainings are predicted to take, and the largest error of loss and gradients (collective)."""
        whole = self.trainer(None)
        need = max(self.world.gather(whole.need.total))
        loss, expected = self.gradients(whole)
        share, capped = self.fitting(share, need)
        predicted, how = max(self.world.gather(capped.need.total)), capped.activations
        theirs, gradients = self.gradients(capped)
        errors = [np.abs(gradients[name] - value).max() / np.abs(value).max() for name, value in expected.items()]
        error = float(max([*errors, abs(theirs - loss) / abs(loss)]))
        assert error <= TOLERANCE, error
        return {"need": need, "share": share, "predicted": predicted, "how": how, "error": error}

    def run(self, share: float) -> dict[str, Any]:
        """What is told of it (collective)."""
        world, found = self.world, {"model": self.model, "settings": SETTINGS[self.model], **self.compared(share)}
        seconds: dict[str, list[float]] = {"kept": [], "capped": []}
        for _ in range(ROUNDS):
            for name, cap in (("kept", None), ("capped", int(found["share"] * found["need"]))):
                world.barrier()
                if world.rank == 0 and not world.gpu:
                    tracemalloc.start()
                world.measure_memory()
                before = world.peak_memory() or 0  # what earlier trainings of this process have left
                world.barrier()
                trainer, done = self.trainer(cap), list[float]()
                sizes = list[int]()
                with mock.patch.object(type(world), "transfer", counting(type(world).transfer, sizes)):
                    self.epochs(trainer, done, 1)
                traced = tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else 0
                world.barrier()
                if world.rank == 0 and not world.gpu:
                    tracemalloc.stop()
                world.barrier()
                self.epochs(trainer, done, EPOCHS)  # memory is not traced
                found[f"peak_{name}"] = max(world.gather((world.peak_memory() or traced) - before))
                seconds[name] += done[1:]
                trainer.close()
        found |= {f"seconds_{name}": median(each) for name, each in seconds.items()}
        found["ratio"] = found["seconds_capped"] / found["seconds_kept"]
        if world.gpu:
            found |= {"copied": max(world.gather(sum(sizes))), "rate": min(world.gather(bus(world)))}
            bound = max(found["copied"] / found["rate"], found["seconds_kept"])
            found["over_bound"] = found["seconds_capped"] / bound
        return found


def counting(transfer: Callable[..., None], sizes: list[int]) -> Callable[..., None]:
    """``World.transfer``, which appends the bytes of each copy to ``sizes``: those of the memory on the host."""

    def copy(world: World, target: Any, source: Any) -> None:
        sizes.append(target.nbytes if isinstance(target, np.ndarray) else source.nbytes)
        transfer(world, target, source)

    return copy


def bus(world: World) -> float:
    """Bytes per second of copies to and from page-locked memory, the slower way."""
    inside, outside, clock = world.xp.zeros(PIECE, np.uint8), world.outside(PIECE), world.clock()
    ways = (lambda: world.transfer(outside.bytes, inside)), (lambda: world.transfer(inside, outside.bytes))
    seconds = []
    for way in ways:
        took = []
        for _ in range(5):
            clock.start()
            way()
            took.append(clock.stop())
        seconds.append(median(took))
    outside.close()
    return PIECE / max(seconds)


@click.command()
@OUT
@click.option("--models", default=",".join(SETTINGS), show_default=True)
@click.option("--pes", default=1, show_default=True, help="without mpiexec")
@click.option("--scale", default=0.003, show_default=True, help="of the graph")
@click.option("--share", default=1 / 3, show_default=True, help="of the memory")
def main(out: Path, models: str, pes: int, scale: float, share: float) -> None:
    """Time trainings within a share of their memory."""
    pes = job_size() if job_size() > 1 else pes

    def program(world: World) -> None:
        folder = out / f"{GRAPH}-{scale}-p{pes}"
        if world.rank == 0:
            made(folder, pes, scale)
        world.barrier()
        part = layout.load(folder / "layout", world.rank)
        results = Results(out / f"capped-p{pes}.jsonl", world.rank, "a")
        for model in models.split(","):
            line = Trial(world, part, model).run(share) | {"pes": pes, "gpu": world.gpu, "nodes": part.manifest.nodes}
            results.say(json.dumps(line))
            results.record(**line)

    launch("auto", lambda: pes, program)


if __name__ == "__main__":
    main()
