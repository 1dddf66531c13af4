"""A training step of every model against PyTorch Geometric: python benchmarks/gpu_models.py OUT LAYOUT... (or mpiexec).

LAYOUTs are those of ``mgg layout``, for as many PEs as run here: on GPUs if each PE has one, else on CPU ranks. Models
have two layers of 16 columns and no dropout; a step is forward, backward and Adam, submitted operation by operation. On
one PE the same formula runs in PyTorch Geometric (``--side``, as of mgg train) from the same weights; the losses of
both first steps must agree (relative tolerance 1e-4). Times are medians of 20 steps after 5, of the slowest PE. Memory
is for MGG the decrease of free GPU memory over the steps, for PyTorch Geometric the peak of torch's allocations. For
epochs, phases and products see ``mgg train``, ``mgg train --phases`` and ``mgg aggregate``. OUT gets
gpu_models-pP.jsonl.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from common import ALONE, OUT, SETTINGS, Results, head, row

from mgg import layout
from mgg.backend import World, launch
from mgg.layout import PeLayout
from mgg.model import find, settings_of
from mgg.train import Trainer

GIB = 2**30
TOLERANCE = 1e-4
WARMUP, STEPS = 5, 20


class Bench(Results):
    """The benchmark on one PE."""

    def __init__(self, world: World, out: Path, technique: str | None, side: str, changed: dict[str, Any]) -> None:
        super().__init__(out / f"gpu_models-p{world.size}.jsonl", world.rank)
        self.world, self.technique = world, technique or ("local" if world.size == 1 else "halo")
        self.side, self.changed = side, changed

    def settings(self, model: str) -> Any:
        """The model's settings, with the changes by options."""
        known = self.changed if model == "gat" else {"dropout": self.changed["dropout"]}
        return settings_of(model, (SETTINGS | ALONE)[model] | known)

    def free(self) -> int:
        """Free bytes of the GPU."""
        if not self.world.gpu:
            return 0
        self.world.xp.get_default_memory_pool().free_all_blocks()
        return int(self.world.xp.cuda.runtime.memGetInfo()[0])

    def ours(self, model: str, part: PeLayout) -> dict[str, Any]:
        """MGG's step: median milliseconds of the slowest PE, bytes, and all losses (collective)."""
        before, losses, times = self.free(), [], []
        trainer = Trainer(
            self.world, part, model=model, technique=self.technique, options={}, settings=self.settings(model), seed=0
        )
        for step in range(1, WARMUP + STEPS + 1):
            self.world.barrier()
            clock = self.world.clock()
            clock.start()
            losses.append(trainer.step(step))
            times.append(1e3 * max(self.world.gather(clock.stop())))
        taken, predicted = before - self.free(), max(self.world.gather(trainer.need.total))
        trainer.close()
        return {
            "step": float(np.median(times[WARMUP:])), "bytes": max(self.world.gather(taken)), "predicted": predicted,
            "losses": losses,
        }  # fmt: skip

    def theirs(self, model: str, part: PeLayout) -> dict[str, Any]:
        """PyTorch Geometric's step, until the GPU has finished it."""
        import torch

        from mgg.interop.pyg_training import LibraryTrainer

        wait: Callable[[], object] = torch.cuda.synchronize if self.world.gpu else lambda: None
        learner = LibraryTrainer(
            self.world, part, side=self.side, model=find(model), settings=self.settings(model), seed=0,  # type: ignore[arg-type]
            epochs=WARMUP + STEPS, dtype="fp32", metric="auto", phases=False,
        )  # fmt: skip
        losses, times = [], []
        for step in range(1, WARMUP + STEPS + 1):
            wait()
            started = time.perf_counter()
            losses.append(learner._steps(step))
            wait()
            times.append(1e3 * (time.perf_counter() - started))
        size = torch.cuda.max_memory_allocated() if self.world.gpu else 0
        return {"step": float(np.median(times[WARMUP:])), "bytes": size, "losses": losses}

    def attempt(self, what: str, action: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Run a part; report a failure, which ends the run of several PEs, as the others would wait for it."""
        try:
            return action()
        except Exception as error:
            if self.world.size > 1:
                raise
            short = "memory" in str(error).lower()
            self.failed += not short
            self.say(f"{what}: {'does not fit' if short else 'FAILED'}: {' '.join(str(error).split())[:200]}")
            return None
        finally:
            gc.collect()
            if "torch" in sys.modules and self.world.gpu:
                sys.modules["torch"].cuda.empty_cache()

    def model(self, model: str, part: PeLayout, beside: bool) -> None:
        """A row of the table."""
        name = part.manifest.name
        ours = self.attempt(f"{name}, {model}", lambda: self.ours(model, part))
        if ours is None:
            return
        theirs = None
        if beside:
            theirs = self.attempt(f"{name}, {model}, {self.side}", lambda: self.theirs(model, part))
        self.record(
            graph=name, model=model, pes=self.world.size, gpu=self.world.gpu, technique=self.technique,
            changed=self.changed, ours=ours, side=self.side, theirs=theirs,
        )  # fmt: skip
        cells = [name, model, f"{ours['step']:.2f}", f"{ours['bytes'] / GIB:.2f}"]
        if theirs:
            error = abs(ours["losses"][0] / theirs["losses"][0] - 1)
            self.failed += not error <= TOLERANCE
            ratios = theirs["step"] / ours["step"], theirs["bytes"] / max(ours["bytes"], 1), error
            cells += [f"{theirs['step']:.1f}", f"{theirs['bytes'] / GIB:.1f}", *(f"{each:.2g}" for each in ratios)]
        self.say(row(*cells, *"-----"[: 9 - len(cells)]))


@click.command()
@OUT
@click.argument("layouts", type=click.Path(path_type=Path, exists=True, file_okay=False), nargs=-1, required=True)
@click.option("--models", default=",".join(SETTINGS), show_default=True, help="separated by commas")
@click.option("--technique", help="aggregation technique; default: local on one PE, halo on several")
@click.option("--attention", default="rows", show_default=True, help="setting of gat; with product only MGG is timed")
@click.option("--dropout", default=0.0, show_default=True, help="of layers; unless 0, only MGG is timed")
@click.option("--side", default="pyg", show_default=True, help="pyg or pyg_csr, on one PE; if empty, only MGG is timed")
def main(
    out: Path, layouts: tuple[Path, ...], models: str, technique: str | None, attention: str, dropout: float, side: str
) -> None:
    """Time, compare losses, and print a table."""

    def program(world: World) -> int:
        bench = Bench(world, out, technique, side, {"attention": attention, "dropout": dropout})
        names = f"{side or '-'}, ms", "GiB", "times as fast", "times as much memory", "losses apart"
        bench.say(head("graph", "model", "ms", "GiB", *names))
        for folder in layouts:
            part = layout.load(folder, world.rank)
            for model in models.split(","):
                beside = bool(side) and world.size == 1 and not dropout and attention == "rows" and model in SETTINGS
                bench.model(model, part, beside)
        bench.end()
        return bench.failed

    sys.exit(4 if launch("auto", lambda: layout.read_manifest(layouts[0]).pes, program)[0] else 0)


if __name__ == "__main__":
    main()
