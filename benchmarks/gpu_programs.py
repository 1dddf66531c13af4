"""Layers of PyTorch Geometric on a GPU, and the same modules as vertex programs: python benchmarks/gpu_programs.py OUT.

Two layers of 16 columns on a generated graph. ``interop.use`` takes a copy of the module with its weights; outputs and
gradients of both are compared (1e-4 of the largest entry) before a step, forward, backward and Adam in PyTorch, is
timed: medians of 10 after 5, by CUDA events. A module that does not fit is reported. ``torch.compile`` of the module
is timed too, as PyTorch compiles it for the shapes of this graph. OUT gets gpu_programs.json and the graph's folders.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch_geometric.nn as layers
from common import HIDDEN, OUT, laid_out, torch_steps
from torch.nn.functional import cross_entropy, relu

from mgg import interop
from mgg.graph.generate import generate

WARMUP, STEPS, TOLERANCE = 5, 10, 1e-4


class Two(torch.nn.Module):
    """Two layers with a ReLU between them."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor, arcs: Any) -> torch.Tensor:
        """Of nodes [rows, columns]."""
        return self.second(relu(self.first(x, arcs)), arcs)


def _pna(inputs: int, outputs: int, degrees: torch.Tensor) -> torch.nn.Module:
    return layers.PNAConv(inputs, outputs, ["mean", "max", "min", "std"], ["identity", "amplification"], degrees)


MODULES: dict[str, Callable[[int, int, torch.Tensor], torch.nn.Module]] = {
    "GATv2Conv": lambda i, o, _: Two(layers.GATv2Conv(i, HIDDEN), layers.GATv2Conv(HIDDEN, o)),
    "GATv2Conv, 8 heads": lambda i, o, _: Two(layers.GATv2Conv(i, 8, heads=8), layers.GATv2Conv(64, o)),
    "GATv2Conv, 64 columns": lambda i, o, _: Two(layers.GATv2Conv(i, 64), layers.GATv2Conv(64, o)),
    "TransformerConv": lambda i, o, _: Two(layers.TransformerConv(i, HIDDEN), layers.TransformerConv(HIDDEN, o)),
    "ResGatedGraphConv": lambda i, o, _: Two(layers.ResGatedGraphConv(i, HIDDEN), layers.ResGatedGraphConv(HIDDEN, o)),
    "PNAConv": lambda i, o, degrees: Two(_pna(i, HIDDEN, degrees), _pna(HIDDEN, o, degrees)),
}


def _timed(net: torch.nn.Module, x: torch.Tensor, arcs: Any, labels: torch.Tensor) -> tuple[float, int]:
    """Milliseconds of a step, and the most bytes that PyTorch held."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(net(x, arcs), labels).backward()
        optimizer.step()

    return torch_steps(step, WARMUP, STEPS)[1], torch.cuda.max_memory_allocated()


def _gradients(net: torch.nn.Module, x: torch.Tensor, arcs: Any, labels: torch.Tensor) -> list[torch.Tensor]:
    net.zero_grad()
    output = net(x, arcs)
    cross_entropy(output, labels).backward()
    return [output.detach(), *(parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None)]


def _error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    largest = max(float(y.abs().max()) for y in expected[1:])
    return max(
        float((x - y).abs().max()) / (float(y.abs().max()) if n == 0 else largest)
        for n, (x, y) in enumerate(zip(found, expected, strict=True))
    )


def _compiled(
    plain: torch.nn.Module, expected: list[torch.Tensor], x: torch.Tensor, arcs: Any, labels: torch.Tensor
) -> dict[str, Any]:
    """Columns of ``torch.compile`` of the module, or why there are none: what it compiles differs between versions."""
    net, row = torch.compile(plain, dynamic=False), dict[str, Any]()
    try:
        row["compiled_error"] = _error(_gradients(net, x, arcs, labels), expected)
        row["compiled_ms"], row["compiled_bytes"] = _timed(net, x, arcs, labels)
    except RuntimeError as error:  # out of memory too
        row["compiled"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    torch._dynamo.reset()
    return row


def _row(graph: interop.Graph, name: str, arcs: torch.Tensor, degrees: torch.Tensor, compiled: bool) -> dict[str, Any]:
    x, labels, row = graph.x, graph.y, {"module": name, "nodes": len(graph.x), "arcs": arcs.shape[1]}
    torch.manual_seed(0)
    plain = MODULES[name](x.shape[1], int(labels.max()) + 1, degrees).to(x.device)
    ours = interop.use(copy.deepcopy(plain), graph)
    expected: list[torch.Tensor] = []
    try:
        expected = _gradients(plain, x, arcs, labels)
        row["error"] = _error(_gradients(ours, x, graph, labels), expected)
        if compiled:
            row |= _compiled(copy.deepcopy(plain), expected, x, arcs, labels)
        row["pyg_ms"], row["pyg_bytes"] = _timed(plain, x, arcs, labels)
    except torch.cuda.OutOfMemoryError as error:
        row["pyg"] = str(error).split(".")[0]
    del plain
    expected = []
    gc.collect()
    torch.cuda.empty_cache()
    row["mgg_ms"], row["torch_bytes_of_mgg"] = _timed(ours, x, graph, labels)
    return row


@click.command()
@OUT
@click.option("--generator", default="products-like", show_default=True)
@click.option("--scale", default=0.1, show_default=True, help="size as a share of the full graph")
@click.option("--modules", default="", help="separated by semicolons; default: all")
@click.option("--compiled/--not-compiled", default=True, help="whether torch.compile is timed", show_default=True)
def main(out: Path, generator: str, scale: float, modules: str, compiled: bool) -> None:
    """Compare, time and print a line a module."""
    generate(generator, out / "graph", scale=scale, features=100, classes=47)
    made = laid_out(out, 1)

    def program(pe: interop.Graph) -> list[dict[str, Any]]:
        local, rows = pe.layout.forward.local, []
        counts = torch.as_tensor(np.diff(local.indptr), device=pe.x.device)
        targets = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        arcs = torch.stack([torch.as_tensor(local.indices, device=counts.device).long(), targets])
        degrees = torch.bincount(counts)
        for name in modules.split(";") if modules else MODULES:
            rows.append(_row(pe, name, arcs, degrees, compiled))
            click.echo(json.dumps(rows[-1]))
            (out / "gpu_programs.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        return rows

    (rows,) = interop.run(made, program, width=1, backend="nvshmem")
    sys.exit(4 if any(row.get("error", 0) > TOLERANCE for row in rows) else 0)


if __name__ == "__main__":
    main()
