"""The parts of GAT's work arc by arc on one GPU: python benchmarks/gpu_attention.py OUT [--scale 0.1].

One head over hidden columns (16) and over classes, on the benchmark graphs with a loop at every row: softmax, weighted
sums both ways, and inner products of rows, from which gradients by the scores follow. Times are medians of 20 launches
after 5, by CUDA events, beside two bounds: the bytes that must come or go once (each input and output) at
the rate of a large copy, measured first, and those that arcs gather from rows, which caches serve. Some rows of every
result are compared with the host's loops before. OUT gets gpu_attention.jsonl.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import cupy as cp
import numpy as np
from gpu_graphs import generated
from gpu_local import milliseconds
from gpu_train import HIDDEN, WIDTHS

from mgg.graph.csr import Csr
from mgg.kernel.cuda import CudaOperators
from mgg.layout import Product
from mgg.layout.split import Splitter, sends
from mgg.model.arcs import ArcList, ArcLists, arcs_with_loops
from mgg.model.arrays import HostArrays
from mgg.model.arrays.cuda import CudaArrays
from mgg.model.halo import NoHalo

SLOPE, TOLERANCE, SAMPLE = 0.2, 1e-5, 200
FLOAT, STATE, POINTER = 4, 16, 8


def copy_rate() -> float:
    """Bytes a millisecond of a copy of 4 GiB, read and written."""
    source = cp.ones(2**30, np.float32)
    target = cp.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: cp.copyto(target, source))


def lists_of(csr: Csr, arrays: Any) -> ArcLists:
    """With loops, without weights."""
    cut = Splitter(csr, np.array([0, csr.rows])).cut(0)
    product = Product(**vars(cut), **vars(sends([(cut.halo_ptr, cut.halo_rows)], 0)))
    return arcs_with_loops(product, NoHalo(), np.arange(csr.rows), None, arrays)


def some_rows(arcs: ArcList, rows: np.ndarray) -> ArcList:
    """The arcs of a few rows, on the host."""
    ptr = cp.asnumpy(arcs.ptr)
    ends = [cp.asnumpy(arcs.ends[int(ptr[row]) : int(ptr[row + 1])]) for row in rows]
    return replace(arcs, ptr=np.append(0, np.cumsum(np.diff(ptr)[rows])), ends=np.concatenate(ends))


class Parts:
    """One graph and width."""

    def __init__(self, arrays: CudaArrays, arcs: ArcLists, columns: int) -> None:
        self.arrays, self.arcs, self.columns = arrays, arcs, columns
        rng, rows = np.random.default_rng(0), len(arcs.by_target.ptr) - 1
        self.x, self.gradient, self.vectors, self.to_target, self.to_source = (
            cp.asarray(rng.normal(0, 1, shape).astype(np.float32))
            for shape in ((rows, columns), (rows, columns), (1, columns), (rows, 1), (rows, 1))
        )
        self.means = cp.asarray(rng.normal(0, 1, (rows, 1)).astype(np.float32))
        self.scores = arrays.arc_scores(arcs.by_target, self.to_target, self.to_source, SLOPE)
        self.shares = arrays.arc_shares(arcs.by_target, self.scores, None)
        self.signed = [
            arrays.arc_signed_shares(side, self.scores, None, *more)[0]
            for side, more in ((arcs.by_target, ()), (arcs.by_source, (self.means,)))
        ]
        self.rows, self.count = rows, len(arcs.by_target.ends)

    def check(self) -> float:
        """The largest error of some rows, the longest among them, relative to the largest entry."""
        lengths, arrays, host = np.diff(cp.asnumpy(self.arcs.by_target.ptr)), self.arrays, HostArrays()
        rows = np.unique(np.append(np.random.default_rng(1).integers(0, self.rows, SAMPLE), np.argsort(lengths)[-5:]))
        arcs, everyone = some_rows(self.arcs.by_target, rows), cp.asnumpy(self.x)
        scores = host.arc_scores(arcs, cp.asnumpy(self.to_target)[rows], cp.asnumpy(self.to_source), SLOPE)
        shares, low_shares = host.arc_signed_shares(arcs, scores, None)
        expected = [host.arc_aggregate(arcs, np.abs(shares), everyone), low_shares]
        expected += host.arc_signed_aggregate(arcs, shares, everyone)
        found = [arrays.arc_aggregate(self.arcs.by_target, self.shares, self.x)]
        found.append(arrays.arc_signed_shares(self.arcs.by_target, self.scores, None)[1])
        found += arrays.arc_signed_aggregate(self.arcs.by_target, self.signed[0], self.x)
        pairs = zip(found, expected, strict=True)
        return max(float(np.abs(cp.asnumpy(one)[rows] - other).max() / np.abs(other).max()) for one, other in pairs)

    def measured(self, rate: float) -> list[dict[str, Any]]:
        """Milliseconds of every part, and of its bytes at ``rate``; and of what it gathers."""
        arrays, (target, source) = self.arrays, (self.arcs.by_target, self.arcs.by_source)
        index, n, count = target.ends.itemsize, self.rows, self.count
        listed, row = index * count + POINTER * n, FLOAT * self.columns

        def sums(side: ArcList, shares: Any, x: Any) -> Callable[[], Any]:
            return lambda: arrays.arc_signed_aggregate(side, shares, x)

        parts: list[tuple[str, Callable[[], Any], int, int]] = [
            ("products of heads", lambda: arrays.head_products(self.x, self.vectors), n * (row + FLOAT), 0),
            ("products of rows", lambda: arrays.inner_products(self.x, self.gradient, 1), n * (2 * row + FLOAT), 0),
            (
                "softmax: states of rows",
                lambda: arrays.arc_scores(target, self.to_target, self.to_source, SLOPE),
                listed + n * (2 * FLOAT + STATE), FLOAT * count,
            ),
            (
                "evaluation: shares", lambda: arrays.arc_shares(target, self.scores, None),
                listed + FLOAT * count + n * (FLOAT + STATE), FLOAT * count,
            ),
            (
                "evaluation: sums", lambda: arrays.arc_aggregate(target, self.shares, self.x),
                listed + FLOAT * count + 2 * n * row, row * count,
            ),
            (
                "shares with signs", lambda: arrays.arc_signed_shares(target, self.scores, None),
                listed + FLOAT * count + n * (2 * FLOAT + STATE), FLOAT * count,
            ),
            (
                "both sums", sums(target, self.signed[0], self.x),
                listed + FLOAT * count + 3 * n * row, row * count,
            ),
            (
                "shares with signs by source",
                lambda: arrays.arc_signed_shares(source, self.scores, None, self.means),
                listed + FLOAT * count + n * (2 * FLOAT + STATE), STATE * count,
            ),
            (
                "both sums by source", sums(source, self.signed[1], self.gradient),
                listed + FLOAT * count + 3 * n * row, row * count,
            ),
        ]  # fmt: skip
        return [
            {
                "part": name, "columns": self.columns, "ms": milliseconds(action), "bound": size / rate,
                "bytes": size, "gathered": gathered,
            }
            for name, action, size, gathered in parts
        ]  # fmt: skip


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graphs", default="reddit-like,products-like", show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
def main(out: Path, graphs: str, scale: float) -> None:
    """Check, time and print a table."""
    out.mkdir(parents=True, exist_ok=True)
    arrays, failed = CudaArrays(SimpleNamespace(upload=cp.asarray, operators=CudaOperators())), 0  # type: ignore[arg-type]
    rate = copy_rate()
    cp.get_default_memory_pool().free_all_blocks()
    click.echo(f"a large copy: {rate / 1e6:.0f} GB/s\n")
    click.echo(
        "| graph | part | columns | ms | bound by bytes, ms | gathered, TB/s |\n| --- | --- | --- | --- | --- | --- |"
    )
    with (out / "gpu_attention.jsonl").open("w", encoding="utf-8") as file:
        for name in graphs.split(","):
            arcs = lists_of(generated(name, scale), arrays)
            for columns in (HIDDEN, WIDTHS[name][1]):
                parts = Parts(arrays, arcs, columns)
                error = parts.check()
                failed += not error <= TOLERANCE
                for one in parts.measured(rate):
                    file.write(json.dumps({"graph": name, "arcs": parts.count, "error": error, **one}) + "\n")
                    click.echo(
                        f"| {name} | {one['part']} | {columns} | {one['ms']:.3f} | {one['bound']:.3f}"
                        f" | {one['gathered'] / one['ms'] / 1e9:.1f} |"
                    )
                click.echo(f"{name}, {columns} columns: error {error:.2g}{' FAILED' * (not error <= TOLERANCE)}")
                del parts
                cp.get_default_memory_pool().free_all_blocks()
            del arcs
    sys.exit(4 if failed else 0)


if __name__ == "__main__":
    main()
