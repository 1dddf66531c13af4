"""How far loss and gradients on several PEs are from those on one: python benchmarks/agreement.py OUT --seeds 6.

Every model that suits the data set, with its own settings, from identical weights with the dropout of the first epoch,
technique halo on simulated PEs. A gradient's difference is relative to its own largest entry; the largest of all is
printed with its name. The gradient by one number (GIN's epsilon) is a sum over all nodes that nearly cancels, so the
largest difference relative to the largest entry of all gradients is there, too. Then how many of the numbers before a
ReLU have another sign than on one PE: such a number is within rounding of 0, and its gradient counts on one side alone.
Data comes from $MGG_DATA_DIR, the cache or the network. OUT gets agreement.jsonl.
"""

from __future__ import annotations

import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
from common import OUT, Results, head, make_layout, row

from mgg import layout
from mgg.backend import launch
from mgg.layout import PeLayout
from mgg.model import models
from mgg.model.layers import Relu
from mgg.train import loss_and_gradients

#: Models of arcs with types.
TYPED = ("rgcn", "rgat", "compgcn")
TOLERANCE = 1e-5


class Computed:
    """Loss and gradients on the PEs of a layout, and what each ReLU let through, by call and in the order of nodes."""

    def __init__(self, parts: list[PeLayout], model: str, seed: int) -> None:
        seen: dict[int, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        forward = Relu.forward

        def watched(module: Relu, x: Any, run: Any) -> Any:
            y = forward(module, x, run)
            seen[threading.get_ident()].append((run.graph.node_ids, y > 0))
            return y

        options: dict[str, Any] = {"model": model, "technique": "halo", "seed": seed}
        with mock.patch.object(Relu, "forward", watched):
            found = launch(
                "simulated", lambda: len(parts), lambda world: loss_and_gradients(world, parts[world.rank], **options)
            )
        self.loss, self.gradients = found[0]
        self.positive = [_by_node(call) for call in zip(*seen.values(), strict=True)]

    def beside(self, one: Computed) -> dict[str, Any]:
        """The differences from the same on one PE."""
        apart = {name: float(np.abs(self.gradients[name] - array).max()) for name, array in one.gradients.items()}
        largest = {name: float(np.abs(array).max()) for name, array in one.gradients.items()}
        by_name = {name: each / (largest[name] or 1) for name, each in apart.items()}
        worst = max(by_name, key=by_name.__getitem__)
        signs = sum(int((mine != other).sum()) for mine, other in zip(self.positive, one.positive, strict=True))
        loss = abs(self.loss - one.loss) / abs(one.loss)
        return {"loss": loss, "gradient": by_name[worst], "of": worst, "signs": signs, "gradients": by_name} | {
            "all": max(apart.values()) / max(largest.values())
        }


def _by_node(call: tuple[tuple[np.ndarray, np.ndarray], ...]) -> np.ndarray:
    ids, positive = (np.concatenate(parts) for parts in zip(*call, strict=True))
    return positive[np.argsort(ids)]


@click.command()
@OUT
@click.option("--datasets", default="cora,digits,aifb", show_default=True, help="separated by commas")
@click.option("--seeds", default=6, show_default=True, help="seeds 0 to N - 1")
@click.option("--pes", default="2,4", show_default=True, help="numbers of PEs, separated by commas")
def main(out: Path, datasets: str, seeds: int, pes: str) -> None:
    """Compute and print a table."""
    results = Results(out / "agreement.jsonl")
    results.say(head("data", "model", "seed", "PEs", "loss", "gradient", "of", "to all", "signs"))
    with tempfile.TemporaryDirectory() as folder:
        for dataset in datasets.split(","):
            sizes = [1, *map(int, pes.split(","))]
            made = {size: make_layout(dataset, Path(folder) / f"{dataset}{size}", size) for size in sizes}
            parts = {size: [layout.load(made[size], rank) for rank in range(size)] for size in sizes}
            typed = parts[1][0].forward.local.types is not None
            for model in (model for model in models() if (model in TYPED) == typed):
                for seed in range(seeds):
                    one = Computed(parts[1], model, seed)
                    for size in sizes[1:]:
                        line = {"data": dataset, "model": model, "seed": seed, "pes": size}
                        line |= Computed(parts[size], model, seed).beside(one)
                        results.record(**line)
                        loss, gradient, whole = (f"{line[key]:.1e}" for key in ("loss", "gradient", "all"))
                        signs = f"{line['signs']}" + " above 1e-5" * (line["gradient"] > TOLERANCE)
                        results.say(row(dataset, model, seed, size, loss, gradient, line["of"], whole, signs))


if __name__ == "__main__":
    main()
