"""A training step of every model on GPUs beside PyTorch Geometric: python benchmarks/gpu_models.py OUT, or on P ranks.

Two layers of 16 columns, no dropout, random features and labels of the real graphs' widths; a step is forward, backward
and Adam. On one GPU the same formula runs in PyTorch Geometric on ``edge_index``, from the same weights, after the
losses of both first steps have been compared (relative tolerance 1e-4). Times are medians of 20 steps after 5, of the
slowest PE, by CUDA events. Memory is what a GPU has less of free after the steps than before (ours: all that was taken)
and the most that torch had allocated at a time (PyTorch Geometric). One more step notes how long each operation of ours
takes, and on GCN's the four products alone are timed. With ``--cusparse`` GCN is timed on one GPU as a user of torch
writes it, with torch.sparse.mm, which takes cuSPARSE's default algorithm, and with the fastest of its algorithms, both
products at 16 columns. OUT gets gpu_models-pP.jsonl.
"""

from __future__ import annotations

import gc
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cupy as cp
import numpy as np
from common import ALONE, HIDDEN, OUT, SCALE, SETTINGS, Results, head, row, torch_steps
from cusparse import Products
from gpu_graphs import WIDTHS, generated, on_gpus, with_node_data

from mgg.backend import World
from mgg.graph.csr import Csr
from mgg.layout import PeLayout
from mgg.model import Sizes, settings_of
from mgg.train import Trainer

GIB = 2**30
TOLERANCE = 1e-4
WARMUP, STEPS = 5, 20


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

    def __init__(self, world: World, out: Path, technique: str | None, attention: str, dropout: float) -> None:
        super().__init__(out / f"gpu_models-p{world.size}.jsonl", world.rank)
        self.world, self.technique = world, technique or ("local" if world.size == 1 else "halo")
        self.attention, self.dropout = attention, dropout
        self.rows: list[dict[str, Any]] = []

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

    def ours(self, name: str, model: str, part: PeLayout) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Our step, and the weights that it began with."""
        cp.get_default_memory_pool().free_all_blocks()
        free = cp.cuda.runtime.memGetInfo()[0]
        values = (SETTINGS | ALONE)[model] | {"dropout": self.dropout}
        values |= {"attention": self.attention} if model == "gat" else {}
        settings = settings_of(model, values)
        trainer = Trainer(
            self.world, part, model=model, technique=self.technique, options={}, settings=settings, seed=0
        )  # fmt: skip
        weights = {key: self.world.download(value).copy() for key, value in trainer.weights.items()}
        epochs = iter(range(1, 1000))
        losses, step = self.timed(lambda: trainer.step(next(epochs)))
        taken = max(self.world.gather(free - cp.cuda.runtime.memGetInfo()[0]))
        predicted = max(self.world.gather(trainer.need.total))
        found = {"step": step, "bytes": taken, "predicted": predicted, "losses": losses}
        if model == "gcn":
            plans = (trainer._graph.plan, trainer._graph.transposed) * 2
            found["products"] = self.timed(lambda: [plan(HIDDEN) for plan in plans])[1]
            del plans
        found["operations"] = self.operations(trainer, next(epochs))
        trainer.close()
        cp.get_default_memory_pool().free_all_blocks()
        return found, weights

    def theirs(self, model: str, csr: Csr, part: PeLayout, weights: dict[str, np.ndarray]) -> dict[str, Any]:
        """The step of PyTorch Geometric."""
        import torch
        from torch.nn import functional

        from mgg.interop.pyg_models import twin_of

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        rows = torch.as_tensor(np.diff(csr.indptr), device="cuda")
        targets = torch.repeat_interleave(torch.arange(csr.rows, device="cuda"), rows)
        arcs = torch.stack([torch.as_tensor(csr.indices, device="cuda").long(), targets])
        del rows, targets
        x, label = self.node_data(part)
        sizes = Sizes(x.shape[1], part.manifest.classes)
        net = twin_of(model, settings_of(model, SETTINGS[model]), sizes, weights, "cuda")
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

        def step() -> Any:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x, arcs), label)
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses, ms = torch_steps(step, WARMUP, STEPS)
        return {"step": ms, "bytes": torch.cuda.max_memory_allocated(), "losses": [float(each) for each in losses]}

    @staticmethod
    def node_data(part: PeLayout) -> tuple[Any, Any]:
        """Features, and labels of the training nodes, -100 on the others, for torch."""
        import torch

        label = np.where(part.splits == 1, part.labels, -100).astype(np.int64)
        return torch.as_tensor(np.array(part.features), device="cuda"), torch.as_tensor(label, device="cuda")

    def cusparse(self, csr: Csr, part: PeLayout) -> dict[str, Any]:
        """GCN as a user of torch writes it, and with the fastest products that cuSPARSE has."""
        import torch
        from torch.nn import functional

        torch.cuda.empty_cache()
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
        x, label = self.node_data(part)
        classes = part.manifest.classes
        shapes = ((x.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,))
        w0, b0, w1, b1 = weights = [torch.randn(shape, device="cuda").mul_(0.1).requires_grad_() for shape in shapes]
        optimizer = torch.optim.Adam(weights, lr=0.01)

        matrix = Products(indptr, columns, values, n)
        algorithms, run = matrix.fastest(HIDDEN, lambda action: self.timed(action, 2, 5)[1])

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
        found: dict[str, Any] = {"algorithms": algorithms, "difference": difference, "version": torch.__version__}
        for name, model in (("step", plain), ("fastest", fastest)):

            def step(model: Callable[[], Any] = model) -> None:
                optimizer.zero_grad()
                functional.cross_entropy(model(), label).backward()
                optimizer.step()

            found[name] = torch_steps(step, WARMUP, STEPS)[1]
        best = min(algorithms, key=lambda each: (np.isnan(algorithms[each]), algorithms[each]))
        self.say(
            f"torch {torch.__version__}: torch.sparse.mm {found['step']:.2f} ms, cuSPARSE's {best}"
            f" {found['fastest']:.2f} ms; outputs differ by {difference:.1g}"
        )
        return found

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

    def model(self, name: str, model: str, csr: Csr, part: PeLayout, with_pyg: bool, with_cusparse: bool) -> None:
        """A row of the table."""
        done = self.attempt(f"{name}, {model}", lambda: self.ours(name, model, part))
        if done is None:
            return
        ours, weights = done
        found = {"graph": name, "model": model, "pes": self.world.size, "technique": self.technique}
        found |= {"attention": self.attention, "dropout": self.dropout, "ours": ours}
        if with_cusparse:
            found["cusparse"] = self.attempt(f"{name}, {model} with cuSPARSE", lambda: self.cusparse(csr, part))
            release()
        if with_pyg:
            found["pyg"] = theirs = self.attempt(
                f"{name}, {model} in PyTorch Geometric", lambda: self.theirs(model, csr, part, weights)
            )
            release()
            if theirs:
                error = abs(ours["losses"][0] / theirs["losses"][0] - 1)
                self.failed += not error <= TOLERANCE
                self.say(f"{name}, {model}: first losses differ by {error:.2g}" + " FAILED" * (not error <= TOLERANCE))
        self.rows.append(found)
        self.record(**found)
        self.say(line_of(found))


def release() -> None:
    """Give back what torch and CuPy hold, after an error, too."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    cp.get_default_memory_pool().free_all_blocks()


def line_of(found: dict[str, Any]) -> str:
    """A line of the table: milliseconds and GiB, ours and theirs, and the ratios."""
    ours, theirs = found["ours"], found.get("pyg")
    cells = [found["graph"], found["model"], f"{ours['step']:.2f}", f"{ours['bytes'] / GIB:.2f}"]
    if not theirs:
        return row(*cells, *"----")
    times = theirs["step"], theirs["bytes"] / GIB, theirs["step"] / ours["step"], theirs["bytes"] / ours["bytes"]
    return row(*cells, *(f"{each:.1f}" for each in times))


@click.command()
@OUT
@click.option("--graphs", default=",".join(WIDTHS), show_default=True, help="separated by commas")
@click.option("--models", default=",".join(SETTINGS), show_default=True, help="likewise")
@SCALE
@click.option("--technique", help="aggregation technique; default: local on one PE, halo on several")
@click.option(
    "--attention", default="rows", show_default=True, type=click.Choice(["rows", "product"]), help="setting of gat"
)
@click.option("--pyg/--no-pyg", "with_pyg", default=True, show_default=True, help="time PyTorch Geometric, on one PE")
@click.option("--cusparse", "with_cusparse", is_flag=True, help="time GCN in torch over cuSPARSE, on one PE")
@click.option("--dropout", default=0.0, show_default=True, help="of layers; otherwise than 0: of ours alone")
def main(
    out: Path, graphs: str, models: str, scale: float, technique: str | None, attention: str, with_pyg: bool,
    with_cusparse: bool, dropout: float,
) -> None:  # fmt: skip
    """Check and time, and print a table."""

    def program(world: World) -> int:
        bench = Bench(world, out, technique, attention, dropout)
        bench.say(f"{world.gpu}, {world.size} PE, CuPy {cp.__version__}, scale {scale}")
        beside = world.size == 1 and not dropout
        for name in graphs.split(","):
            csr = generated(name, scale)
            part = with_node_data(world, csr, name)
            bench.say(f"{name}: {csr.rows:,} nodes, {csr.arcs:,} arcs after {bench.seconds}")
            for model in models.split(","):
                twin, torch = with_pyg and model in SETTINGS, with_cusparse and model == "gcn"
                bench.model(name, model, csr, part, beside and twin, beside and torch)
        bench.say(
            head("graph", "model", "ms", "GiB", "PyTorch Geometric, ms", "GiB", "times as fast", "times as much memory")
        )
        for found in bench.rows:
            bench.say(line_of(found))
        bench.end()
        return bench.failed

    on_gpus(program)


if __name__ == "__main__":
    main()
