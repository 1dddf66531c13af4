"""Training within a share of the memory that it needs: python benchmarks/capped.py OUT, or below mpiexec -n P.

The graph is orkut-like of ``--scale``, with 128 random features and 32 classes, on GPUs if there are any, else on CPU
PEs (threads, or ranks below mpiexec). For each of GCN, GraphSAGE and GAT the script reports: the predicted memory with
all activations kept; the least share of that memory, from ``--share`` on in steps of 0.05, with which a capped training
runs; the error of its loss and gradients against the uncapped training, at most 1e-5; what happens to each layer's
activations; predicted and actual peak (on GPUs CuPy's memory, on CPUs the arrays of all PEs of a process by
tracemalloc, without mapped files); and seconds per epoch of both trainings, which take turns. On GPUs it also reports
the bytes per epoch copied to and from host memory (without lists of arcs, which kernels read in place), the bytes per
second of such copies, and the capped epoch over the larger of that transfer and the uncapped epoch. OUT gets
capped-pP.jsonl, one line per model.
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


def make_layout(folder: Path, pes: int, scale: float) -> Path:
    """The layout of the graph for ``pes`` PEs, made unless it exists."""
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
        """A trainer with at most ``cap`` bytes per PE (collective)."""
        technique = "local" if self.world.size == 1 else "halo"
        return Trainer(
            self.world, self.part, model=self.model, technique=technique, options={}, seed=0,
            settings=settings_of(self.model, SETTINGS[self.model]), memory_per_pe=cap,
        )  # fmt: skip

    def fitting(self, share: float, need: int) -> tuple[float, Trainer]:
        """The least share, from ``share`` on, that suffices, and its trainer (collective)."""
        while True:
            try:
                return share, self.trainer(int(share * need))
            except ShortError:
                share += STEP

    def epochs(self, trainer: Trainer, done: list[float], epochs: int) -> None:
        """Run more epochs, and append their seconds to ``done`` (collective)."""
        for _ in range(epochs):
            self.world.barrier()
            started = time.perf_counter()
            trainer.epoch(len(done) + 1)
            done.append(max(self.world.gather(time.perf_counter() - started)))

    def gradients(self, trainer: Trainer) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradients; closes the trainer (collective)."""
        loss, found = trainer.loss_and_gradients(1)
        trainer.close()
        return loss, found

    def compared(self, share: float) -> dict[str, Any]:
        """Predicted memory of both trainings, and the largest error of loss and gradients (collective)."""
        whole = self.trainer(None)
        need = max(self.world.gather(whole.need.total))
        loss, expected = self.gradients(whole)
        share, capped = self.fitting(share, need)
        predicted, how = max(self.world.gather(capped.need.total)), capped.activations
        capped_loss, gradients = self.gradients(capped)
        errors = [np.abs(gradients[name] - value).max() / np.abs(value).max() for name, value in expected.items()]
        error = float(max([*errors, abs(capped_loss - loss) / abs(loss)]))
        assert error <= TOLERANCE, error
        return {"need": need, "share": share, "predicted": predicted, "how": how, "error": error}

    def run(self, share: float) -> dict[str, Any]:
        """All results of the model (collective)."""
        world, found = self.world, {"model": self.model, "settings": SETTINGS[self.model], **self.compared(share)}
        seconds: dict[str, list[float]] = {"kept": [], "capped": []}
        for _ in range(ROUNDS):
            for name, cap in (("kept", None), ("capped", int(found["share"] * found["need"]))):
                world.barrier()
                if world.rank == 0 and not world.gpu:
                    tracemalloc.start()
                world.measure_memory()
                before = world.peak_memory() or 0  # left by earlier trainings of this process
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
            found |= {"copied": max(world.gather(sum(sizes))), "rate": min(world.gather(copy_rate(world)))}
            bound = max(found["copied"] / found["rate"], found["seconds_kept"])
            found["over_bound"] = found["seconds_capped"] / bound
        return found


def counting(transfer: Callable[..., None], sizes: list[int]) -> Callable[..., None]:
    """``World.transfer``, which also appends the bytes of each copy to ``sizes``, as counted in host memory."""

    def copy(world: World, target: Any, source: Any) -> None:
        sizes.append(target.nbytes if isinstance(target, np.ndarray) else source.nbytes)
        transfer(world, target, source)

    return copy


def copy_rate(world: World) -> float:
    """Bytes per second of copies to or from page-locked memory, whichever is slower."""
    inside, outside, clock = world.xp.zeros(PIECE, np.uint8), world.outside(PIECE), world.clock()
    copies = (lambda: world.transfer(outside.bytes, inside)), (lambda: world.transfer(inside, outside.bytes))
    seconds = []
    for copy in copies:
        times = []
        for _ in range(5):
            clock.start()
            copy()
            times.append(clock.stop())
        seconds.append(median(times))
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
            make_layout(folder, pes, scale)
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
