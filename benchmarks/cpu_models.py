"""A training step of every model on CPU ranks beside PyTorch Geometric: python benchmarks/cpu_models.py OUT.

Models of step_models.py on real graphs; a step is forward, backward and Adam. Ours runs on ``--pes`` PEs, threads of
one core each, and holds sparse features as CSR; PyTorch has as many threads and dense features, and goes once by
``edge_index``, once by a CSR tensor, which its GAT does not take. All start from the same weights; first losses are
compared (relative tolerance 1e-5). The ways take turns, so that what else the machine does meets all of them: times are
medians of the rounds' medians, ratios medians of the rounds' ratios. Data comes from $MGG_DATA_DIR, the cache or the
network. OUT gets cpu_models-pP.jsonl.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from accuracy import RANDOM_SPLITS, make_layout, split_anew
from common import Results, twin_step
from step_models import SETTINGS
from torch_geometric.utils import to_torch_csr_tensor

from mgg import layout
from mgg.backend import World, launch
from mgg.layout import PeLayout
from mgg.model import settings_of
from mgg.train import Trainer

WARMUP = 2
TOLERANCE = 1e-5
Step = tuple[float, float]  # loss, milliseconds


def ours(parts: list[PeLayout], model: str, steps: int) -> tuple[list[Step], dict[str, np.ndarray]]:
    """Steps of ours, and the weights that they began with."""

    def program(world: World) -> tuple[list[Step], dict[str, np.ndarray]]:
        settings = settings_of(model, SETTINGS[model] | {"row_normalize": False})
        technique = "local" if world.size == 1 else "halo"
        trainer = Trainer(
            world, parts[world.rank], model=model, technique=technique, options={}, settings=settings, seed=0
        )  # fmt: skip
        weights = {name: world.download(value).copy() for name, value in trainer.weights.items()}

        def step(epoch: int) -> float:
            world.barrier()
            return trainer.step(epoch)

        found = [timed(lambda: step(epoch)) for epoch in range(1, 1 + WARMUP + steps)]  # noqa: B023
        trainer.close()
        return found, weights

    return launch("simulated", lambda: len(parts), program)[0]


def theirs(whole: PeLayout, model: str, weights: dict[str, np.ndarray], steps: int, *, csr: bool) -> list[Step]:
    """Steps of PyTorch Geometric on the whole graph."""
    matrix = whole.forward.local
    targets = np.repeat(np.arange(whole.rows), np.diff(matrix.indptr))
    arcs = torch.as_tensor(np.stack([matrix.indices, targets]).astype(np.int64))
    graph = to_torch_csr_tensor(arcs.flip(0), size=(whole.rows, whole.rows)) if csr else arcs
    step = twin_step(whole, graph, model, weights, "cpu")
    return [timed(lambda: float(step())) for _ in range(WARMUP + steps)]


def timed(step: Callable[[], float]) -> Step:
    """The loss, and milliseconds."""
    start = time.perf_counter()
    loss = step()
    return loss, 1e3 * (time.perf_counter() - start)


def measured(whole: PeLayout, parts: list[PeLayout], model: str, rounds: int, steps: int) -> dict[str, Any]:
    """Milliseconds of each way in each round; raises ValueError where first losses differ."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        mine, weights = ours(parts, model, steps)
        ways = {"ours": mine, "edge_index": theirs(whole, model, weights, steps, csr=False)}
        if model != "gat":
            ways["csr"] = theirs(whole, model, weights, steps, csr=True)
        for way, taken in ways.items():
            if abs(taken[0][0] / mine[0][0] - 1) > TOLERANCE:
                raise ValueError(f"{model}: first losses differ: {mine[0][0]} and {taken[0][0]} ({way})")
            found.setdefault(way, []).append(float(np.median([each for _, each in taken[WARMUP:]])))
    return found


def line_of(row: dict[str, Any]) -> str:
    """A line of the table: milliseconds, and how many times as fast ours is."""
    cells = [f"{np.median(row['ms']['ours']):.2f}"]
    for way in ("edge_index", "csr"):
        if way in row["ms"]:
            ratio = np.median(np.array(row["ms"][way]) / row["ms"]["ours"])
            cells += [f"{np.median(row['ms'][way]):.1f}", f"{ratio:.1f}"]
        else:
            cells += ["-", "-"]
    return f"| {row['dataset']} | {row['model']} | {' | '.join(cells)} |"


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--datasets", default="cora,pubmed,coauthor_cs,amazon_computers", show_default=True)
@click.option("--models", default=",".join(SETTINGS), show_default=True)
@click.option("--pes", type=click.IntRange(1), default=1, show_default=True, help="PEs of ours, threads of PyTorch")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=7, show_default=True, help="steps of a round, after two more")
def main(out: Path, datasets: str, models: str, pes: int, rounds: int, steps: int) -> None:
    """Check, time, and print a table."""
    torch.set_num_threads(pes)
    results = Results(out / f"cpu_models-p{pes}.jsonl")
    results.say("| data set | model | ours, ms | edge_index, ms | times as fast | CSR, ms | times as fast |")
    with tempfile.TemporaryDirectory(prefix="mgg-") as scratch:
        for dataset in datasets.split(","):
            folders = {count: make_layout(dataset, Path(scratch) / f"{dataset}-{count}", count) for count in {1, pes}}
            layouts = {count: [layout.load(folder, rank) for rank in range(count)] for count, folder in folders.items()}
            if dataset in RANDOM_SPLITS:
                layouts = {count: split_anew(parts, 0) for count, parts in layouts.items()}
            for model in models.split(","):
                ms = measured(layouts[1][0], layouts[pes], model, rounds, steps)
                row = {"dataset": dataset, "model": model, "pes": pes, "ms": ms}
                results.record(**row)
                results.say(line_of(row))


if __name__ == "__main__":
    main()
