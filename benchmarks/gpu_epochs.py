"""Epochs of training as CUDA graphs and step by step: python benchmarks/gpu_epochs.py OUT, or below mpiexec.

An epoch is what ``mgg train`` does in one: forward, backward, Adam, and the evaluation. Every run is ``train`` itself;
runs of both ways take turns. Where losses or scores of the two differ in a bit, that is a failure (techniques with
float atomics apart, whose first ten losses are compared to 1e-3). Times are microseconds: ``epoch`` is what
metrics.jsonl says of an epoch, until the host has its loss and scores; ``whole`` is the time from one epoch's end to
the next one's, with all that the loop does between them. Both are medians over the epochs after the first ``SKIPPED``
of all runs. OUT gets gpu_epochs.jsonl, one line a case, and the layouts. Data comes from $MGG_DATA_DIR, the cache or
the network.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from common import OUT, Results, head, make_layout, row
from gpu_graphs import on_gpus

from mgg import layout
from mgg.aggregate import all_techniques
from mgg.backend import World, job_size, together
from mgg.layout import PeLayout
from mgg.train import Result, train

#: Epochs of a run that are not timed: the first, the one that is captured, and what the clocks take to rise.
SKIPPED = 50


class Ends(threading.Event):
    """Never set; notes when it is asked, which is after every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def is_set(self) -> bool:
        """False."""
        self.times.append(time.perf_counter())
        return False


def timed(world: World, part: PeLayout, model: str, technique: str, epochs: int, repeat: bool) -> tuple[Result, Any]:
    """A run, and the microseconds of its epochs: as recorded, and from end to end."""
    ends = Ends()
    result = train(world, part, model=model, technique=technique, epochs=epochs, repeat=repeat, stop=ends)
    recorded = [1e6 * epoch.seconds for epoch in result.epochs[SKIPPED:]]
    return result, (recorded, (1e6 * np.diff(ends.times)[SKIPPED - 1 :]).tolist())


def differing(technique: str, plain: Result, repeated: Result) -> int:
    """Epochs whose numbers differ."""
    curves = [
        np.array([list(epoch.model_dump(exclude={"seconds"}, exclude_none=True).values()) for epoch in each.epochs])
        for each in (plain, repeated)
    ]
    if all_techniques()[technique].deterministic:
        return int((curves[0] != curves[1]).any(axis=1).sum())
    return int((~np.isclose(curves[0][:10, 1], curves[1][:10, 1], rtol=1e-3)).sum())


def case(world: World, part: PeLayout, model: str, technique: str, epochs: int, rounds: int) -> dict[str, Any]:
    """Both ways of one training."""
    times: dict[bool, tuple[list[float], list[float]]] = {False: ([], []), True: ([], [])}
    wrong = 0
    for _ in range(rounds):
        results = {}
        for repeat, kept in times.items():
            results[repeat], found_now = timed(world, part, model, technique, epochs, repeat)
            for all_of_them, these in zip(kept, found_now, strict=True):
                all_of_them.extend(these)
        wrong = max(wrong, differing(technique, results[False], results[True]))
    found: dict[str, Any] = {"differing_epochs": wrong, "loss": results[True].record.loss}
    for repeat, (recorded, whole) in times.items():
        quartiles = np.quantile(recorded, [0.25, 0.5, 0.75]).round(1).tolist()
        found["graphs" if repeat else "steps"] = {
            **dict(zip(("q1", "epoch", "q3"), quartiles, strict=True)), "whole": round(float(np.median(whole)), 1),
        }  # fmt: skip
    return found


@click.command()
@OUT
@click.option("--datasets", default="cora,citeseer,pubmed", show_default=True, help="separated by commas")
@click.option("--models", default="gcn,gat,sage,gin,appnp,sgc", show_default=True, help="likewise")
@click.option("--technique", help="aggregation technique; default: local on one PE, halo on several")
@click.option("--epochs", default=400, show_default=True, type=click.IntRange(SKIPPED + 2), help="of a run")
@click.option("--rounds", default=2, show_default=True, help="runs of each way")
def main(out: Path, datasets: str, models: str, technique: str | None, epochs: int, rounds: int) -> None:
    """Check and time, and print a row a case."""
    pes = job_size() or 1
    named = technique or ("local" if pes == 1 else "halo")

    def program(world: World) -> int:
        results = Results(out / "gpu_epochs.jsonl", world.rank)
        results.say(head("data set", "model", "step by step, us", "graphs, us", "ratio", "whole, us", "differ"))
        for dataset in datasets.split(","):
            path = out / f"{dataset}-{pes}"
            together(world, lambda: make_layout(dataset, path, pes) if world.rank == 0 else None)  # noqa: B023
            part = layout.load(path / "layout", world.rank)
            for model in models.split(","):
                found = case(world, part, model, named, epochs, rounds)
                results.failed += bool(found["differing_epochs"])
                results.record(dataset=dataset, model=model, technique=named, pes=pes, gpu=world.gpu, **found)
                steps, graphs, whole = found["steps"]["epoch"], found["graphs"]["epoch"], found["graphs"]["whole"]
                times = f"{steps:.0f}", f"{graphs:.0f}", f"{steps / graphs:.1f}", f"{whole:.0f}"
                results.say(row(dataset, model, *times, found["differing_epochs"]))
        return results.failed

    on_gpus(program)


if __name__ == "__main__":
    main()
