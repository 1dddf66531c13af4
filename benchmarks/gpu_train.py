"""An epoch of GCN on GPUs beside torch + cuSPARSE: python benchmarks/gpu_train.py OUT, or below mpiexec -n P.

For each graph, with random features and labels of the real graph's widths:
check   loss and gradients of the first step on a small graph of its kind, against NumPy and SciPy in float64
train   a step (forward, backward, Adam) without and with dropout, the four products alone, what every other operation
        takes, and on one GPU the same two layers in torch: with torch.sparse.mm, which takes cuSPARSE's default
        algorithm, and with the fastest of cuSPARSE's algorithms, the second product before the weights, as ours is

Times are medians of 20 steps after 5, of the slowest PE, by CUDA events; a step ends when the weights have changed. OUT
gets gpu_train.jsonl, one line a measurement. A part that fails is reported, and the rest goes on.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import cupy as cp
import numpy as np
from common import Results, torch_steps
from cusparse import Products
from gpu_graphs import generated, pe_layout
from scipy import sparse
from scipy.special import log_softmax

from mgg.backend import World, job_size, nvshmem
from mgg.graph.csr import Csr
from mgg.layout import PeLayout
from mgg.model import build, settings_of
from mgg.model.initialization import initial_weights
from mgg.train import Trainer, loss_and_gradients

#: Columns of the features, classes, and share of the nodes that are trained on.
WIDTHS = {"reddit-like": (602, 41, 0.66), "products-like": (100, 47, 0.08), "orkut-like": (128, 32, 0.5)}
#: torch 2.11 + cuSPARSE on an H200, two layers, hidden 16, no dropout, milliseconds an epoch.
PUBLISHED = {"reddit-like": 23.2, "products-like": 35.4, "orkut-like": 60.6}
TOLERANCE = 1e-4
HIDDEN = 16
WARMUP, STEPS = 5, 20
PATIENCE = 120.0  # seconds that a PE waits for the others


def with_node_data(world: World, csr: Csr, name: str) -> PeLayout:
    """What this PE holds of a graph with random features and labels, made in memory (collective)."""
    part = pe_layout(world, csr, name)
    features, classes, trained = WIDTHS[name]
    rng = np.random.default_rng(world.rank)
    splits = rng.integers(2, 4, part.rows).astype(np.uint8)
    splits[rng.random(part.rows) < trained] = 1
    return replace(
        part,
        manifest=part.manifest.model_copy(update={"features": features, "classes": classes, "splits": True}),
        features=rng.random((part.rows, features), dtype=np.float32) - np.float32(0.5),
        labels=rng.integers(0, classes, part.rows).astype(np.int32),
        splits=splits,
    )


#: Share of the largest number before ReLU below which float32 cannot tell its sign.
SIGNLESS = 1e-6


def reference(
    csr: Csr,
    x: np.ndarray,
    labels: np.ndarray,
    splits: np.ndarray,
    weights: dict[str, np.ndarray],
    found: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Loss and gradients of GCN without dropout, in float64.

    Where float32 cannot tell the sign before ReLU, the gradient is the one that is nearer to ``found``: on a
    graph of 60,000 nodes a few of a million numbers are that small, and one of them moves a gradient by up to 0.4 %.
    """
    with_loops = csr.to_scipy(np.float64) + sparse.eye_array(csr.rows)
    scale = sparse.diags_array(1 / np.sqrt(np.asarray(with_loops.sum(axis=1)).ravel()))
    p = scale @ with_loops @ scale
    w0, b0, w1, b1 = (weights[name].astype(np.float64) for name in _NAMES)
    before = p @ (x @ w0) + b0
    hidden = np.maximum(before, 0)
    logs = log_softmax((p @ hidden) @ w1 + b1, axis=1)
    chosen = np.flatnonzero(splits == 1)
    gradient = np.zeros_like(logs)
    gradient[chosen] = np.exp(logs[chosen])
    gradient[chosen, labels[chosen]] -= 1
    gradient /= len(chosen)
    back = p.T @ gradient
    by_before = (back @ w1.T) * (before > 0)
    by_w0, by_b0 = x.T @ (p.T @ by_before), by_before.sum(axis=0)
    for node, unit in np.argwhere(np.abs(before) < SIGNLESS * np.abs(before).max()):
        other = (back[node] @ w1[unit]) * (-1 if before[node, unit] > 0 else 1)
        moved = by_w0[:, unit] + other * (p[[node]] @ x)[0]
        at = found["layer0.weight"][:, unit]
        if np.linalg.norm(moved - at) < np.linalg.norm(by_w0[:, unit] - at):
            by_w0[:, unit], by_b0[unit] = moved, by_b0[unit] + other
    expected = (by_w0, by_b0, hidden.T @ back, gradient.sum(axis=0))
    return {"loss": -logs[chosen, labels[chosen]].mean(), **dict(zip(_NAMES, expected, strict=True))}


_NAMES = ("layer0.weight", "layer0.bias", "layer1.weight", "layer1.bias")


class Traced:
    """A table of operations that notes how long each takes on the GPU."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = arrays
        self._spans: list[tuple[str, cp.cuda.Event, cp.cuda.Event]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._arrays, name)

        def timed(*args: Any, **named: Any) -> Any:
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record(cp.cuda.get_current_stream())
            result = operation(*args, **named)
            stop.record(cp.cuda.get_current_stream())
            self._spans.append((name, start, stop))
            return result

        return timed

    def milliseconds(self) -> dict[str, float]:
        """By operation, the largest first."""
        cp.cuda.get_current_stream().synchronize()
        sums: dict[str, float] = defaultdict(float)
        for name, start, stop in self._spans:
            sums[name] += cp.cuda.get_elapsed_time(start, stop)
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


class Bench(Results):
    """A run of one PE."""

    def __init__(self, world: World, path: Path, technique: str | None) -> None:
        super().__init__(path, world.rank)
        self.world, self.technique = world, technique or ("local" if world.size == 1 else "halo")

    def attempt(self, what: str, action: Callable[[], Any]) -> Any:
        """Run a part; one that fails is reported. Several PEs would wait for one that failed: there it ends the run."""
        try:
            return action()
        except Exception as error:
            self.failed += 1
            click.echo(f"FAILED {what}: {type(error).__name__} {' '.join(str(error).split())[:300]}")
            traceback.print_exc()
            if self.world.size > 1:
                raise
            return None
        finally:
            cp.get_default_memory_pool().free_all_blocks()

    def check(self, name: str, scale: float) -> None:
        """The first step of a small graph."""
        csr, world = generated(name, scale), self.world
        part = with_node_data(world, csr, name)
        options = {"model": "gcn", "technique": self.technique, "settings": {"dropout": 0.0}}
        loss, found = loss_and_gradients(world, part, **options)
        x, labels, splits = (
            np.concatenate(parts)
            for parts in zip(*world.gather((part.features, part.labels, part.splits)), strict=True)
        )
        chain = build("gcn", settings_of("gcn"), x.shape[1], WIDTHS[name][1])
        weights = initial_weights(chain.parameters, 0)
        expected = reference(csr, x.astype(np.float64), labels, splits, weights, found)
        errors = {
            key: float(np.abs(value - {"loss": loss, **found}[key]).max() / np.abs(value).max())
            for key, value in expected.items()
        }
        worst = max(errors, key=errors.__getitem__)
        verdict = "ok" if errors[worst] <= TOLERANCE else "FAILED"
        self.failed += verdict != "ok"
        self.say(f"{name:<14} check {verdict}: {csr.rows:,} nodes, largest error {errors[worst]:.2g} ({worst})")
        self.record(part="check", graph=name, pes=world.size, errors=errors)

    def timed(self, action: Callable[[], Any], warmup: int = WARMUP, steps: int = STEPS) -> tuple[list[Any], float]:
        """What each call returned, and the median milliseconds of the slowest PE."""
        found, times = [], []
        for _ in range(warmup + steps):
            self.world.barrier()
            clock = self.world.clock()
            clock.start()
            found.append(action())
            times.append(1e3 * max(self.world.gather(clock.stop())))
        return found, float(np.median(times[warmup:]))

    def operations(self, trainer: Trainer, epoch: int) -> dict[str, float]:
        """Milliseconds of each operation but the products in one more step."""
        trainer._graph.arrays = traced = Traced(trainer._graph.arrays)
        trainer.step(epoch)
        return traced.milliseconds()

    def train(self, name: str, part: PeLayout) -> None:
        """Steps, products and the other operations."""
        steps = {rate: self.steps(name, part, rate) for rate in (0.0, 0.5)}
        ratio = PUBLISHED[name] / steps[0.0]
        self.say(
            f"{name:<14} step {steps[0.0]:.2f} ms, with dropout {steps[0.5]:.2f} ms;"
            f" torch + cuSPARSE at full size took {PUBLISHED[name]} ms: {ratio:.2f} times"
        )

    def steps(self, name: str, part: PeLayout, dropout: float) -> float:
        settings = settings_of("gcn", {"dropout": dropout, "hidden": HIDDEN})
        started = time.perf_counter()
        trainer = Trainer(
            self.world, part, model="gcn", technique=self.technique, options={}, settings=settings, seed=0
        )  # fmt: skip
        prepared = time.perf_counter() - started
        epochs = iter(range(1, 1000))
        losses, step = self.timed(lambda: trainer.step(next(epochs)))
        graph = trainer._graph

        def four() -> None:
            for plan in (graph.plan, graph.transposed) * 2:
                plan(HIDDEN)

        _, products = self.timed(four)
        others = self.operations(trainer, next(epochs))
        trainer.close()
        shown = ", ".join(f"{operation} {ms:.3f}" for operation, ms in others.items())
        self.say(f"{name:<14} dropout {dropout}: step {step:.3f} ms, four products {products:.3f} ms; {shown}")
        self.record(
            part="train", graph=name, pes=self.world.size, technique=self.technique, dropout=dropout, step=step,
            products=products, operations=others, losses=losses, seconds_to_prepare=prepared,
        )  # fmt: skip
        return step

    def torch(self, name: str, csr: Csr, part: PeLayout) -> None:
        """The same model as a user of torch writes it, and with the fastest products that cuSPARSE has."""
        import torch
        from torch.nn import functional

        torch.cuda.empty_cache()
        features, classes, _ = WIDTHS[name]
        n = csr.rows
        rows = cp.searchsorted(cp.asarray(csr.indptr), cp.arange(csr.arcs), side="right") - 1
        keys = cp.concatenate([rows * n + cp.asarray(csr.indices), cp.arange(n, dtype=cp.int64) * (n + 1)])
        keys.sort()
        rows, columns = keys // n, (keys % n).astype(cp.int32)
        scale = 1 / cp.sqrt(cp.asarray(np.diff(csr.indptr) + 1, cp.float32))
        values = scale[rows] * scale[columns]
        indptr = cp.searchsorted(rows, cp.arange(n + 1)).astype(cp.int32)
        cp.cuda.get_current_stream().synchronize()  # torch has a stream of its own
        adjacency = torch.sparse_csr_tensor(
            torch.as_tensor(indptr, device="cuda"), torch.as_tensor(columns, device="cuda"),
            torch.as_tensor(values, device="cuda"), size=(n, n),
        )  # fmt: skip
        x = torch.as_tensor(part.features, device="cuda")
        target = np.where(part.splits == 1, part.labels, -100).astype(np.int64)
        target = torch.as_tensor(target, device="cuda")
        shapes = ((features, HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,))
        w0, b0, w1, b1 = weights = [torch.randn(shape, device="cuda").mul_(0.1).requires_grad_() for shape in shapes]
        optimizer = torch.optim.Adam(weights, lr=0.01)

        matrix = Products(indptr, columns, values, n)
        algorithms, run = matrix.fastest(HIDDEN, self.milliseconds)

        class Fastest(torch.autograd.Function):
            """A B of HIDDEN columns; A is symmetric."""

            @staticmethod
            def forward(_: Any, b: Any) -> Any:
                b, c = b.contiguous(), torch.empty_like(b)
                run(b.data_ptr(), c.data_ptr(), torch.cuda.current_stream().cuda_stream)
                return c

            @staticmethod
            def backward(_: Any, gradient: Any) -> Any:
                return Fastest.forward(_, gradient)

        def plain() -> Any:
            hidden = torch.relu(torch.sparse.mm(adjacency, x @ w0) + b0)
            return torch.sparse.mm(adjacency, hidden @ w1) + b1

        def fastest() -> Any:
            return Fastest.apply(torch.relu(Fastest.apply(x @ w0) + b0)) @ w1 + b1

        with torch.no_grad():
            difference = float((plain() - fastest()).abs().max() / plain().abs().max())
        self.failed += not difference <= TOLERANCE
        medians = {}
        for label, model in (("torch", plain), ("fastest", fastest)):
            medians[label] = self.torch_step(lambda model=model: functional.cross_entropy(model(), target), optimizer)
        best = min(algorithms, key=lambda name: (np.isnan(algorithms[name]), algorithms[name]))
        self.say(
            f"{name:<14} torch {torch.__version__}: torch.sparse.mm {medians['torch']:.2f} ms, cuSPARSE's {best}"
            f" {medians['fastest']:.2f} ms; outputs differ by {difference:.1g}"
        )
        self.record(
            part="torch", graph=name, step=medians["torch"], fastest=medians["fastest"], algorithms=algorithms,
            difference=difference, version=torch.__version__,
        )  # fmt: skip

    def torch_step(self, loss: Callable[[], Any], optimizer: Any) -> float:
        """Median milliseconds of a step of torch."""

        def step() -> None:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

        return torch_steps(step, WARMUP, STEPS)[1]

    def milliseconds(self, action: Callable[[], object]) -> float:
        """Median milliseconds of ``action`` on this PE."""
        return self.timed(action, 2, 5)[1]

    def run(self, graphs: list[str], scale: float, check_scale: float, with_torch: bool) -> None:
        for name in graphs:
            self.attempt(f"{name}, check", lambda name=name: self.check(name, check_scale))
            csr = self.attempt(f"{name}, graph", lambda name=name: generated(name, scale))
            part = csr and self.attempt(
                f"{name}, layout", lambda name=name, csr=csr: with_node_data(self.world, csr, name)
            )
            if part is None:
                continue
            self.say(f"{name:<14} {csr.rows:,} nodes, {csr.arcs:,} arcs after {self.seconds}")
            self.attempt(f"{name}, train", lambda name=name, part=part: self.train(name, part))
            if with_torch and self.world.size == 1:
                self.attempt(f"{name}, torch", lambda name=name, csr=csr, part=part: self.torch(name, csr, part))
        self.table(graphs)
        self.end()

    def table(self, graphs: list[str]) -> None:
        """What was measured, a row a graph."""
        if self.world.rank:
            return
        lines = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        steps = {(line["graph"], line["dropout"]): line for line in lines if line["part"] == "train"}
        theirs = {line["graph"]: line for line in lines if line["part"] == "torch"}
        click.echo(
            "| graph | step, ms | of it products | with dropout 0.5 | torch.sparse.mm here | ratio | cuSPARSE's best"
            " | ratio | ratio to the page |"
        )
        click.echo("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for name in graphs:
            if (name, 0.0) not in steps or (name, 0.5) not in steps:
                continue
            plain, dropped = steps[name, 0.0], steps[name, 0.5]
            here = [theirs[name][each] for each in ("step", "fastest")] if name in theirs else []
            against = " | ".join(f"{each:.1f} | {each / plain['step']:.2f}" for each in here) or "- | - | - | -"
            click.echo(
                f"| {name} | {plain['step']:.2f} | {plain['products']:.2f} | {dropped['step']:.2f} | {against}"
                f" | {PUBLISHED[name] / plain['step']:.2f} |"
            )


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graphs", default=",".join(WIDTHS), show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
@click.option("--check-scale", type=float, default=0.02, show_default=True, help="the same for the check")
@click.option("--technique", help="aggregation technique; default: local on one PE, halo on several")
@click.option("--torch/--no-torch", "with_torch", default=True, show_default=True, help="time torch, on one PE")
def main(out: Path, graphs: str, scale: float, check_scale: float, technique: str | None, with_torch: bool) -> None:
    """Check and time, and print a table."""
    pes = job_size() or 1

    def program(world: World) -> int:
        bench = Bench(world, out / "gpu_train.jsonl", technique)
        bench.say(f"{world.gpu}, {world.size} PE, CuPy {cp.__version__}, technique {bench.technique}")
        bench.record(part="machine", device=world.gpu, pes=world.size, scale=scale)
        bench.run(graphs.split(","), scale, check_scale, with_torch)
        return bench.failed

    sys.exit(4 if nvshmem.run(lambda: pes, program, timeout=PATIENCE)[0] else 0)


if __name__ == "__main__":
    main()
