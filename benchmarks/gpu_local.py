"""Kernels of one GPU, without MPI: python benchmarks/gpu_local.py OUT [--scale 0.1] [--parts check,rows,sweep,mgg].

check  the row-wise product of awkward matrices against SciPy in float64
rows   the row-wise product beside torch.sparse.mm, which takes cuSPARSE's default algorithm, and the best of
       cuSPARSE's algorithms, on the generated graphs; some rows are checked before each timing
sweep  the row-wise product with other tunings, milliseconds a graph and width
mgg    the fused kernel on the first quarter of each graph's rows, all other rows being "remote" in the same memory

Times are medians of 20 launches after 5, by CUDA events. OUT gets gpu_local.jsonl, one line a measurement.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import click
import cupy as cp
import numpy as np
from cusparse import Products
from gpu_graphs import generated
from scipy import sparse

from mgg.graph.csr import Csr
from mgg.graph.sources import communities
from mgg.kernel import cuda
from mgg.kernel.compile import Build, build_of, find_nvcc, nvcc_version
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda_schedule import RowTuning
from mgg.kernel.schedule import remote_sources
from mgg.layout.neighbors import NeighborPartitions, neighbor_partitions

TOLERANCE = 1e-6
DIMS = (16, 64, 128, 256)
#: Rows that are checked before a timing, beside the longest ones.
SAMPLE = 2_000
TUNINGS = {
    "default": RowTuning(),
    "chosen": None,  # by row_tuning
    "tile 8": RowTuning(tile=8),
    "block 24": RowTuning(tasks_per_block=24),
    "block 24, task 256": RowTuning(task=256, tasks_per_block=24),
    "block 24, tile 16": RowTuning(tile=16, tasks_per_block=24),
    "block 24, tile 8": RowTuning(tile=8, tasks_per_block=24),
    "block 12": RowTuning(tasks_per_block=12),
    "768x1, block 24": RowTuning(tasks_per_block=24),
}
#: Tuning -> macros of kernels/aggregate/rows.cu.
MACROS = {"768x1, block 24": {"MGG_ROWS_THREADS": 768, "MGG_ROWS_BLOCKS": 1, "MGG_UNROLL": 8}}
MGG_OPTIONS = {
    "mgg": {"ps": 16, "dist": 16, "wpb": 4},
    "mgg ps 32": {"ps": 32, "dist": 16, "wpb": 4},
    "mgg dist 4": {"ps": 16, "dist": 4, "wpb": 4},
    "mgg wpb 2": {"ps": 16, "dist": 16, "wpb": 2},
    "mgg wpb 8": {"ps": 16, "dist": 16, "wpb": 8},
    "mgg synchronous": {"ps": 16, "dist": 16, "wpb": 4, "asynchronous": False},
    "mgg separate": {"ps": 16, "dist": 16, "wpb": 4, "interleave": False},
    "mgg whole rows": {"ps": None, "dist": 16, "wpb": 4},
}


def milliseconds(launch: Callable[[], object], warmup: int = 5, iterations: int = 20) -> float:
    """Median time of ``launch`` on the GPU."""
    for _ in range(warmup):
        launch()
    times = []
    for _ in range(iterations):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        launch()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop))
    return float(np.median(times))


def build_with(macros: dict[str, int], *source: Any, **kind: Any) -> Build:
    """What ``build_of`` builds, with ``macros``, too."""
    build = build_of(*source, **kind)
    return replace(build, defines={**build.defines, **macros})


def worst(found: np.ndarray, a: sparse.csr_matrix, b: np.ndarray) -> float:
    """max |C - C*| / (|A| |B|); infinite where C must be 0 and is not."""
    b = b.astype(np.float64)
    # abs(a) would sum repeated arcs first, and in place: ``a`` shares its arrays with the Csr that it was made from.
    magnitude = sparse.csr_matrix((np.abs(a.data), a.indices, a.indptr), a.shape)
    error, scale = np.abs(found - a @ b), magnitude @ np.abs(b)
    if np.any(error[scale == 0] != 0) or not np.all(np.isfinite(error)):
        return np.inf
    return float((error[scale > 0] / scale[scale > 0]).max(initial=0.0))


def awkward() -> Iterator[tuple[str, Csr]]:
    """Matrices with rows of every kind of length."""
    rng = np.random.default_rng(3)
    cases = {
        "no rows": [],
        "empty rows": [0] * 100,
        "one arc": [0, 0, 1, 0],
        "0 to 700": list(range(700)),
        "a hub": [3, 0, 200_000, 1, 0, 77],
        "hubs": [10_703, 1, 100_000, 511, 512, 513, 0, 1_024, 1_025],
        "many short": rng.integers(0, 9, 100_000).tolist(),
        "skewed": np.minimum(rng.pareto(0.8, 30_000) * 4, 20_000).astype(int).tolist(),
    }
    for name, lengths in cases.items():
        indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        arcs = int(indptr[-1])
        weights = rng.standard_normal(arcs).astype(np.float32)
        yield name, Csr(indptr, rng.integers(0, 4_000, arcs).astype(np.int32), weights, 4_000)


class Bench:
    """A run: its operators, records and the graphs on the device."""

    def __init__(self, out: Path) -> None:
        self.file = (out / "gpu_local.jsonl").open("w", encoding="utf-8")
        self.operators = CudaOperators()
        self.rng = np.random.default_rng(0)
        self.failed = 0

    def record(self, **values: object) -> None:
        """Keep one measurement."""
        self.file.write(json.dumps(values) + "\n")
        self.file.flush()

    def accept(self, what: str, error: float) -> None:
        """Count what exceeds the tolerance."""
        if not error <= TOLERANCE:
            self.failed += 1
            click.echo(f"FAILED {what}: {error:.3g}")

    def embeddings(self, rows: int, dim: int) -> cp.ndarray:
        """Uniform in [-1, 1)."""
        return cp.random.default_rng(dim).random((rows, dim), dtype=cp.float32) * 2 - 1

    def check(self) -> None:
        """Awkward matrices, all vector widths, weighted or not, twice for equal bits."""
        largest = 0.0
        for name, csr in awkward():
            indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices)
            for dim in (1, 3, 4, 16, 41, 64, 100, 128, 256, 602):
                b = self.embeddings(csr.columns, dim)
                for weights in (None, csr.weights):
                    a = Csr(csr.indptr, csr.indices, weights, csr.columns).to_scipy(np.float64)
                    on_device = None if weights is None else cp.asarray(weights)
                    c = [cp.full((csr.rows, dim), cp.nan, cp.float32) for _ in range(2)]
                    for one in c:
                        self.operators.spmm_rows(indptr, indices, on_device, b, one, False)
                    error = worst(c[0].get(), a, b.get())
                    same = bool(cp.array_equal(c[0].view(cp.int32), c[1].view(cp.int32)))
                    self.accept(f"{name}, D = {dim}, weighted {weights is not None}", error if same else np.inf)
                    largest = max(largest, error)
        click.echo(f"check: largest error {largest:.2g} of |A| |B|, {self.failed} failures")
        self.record(part="check", error=largest, failed=self.failed)

    def rows(self, name: str, csr: Csr) -> None:
        """Beside torch.sparse.mm and cuSPARSE's algorithms."""
        import torch

        indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices)
        started = time.perf_counter()
        self.operators.schedule(indptr, DIMS[-1])
        schedule_seconds = time.perf_counter() - started
        matrix = torch.sparse_csr_tensor(
            torch.as_tensor(csr.indptr.astype(np.int32)).cuda(), torch.as_tensor(csr.indices).cuda(),
            torch.ones(csr.arcs, device="cuda"), size=(csr.rows, csr.columns),
        )  # fmt: skip
        products = Products(indptr.astype(cp.int32), indices, cp.ones(csr.arcs, cp.float32), csr.columns)
        lengths = np.diff(csr.indptr)
        sample = np.union1d(self.rng.integers(0, csr.rows, SAMPLE), np.argsort(lengths)[-50:])
        a = csr.to_scipy(np.float64)[sample]
        used, columns = np.unique(a.indices, return_inverse=True)
        a = sparse.csr_matrix((a.data, columns, a.indptr), shape=(len(sample), len(used)))
        for dim in DIMS:
            b, c = self.embeddings(csr.columns, dim), cp.empty((csr.rows, dim), cp.float32)
            self.operators.spmm_rows(indptr, indices, None, b, c, False)
            error = worst(c[cp.asarray(sample)].get(), a, b[cp.asarray(used)].get())
            self.accept(f"{name}, D = {dim}", error)
            ours = milliseconds(lambda b=b, c=c: self.operators.spmm_rows(indptr, indices, None, b, c, False))
            dense = torch.as_tensor(b, device="cuda")
            theirs = milliseconds(lambda dense=dense: torch.sparse.mm(matrix, dense))
            algorithms, run = products.fastest(dim, milliseconds)
            run(b.data.ptr, c.data.ptr, cp.cuda.get_current_stream().ptr)
            self.accept(
                f"cuSPARSE, {name}, D = {dim}", worst(c[cp.asarray(sample)].get(), a, b[cp.asarray(used)].get())
            )
            best = np.nanmin(list(algorithms.values()))
            gathered = csr.arcs * dim * 4 / ours / 1e9
            click.echo(
                f"{name:<14} D {dim:>3}: torch.sparse.mm {theirs:>7.3f} ms   cuSPARSE's best {best:>7.3f} ms   "
                f"spmm_rows {ours:>7.3f} ms   {theirs / ours:>5.2f} x, {best / ours:>5.2f} x   "
                f"gathers {gathered:>5.2f} TB/s   error {error:.1e}"
            )
            self.record(
                part="rows", graph=name, nodes=csr.rows, arcs=csr.arcs, longest=int(lengths.max()), dim=dim,
                torch=theirs, cusparse=algorithms, ours=ours, error=error, schedule_seconds=schedule_seconds,
            )  # fmt: skip

    def sweep(self, name: str, csr: Csr) -> None:
        """Other tunings; each product beside the first one's."""
        indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices)
        # Both sums err by less than the tolerance of |A| |B|, and |B| < 1.
        bound = 2 * TOLERANCE * cp.diff(indptr).astype(cp.float32)[:, None]
        times: dict[str, list[float]] = {label: [] for label in TUNINGS}
        pool = cp.get_default_memory_pool()
        all_operators = {label: CudaOperators(tuning) for label, tuning in TUNINGS.items()}
        for dim in DIMS:
            b, first = self.embeddings(csr.columns, dim), None
            for label, operators in all_operators.items():
                c = cp.full((csr.rows, dim), cp.nan, cp.float32)

                def launch(b: cp.ndarray = b, c: cp.ndarray = c, operators: CudaOperators = operators) -> None:
                    operators.spmm_rows(indptr, indices, None, b, c, False)

                with mock.patch.object(cuda, "build_of", partial(build_with, MACROS.get(label, {}))):
                    times[label].append(milliseconds(launch, 2, 7))
                self.record(part="sweep", graph=name, tuning=label, dim=dim, ours=times[label][-1])
                if first is None:
                    first = c
                elif not bool(cp.all(cp.abs(c - first) <= bound)):
                    self.accept(f"{name}, {label}, D = {dim}, beside {next(iter(TUNINGS))}", np.inf)
                del c, launch
                pool.free_all_blocks()
        for label, row in times.items():
            click.echo(f"{name:<14} {label:<27}" + "".join(f"{ms:>9.3f}" for ms in row))

    def mgg(self, name: str, csr: Csr) -> None:
        """The fused kernel on a quarter of the rows, beside the row-wise kernel on the same arcs."""
        mine = csr.rows // 4
        arcs = int(csr.indptr[mine])
        rows = np.repeat(np.arange(mine), np.diff(csr.indptr[: mine + 1]))
        columns = csr.indices[:arcs]
        parts = []
        for keep, base in ((columns < mine, 0), (columns >= mine, mine)):
            indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[keep], minlength=mine))])
            parts.append((indptr, columns[keep] - np.int32(base)))
        (local_ptr, local), (remote_ptr, remote) = parts
        sources = cp.asarray(remote_sources(remote, np.array([0, 0, csr.rows - mine]), np.arange(csr.rows - mine)))
        on_device = cp.asarray(local)
        whole_ptr, whole = cp.asarray(csr.indptr[: mine + 1]), cp.asarray(columns)
        for dim in DIMS[:3]:
            b, out = self.embeddings(csr.columns, dim), cp.empty((mine, dim), cp.float32)
            other = cp.empty_like(out)
            self.operators.spmm_rows(whole_ptr, whole, None, b, other, False)
            plain = milliseconds(
                lambda b=b, other=other: self.operators.spmm_rows(whole_ptr, whole, None, b, other, False), 2, 7
            )
            shown = [f"spmm_rows {plain:.3f}"]
            peers = cp.asarray(np.array([b.data.ptr, b[mine:].data.ptr], np.uint64))
            for label, options in MGG_OPTIONS.items():
                pieces = [
                    NeighborPartitions(*(cp.asarray(x) for x in (p.rows, p.starts, p.stops)))
                    for p in (neighbor_partitions(pointer, options["ps"]) for pointer in (local_ptr, remote_ptr))
                ]

                def launch(b=b, out=out, pieces=pieces, peers=peers, options=options) -> None:
                    self.operators.mgg(
                        pieces[0], on_device, None, pieces[1], sources, None, b[:mine], peers, out, **options
                    )

                ms = milliseconds(launch, 2, 7)
                difference = float(cp.abs(out - other).max() / cp.abs(other).max())
                if not difference < 1e-4:
                    self.failed += 1
                    shown.append(f"FAILED {label}: {difference:.2g}")
                shown.append(f"{label.removeprefix('mgg ')} {ms:.3f}")
                self.record(part="mgg", graph=name, options=label, dim=dim, ours=ms, difference=difference)
            click.echo(f"{name:<14} D {dim:>3}: " + ", ".join(shown))


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--parts", default="check,rows,sweep,mgg", show_default=True, help="separated by commas")
@click.option("--graphs", default=",".join(communities.SHAPES), show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
def main(out: Path, parts: str, graphs: str, scale: float) -> None:
    """Check and time, and print tables."""
    out.mkdir(parents=True, exist_ok=True)
    bench, wanted, started = Bench(out), parts.split(","), time.perf_counter()
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    click.echo(f"{device}, CuPy {cp.__version__}, nvcc {nvcc_version(find_nvcc())}")
    bench.record(part="machine", device=device, scale=scale)
    if "check" in wanted:
        bench.check()
    for name in graphs.split(","):
        csr = generated(name, scale)
        click.echo(f"{name}: {csr.rows:,} nodes, {csr.arcs:,} arcs, after {time.perf_counter() - started:.0f} s")
        for part in ("rows", "sweep", "mgg"):
            if part in wanted:
                getattr(bench, part)(name, csr)
                cp.get_default_memory_pool().free_all_blocks()
    if "rows" in wanted:
        lines = [json.loads(line) for line in (out / "gpu_local.jsonl").read_text(encoding="utf-8").splitlines()]
        rows = [line for line in lines if line["part"] == "rows"]
        ratios = {
            "torch.sparse.mm": [line["torch"] / line["ours"] for line in rows],
            "cuSPARSE's best algorithm": [np.nanmin(list(line["cusparse"].values())) / line["ours"] for line in rows],
        }
        for label, each in ratios.items():
            mean = np.exp(np.mean(np.log(each)))
            click.echo(f"{label} / spmm_rows: {mean:.2f} geometric mean, {min(each):.2f} least")
    click.echo(f"{bench.failed} failures, {time.perf_counter() - started:.0f} s")
    sys.exit(4 if bench.failed else 0)


if __name__ == "__main__":
    main()
