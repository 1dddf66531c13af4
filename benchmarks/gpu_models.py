"""A training step of every model on GPUs beside PyTorch Geometric: python benchmarks/gpu_models.py OUT, or on P ranks.

Two layers of 16 columns, no dropout, random features and labels of the real graphs' widths; a step is forward, backward
and Adam. On one GPU the same formula runs in PyTorch Geometric on ``edge_index``, from the same weights, after the
losses of both first steps have been compared (relative tolerance 1e-4). Times are medians of 20 steps after 5, of the
slowest PE, by CUDA events. Memory is what a GPU has less of free after the steps than before (ours: all that was taken)
and the most that torch had allocated at a time (PyTorch Geometric). One more step notes how long each operation of ours
takes. OUT gets gpu_models-pP.jsonl.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cupy as cp
import numpy as np
from common import torch_steps, twin_step
from gpu_graphs import generated
from gpu_train import PATIENCE, STEPS, TOLERANCE, WARMUP, WIDTHS, with_node_data
from gpu_train import Bench as GcnBench
from step_models import ALONE, SETTINGS

from mgg.backend import World, job_size, nvshmem
from mgg.graph.csr import Csr
from mgg.layout import PeLayout
from mgg.model import settings_of
from mgg.train import Trainer

GIB = 2**30


class Bench(GcnBench):
    """A run of one PE."""

    def __init__(self, world: World, out: Path, technique: str | None, attention: str) -> None:
        super().__init__(world, out / f"gpu_models-p{world.size}.jsonl", technique)
        self.attention = attention
        self.rows: list[dict[str, Any]] = []

    def ours(self, name: str, model: str, part: PeLayout) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Our step, and the weights that it began with."""
        cp.get_default_memory_pool().free_all_blocks()
        free = cp.cuda.runtime.memGetInfo()[0]
        values = (SETTINGS | ALONE)[model] | ({"attention": self.attention} if model == "gat" else {})
        settings = settings_of(model, values)
        trainer = Trainer(
            self.world, part, model=model, technique=self.technique, options={}, settings=settings, seed=0
        )  # fmt: skip
        weights = {key: self.world.download(value).copy() for key, value in trainer.weights.items()}
        epochs = iter(range(1, 1000))
        losses, step = self.timed(lambda: trainer.step(next(epochs)))
        taken = max(self.world.gather(free - cp.cuda.runtime.memGetInfo()[0]))
        predicted = max(self.world.gather(trainer.need.total))
        operations = self.operations(trainer, next(epochs))
        trainer.close()
        cp.get_default_memory_pool().free_all_blocks()
        found = {
            "step": step, "bytes": taken, "predicted": predicted, "losses": losses, "operations": operations,
        }  # fmt: skip
        return found, weights

    def theirs(self, model: str, csr: Csr, part: PeLayout, weights: dict[str, np.ndarray]) -> dict[str, Any]:
        """The step of PyTorch Geometric."""
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        rows = torch.as_tensor(np.diff(csr.indptr), device="cuda")
        targets = torch.repeat_interleave(torch.arange(csr.rows, device="cuda"), rows)
        arcs = torch.stack([torch.as_tensor(csr.indices, device="cuda").long(), targets])
        del rows, targets
        step = twin_step(part, arcs, model, weights, "cuda")
        losses, ms = torch_steps(step, WARMUP, STEPS)
        return {"step": ms, "bytes": torch.cuda.max_memory_allocated(), "losses": [float(each) for each in losses]}

    def attempt(self, what: str, action: Callable[[], Any]) -> Any:
        """Run a part; one that fails is reported. Several PEs would wait for one that failed: there it ends the run."""
        try:
            return action()
        except Exception as error:
            too_large = "out of memory" in str(error).lower()
            self.failed += not too_large
            self.say(f"{what}: {'does not fit' if too_large else 'FAILED'}: {' '.join(str(error).split())[:200]}")
            if self.world.size > 1:
                raise
            if not too_large:
                traceback.print_exc()
            return None

    def model(self, name: str, model: str, csr: Csr, part: PeLayout, with_pyg: bool) -> None:
        """A row of the table."""
        done = self.attempt(f"{name}, {model}", lambda: self.ours(name, model, part))
        if done is None:
            return
        ours, weights = done
        row = {"graph": name, "model": model, "pes": self.world.size, "technique": self.technique}
        row |= {"attention": self.attention, "ours": ours}
        if with_pyg:
            row["pyg"] = theirs = self.attempt(
                f"{name}, {model} in PyTorch Geometric", lambda: self.theirs(model, csr, part, weights)
            )
            release()
            if theirs:
                error = abs(ours["losses"][0] / theirs["losses"][0] - 1)
                self.failed += not error <= TOLERANCE
                self.say(f"{name}, {model}: first losses differ by {error:.2g}" + " FAILED" * (not error <= TOLERANCE))
        self.rows.append(row)
        self.record(**row)
        self.say(line_of(row))


def release() -> None:
    """Give back what torch holds, after an error, too."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def line_of(row: dict[str, Any]) -> str:
    """A line of the table: milliseconds and GiB, ours and theirs, and the ratios."""
    ours, theirs = row["ours"], row.get("pyg")
    line = f"| {row['graph']} | {row['model']} | {ours['step']:.2f} | {ours['bytes'] / GIB:.2f} |"
    if not theirs:
        return f"{line} - | - | - | - |"
    ratios = theirs["step"] / ours["step"], theirs["bytes"] / ours["bytes"]
    return f"{line} {theirs['step']:.1f} | {theirs['bytes'] / GIB:.1f} | {ratios[0]:.1f} | {ratios[1]:.1f} |"


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graphs", default=",".join(WIDTHS), show_default=True, help="separated by commas")
@click.option("--models", default=",".join(SETTINGS), show_default=True, help="likewise")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
@click.option("--technique", help="aggregation technique; default: local on one PE, halo on several")
@click.option(
    "--attention", default="rows", show_default=True, type=click.Choice(["rows", "product"]), help="setting of gat"
)
@click.option("--pyg/--no-pyg", "with_pyg", default=True, show_default=True, help="time PyTorch Geometric, on one PE")
def main(
    out: Path, graphs: str, models: str, scale: float, technique: str | None, attention: str, with_pyg: bool
) -> None:
    """Check and time, and print a table."""
    pes = job_size() or 1

    def program(world: World) -> int:
        bench = Bench(world, out, technique, attention)
        bench.say(f"{world.gpu}, {world.size} PE, CuPy {cp.__version__}, scale {scale}")
        for name in graphs.split(","):
            csr = generated(name, scale)
            part = with_node_data(world, csr, name)
            bench.say(f"{name}: {csr.rows:,} nodes, {csr.arcs:,} arcs after {bench.seconds}")
            for model in models.split(","):
                bench.model(name, model, csr, part, with_pyg and world.size == 1 and model in SETTINGS)
        bench.say("| graph | model | ms | GiB | PyTorch Geometric, ms | GiB | times as fast | times as much memory |")
        for row in bench.rows:
            bench.say(line_of(row))
        bench.end()
        return bench.failed

    sys.exit(4 if nvshmem.run(lambda: pes, program, timeout=PATIENCE)[0] else 0)


if __name__ == "__main__":
    main()
