"""Modules of PyTorch Geometric's layers against vertex programs: python benchmarks/gpu_programs.py OUT LAYOUT.

LAYOUT is that of ``mgg layout`` for one PE, with features and classes. A module has two layers of 16 columns;
``interop.use`` converts a copy of it with the same weights. Outputs and gradients of both are compared (1e-4 of the
largest entry) before a step (forward, backward and Adam in PyTorch) is timed: medians of 10 after 5. A module that does
not fit the memory is reported. ``torch.compile`` of the module, for the shapes of this graph, is timed too. OUT gets
gpu_programs.jsonl.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch_geometric.nn as layers
from common import HIDDEN, OUT, Results
from torch.nn.functional import cross_entropy, relu

from mgg import interop
from mgg.graph.csr import row_ids

WARMUP, STEPS, TOLERANCE = 5, 10, 1e-4
Tensors = list[torch.Tensor]


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
    """Milliseconds of a step until the device has finished it, and PyTorch's peak of GPU memory in bytes."""
    optimizer, times = torch.optim.Adam(net.parameters(), lr=0.01), []
    wait: Callable[[], object] = torch.cuda.synchronize if x.is_cuda else lambda: None
    if x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARMUP + STEPS):
        wait()
        started = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(net(x, arcs), labels).backward()
        optimizer.step()
        wait()
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times[WARMUP:])), torch.cuda.max_memory_allocated() if x.is_cuda else 0


def _gradients(net: torch.nn.Module, x: torch.Tensor, arcs: Any, labels: torch.Tensor) -> Tensors:
    net.zero_grad()
    output = net(x, arcs)
    cross_entropy(output, labels).backward()
    return [output.detach(), *(parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None)]


def _error(found: Tensors, expected: Tensors) -> float:
    """The largest error: of the output relative to its largest entry, of gradients to the largest of all."""
    differences = [float((x - y).abs().max()) for x, y in zip(found, expected, strict=True)]
    largest = [float(y.abs().max()) for y in expected]
    return max(differences[0] / largest[0], max(differences[1:]) / max(largest[1:]))


def _row(graph: interop.Graph, name: str, arcs: torch.Tensor, degrees: torch.Tensor, compiled: bool) -> dict[str, Any]:
    assert graph.x is not None and graph.y is not None
    x, labels, row = graph.x, graph.y, {"module": name, "nodes": len(graph.x), "arcs": arcs.shape[1]}
    torch.manual_seed(0)
    plain = MODULES[name](x.shape[1], int(labels.max()) + 1, degrees).to(x.device)
    ours = interop.use(copy.deepcopy(plain), graph)
    try:
        expected = _gradients(plain, x, arcs, labels)
        row["error"] = _error(_gradients(ours, x, graph, labels), expected)
        if compiled:
            net = torch.compile(copy.deepcopy(plain), dynamic=False)
            try:  # which modules compile depends on the version
                row["compiled_error"] = _error(_gradients(net, x, arcs, labels), expected)
                row["compiled_ms"], row["compiled_bytes"] = _timed(net, x, arcs, labels)
            except RuntimeError as error:  # out of memory too
                row["compiled"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            torch._dynamo.reset()
        row["pyg_ms"], row["pyg_bytes"] = _timed(plain, x, arcs, labels)
    except torch.cuda.OutOfMemoryError as error:
        row["pyg"] = str(error).split(".")[0]
    plain, expected, net = torch.nn.Identity(), [], None
    gc.collect()
    if x.is_cuda:
        torch.cuda.empty_cache()
    row["mgg_ms"], row["torch_bytes_of_mgg"] = _timed(ours, x, graph, labels)
    return row


@click.command()
@OUT
@click.argument("layout", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--modules", default=";".join(MODULES), help="separated by semicolons; default: all")
@click.option("--compiled/--not-compiled", default=True, help="whether torch.compile is timed", show_default=True)
def main(out: Path, layout: Path, modules: str, compiled: bool) -> None:
    """Compare, time and print a line per module."""
    results = Results(out / "gpu_programs.jsonl")

    def program(pe: interop.Graph) -> bool:
        local, device = pe.layout.forward.local, pe.x.device
        arcs = torch.as_tensor(np.stack([local.indices, row_ids(local)]).astype(np.int64), device=device)
        degrees = torch.bincount(torch.as_tensor(np.diff(local.indptr), device=device))
        failed = False
        for name in modules.split(";"):
            row = _row(pe, name, arcs, degrees, compiled)
            results.record(**row)
            results.say(json.dumps(row))
            failed |= row.get("error", 0) > TOLERANCE
        return failed

    sys.exit(4 if interop.run(layout, program, width=1, backend="auto")[0] else 0)


if __name__ == "__main__":
    main()
