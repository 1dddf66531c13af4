"""The fused kernel of technique mgg on one GPU, without MPI: python benchmarks/gpu_local.py OUT [--scale 0.1].

It takes the first quarter of each graph's rows, all other rows being "remote" in the same memory; beside it the
row-wise product of the same arcs, whose result its own is compared with. That product beside others:
benchmarks/gpu_peers.py.

Times are medians of 7 launches after 2, by CUDA events. OUT gets gpu_local.jsonl, one line a measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
import cupy as cp
import numpy as np
from common import Results
from gpu_graphs import generated

from mgg.graph.csr import Csr
from mgg.graph.generators import communities
from mgg.kernel.compile import find_nvcc, nvcc_version
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.schedule import remote_sources
from mgg.layout.neighbor_partitions import NeighborPartitions, neighbor_partitions

DIMS = (16, 64, 128)
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


class Bench(Results):
    """A run: its operators, records and the graphs on the device."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.operators = CudaOperators()

    def embeddings(self, rows: int, dim: int) -> cp.ndarray:
        """Uniform in [-1, 1)."""
        return cp.random.default_rng(dim).random((rows, dim), dtype=cp.float32) * 2 - 1

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
        for dim in DIMS:
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
@click.option("--graphs", default=",".join(communities.SHAPES), show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
def main(out: Path, graphs: str, scale: float) -> None:
    """Check and time, and print tables."""
    bench = Bench(out / "gpu_local.jsonl")
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    click.echo(f"{device}, CuPy {cp.__version__}, nvcc {nvcc_version(find_nvcc())}")
    bench.record(part="machine", device=device, scale=scale)
    for name in graphs.split(","):
        csr = generated(name, scale)
        click.echo(f"{name}: {csr.rows:,} nodes, {csr.arcs:,} arcs, after {bench.seconds}")
        bench.mgg(name, csr)
        cp.get_default_memory_pool().free_all_blocks()
    bench.end()
    sys.exit(4 if bench.failed else 0)


if __name__ == "__main__":
    main()
