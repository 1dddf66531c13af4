"""Row-wise products of one GPU beside cuSPARSE's and PyTorch's: python benchmarks/gpu_peers.py OUT.

Every graph, width and type: ``spmm_rows`` as technique ``local`` has it, its kernel of rows of B of any length
(``pieces``), tunings of the one of short rows (``CANDIDATES``), each of cuSPARSE's algorithms through its own API,
preprocessed, and torch.sparse.mm. Before it is timed each is checked against float64 on some rows, the longest among
them (tests/gpu/test_gpu_operators.py does that on awkward matrices). ``prepare`` is what a matrix costs before its
first product, of ours the loading of kernels included, ``MiB`` what is kept for it beside the matrix.

Times are medians of 20 launches after 5 (of 5 after 1 where one takes over 15 ms), by CUDA events. OUT gets
gpu_peers.jsonl, one line a measurement.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import cupy as cp
import numpy as np
from common import OUT, SCALE, Results
from cusparse import ALGORITHMS, BF16_ONE, Products
from gpu_graphs import LONGEST, SAMPLE, error_of, generated_at_once
from scipy import sparse

from mgg.graph.csr import Csr
from mgg.graph.generators import communities
from mgg.kernel.compile import build_of, cubin, find_nvcc, nvcc_version
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda.arguments import vector_width
from mgg.kernel.narrow_row_schedule import NARROW, TUNING, BundleTuning, lanes_of
from mgg.kernel.pitch import row_pitch

TOLERANCE = 1e-6
DIMS = "16,32,64,128"
TYPES = {"fp32": np.float32, "bf16": np.uint16}
#: ``product(indptr, indices, weights, b, c)``: c = A b.
Ours = Callable[[cp.ndarray, cp.ndarray, "cp.ndarray | None", cp.ndarray, cp.ndarray], object]


@dataclass(frozen=True)
class Candidate:
    """A tuning of the kernel of short rows of B; ``wide``: for longer ones, in tiles of eight lanes."""

    tuning: BundleTuning = TUNING
    macros: dict[str, int] = field(default_factory=dict)
    wide: bool = False


def _threads(threads: int, loads: int, blocks: int = 1) -> dict[str, int]:
    """Threads of a block, loads in flight a lane, blocks a multiprocessor."""
    return {"MGG_NARROW_THREADS": threads, "MGG_NARROW_LOADS": loads, "MGG_NARROW_BLOCKS": blocks}


CANDIDATES = {
    "512 threads": Candidate(macros=_threads(512, 16)),
    "768 threads": Candidate(macros=_threads(768, 8)),
    "two blocks": Candidate(BundleTuning(block=12_288), _threads(384, 8, 2)),
    "stream C": Candidate(macros={"MGG_STREAM_C": 1}),
    "tile 8": Candidate(BundleTuning(window=4_096), wide=True),
    "tile 8 with 512 threads": Candidate(BundleTuning(window=4_096), _threads(512, 16), wide=True),
}


@dataclass
class Made:
    """A product that is ready to run, and what it took to be.

    Attributes:
        run: launches it; C is ``c``, float32 or bfloat16 (uint16) [rows, D].
        seconds: of preparation.
        bytes: kept for the matrix beside the matrix itself.
    """

    run: Callable[[], object]
    c: cp.ndarray
    seconds: float
    bytes: int


def expected_of(a: sparse.csr_matrix, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A B and |A| |B| in float64."""
    b = b.astype(np.float64)
    # abs(a) would sum repeated arcs first, and in place: ``a`` shares its arrays with the Csr that it was made from.
    magnitude = sparse.csr_matrix((np.abs(a.data), a.indices, a.indptr), a.shape)
    return a @ b, magnitude @ np.abs(b)


def embeddings(operators: CudaOperators, rows: int, dim: int, dtype: Any) -> tuple[cp.ndarray, cp.ndarray]:
    """Uniform in [-1, 1), padded as plans pad rows, and what of it is float32."""
    values = cp.random.default_rng(dim).random((rows, dim), dtype=cp.float32) * 2 - 1
    b = cp.zeros((rows, row_pitch(dim, np.dtype(dtype).itemsize)), dtype)[:, :dim]
    operators.write(values, b)
    if dtype == np.uint16:
        operators.widen_bf16(b, values)
    return b, values


def milliseconds(launch: Callable[[], object], warmup: int, launches: int) -> float:
    """Median time of ``launch`` on the GPU."""
    times = []
    for number in range(warmup + launches):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        launch()
        stop.record()
        stop.synchronize()
        times += [cp.cuda.get_elapsed_time(start, stop)] * (number >= warmup)
    return float(np.median(times))


def timed(run: Callable[[], object]) -> float:
    """Median milliseconds; fewer launches of what takes long."""
    return milliseconds(run, 1, 5) if milliseconds(run, 1, 1) > 15 else milliseconds(run, 5, 20)


class Bench(Results):
    """A run: its records and what is compared."""

    def __init__(self, out: Path, names: list[str], peers: bool) -> None:
        super().__init__(out / "gpu_peers.jsonl")
        self.operators = CudaOperators()
        self.candidates = {name: CANDIDATES[name] for name in names}
        self.peers = peers
        self.times: dict[tuple[str, str, int], dict[str, float]] = {}

    def accept(self, what: str, error: float) -> None:
        """Count what exceeds the tolerance."""
        if not error <= TOLERANCE:
            self.failed += 1
            click.echo(f"FAILED {what}: {error:.3g}")

    def compile(self, types: list[str]) -> None:
        """All kernels, side by side."""
        builds = []
        for bf16 in (kind == "bf16" for kind in types):
            narrow = build_of("narrow_rows", 32, bf16=bf16)
            builds += [build_of("rows", 32, bf16=bf16), narrow]
            builds += [replace(narrow, defines={**narrow.defines, **each.macros}) for each in self.candidates.values()]
        unlike = {str(build): build for build in (build_of("rows", 32), *builds)}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda build: cubin(build.path, self.operators.arch, build.defines), unlike.values()))

    def ours(self, b: cp.ndarray) -> dict[str, Ours]:
        """What there is for products with ``b``."""
        found: dict[str, Ours] = {
            "local": lambda *given: self.operators.spmm_rows(*given, False),
            "pieces": lambda *given: self.operators.spmm_pieces(*given, False),
        }
        lanes = lanes_of(b.shape[1], vector_width(b))
        for label, each in self.candidates.items():
            if each.wide == (not lanes):
                found[label] = lambda *given, each=each: self.operators.spmm_narrow(
                    *given, False, lanes or NARROW, each.tuning, each.macros
                )
        return found

    def graph(self, name: str, csr: Csr, dims: list[int], types: list[str]) -> None:
        """Everything on one graph."""
        indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices)
        lengths = np.diff(csr.indptr)
        rng = np.random.default_rng(0)
        sample = np.union1d(rng.integers(0, csr.rows, SAMPLE), np.argsort(lengths)[-LONGEST:])
        a = csr.to_scipy(np.float64)[sample]
        used, columns = np.unique(a.indices, return_inverse=True)
        a = sparse.csr_matrix((a.data, columns, a.indptr), shape=(len(sample), len(used)))
        rows, used = cp.asarray(sample), cp.asarray(used)
        for kind in types:
            for dim in dims:
                b, values = embeddings(self.operators, csr.columns, dim, TYPES[kind])
                expected = expected_of(a, values[used].get())
                taken = self.times[name, kind, dim] = {}
                for label, make in self.products(csr, indptr, indices, b, values):
                    try:
                        made = make()
                    except RuntimeError as refusal:
                        click.echo(f"{name}, {kind}, D = {dim}: {label} refuses: {refusal}")
                        continue
                    made.run()
                    found = made.c[rows]
                    loose = found.dtype == np.uint16  # C of 16 bits is as near as these allow
                    if loose:
                        wide = cp.empty(found.shape, cp.float32)
                        self.operators.widen_bf16(cp.ascontiguousarray(found), wide)
                        found = wide
                    error = error_of(found.get(), *expected)
                    if not loose:
                        self.accept(f"{label}, {name}, {kind}, D = {dim}", error)
                    taken[label] = timed(made.run)
                    self.record(
                        part="time", graph=name, nodes=csr.rows, arcs=csr.arcs, kind=kind, dim=dim, product=label,
                        ms=taken[label], error=error, prepare=made.seconds, bytes=made.bytes,
                    )  # fmt: skip
                    click.echo(
                        f"{name:<13} {kind} D {dim:>3} {label:<24}{taken[label]:>8.3f} ms"
                        f" {taken[label] / taken['local']:>6.3f}  error {error:.1e}"
                        f"  prepare {made.seconds * 1e3:>6.1f} ms  {made.bytes / 2**20:>7.1f} MiB"
                    )
                    del made, found
                    cp.get_default_memory_pool().free_all_blocks()

    def products(
        self, csr: Csr, indptr: cp.ndarray, indices: cp.ndarray, b: cp.ndarray, values: cp.ndarray
    ) -> Iterator[tuple[str, Callable[[], Made]]]:
        """What is compared: its name, and what prepares it."""
        for label, product in self.ours(b).items():
            yield label, partial(self.prepared, product, csr, indptr, indices, b)
        if self.peers:
            ones = cp.full(csr.arcs, 1 if b.dtype == np.float32 else BF16_ONE, b.dtype)
            pointers = indptr.astype(cp.int32)
            for result in ("float32",) if b.dtype == np.float32 else ("float32", "uint16"):
                products = Products(pointers, indices, ones, csr.columns, result)
                for algorithm in ALGORITHMS:
                    label = f"cuSPARSE {algorithm}" + (", bf16 C" if result == "uint16" else "")
                    yield label, partial(self.cusparse, products, algorithm, b)
            yield "torch.sparse.mm", partial(self.torch, csr, values, b.dtype)

    def prepared(self, product: Ours, csr: Csr, indptr: cp.ndarray, indices: cp.ndarray, b: cp.ndarray) -> Made:
        """A product of ours, whose first launch finds nothing of the matrix's cut."""
        mine, c = indptr.copy(), cp.full((csr.rows, b.shape[1]), cp.nan, cp.float32)
        stream, pool = cp.cuda.get_current_stream(), cp.get_default_memory_pool()
        stream.synchronize()
        used, started = pool.used_bytes(), time.perf_counter()
        product(mine, indices, None, b, c)
        stream.synchronize()
        seconds = time.perf_counter() - started
        return Made(lambda: product(mine, indices, None, b, c), c, seconds, pool.used_bytes() - used)

    def cusparse(self, products: Products, algorithm: str, b: cp.ndarray) -> Made:
        """One algorithm of cuSPARSE."""
        b, c = cp.ascontiguousarray(b), products.operands(b.shape[1])[1]
        run = products.launch(algorithm, b.shape[1])
        seconds, size = products.prepared
        stream = cp.cuda.get_current_stream().ptr
        return Made(lambda: run(b.data.ptr, c.data.ptr, stream), c, seconds, size)

    def torch(self, csr: Csr, values: cp.ndarray, dtype: Any) -> Made:
        """torch.sparse.mm, which takes cuSPARSE's default algorithm; its bfloat16 result is bfloat16."""
        import torch

        kind = torch.float32 if dtype == np.float32 else torch.bfloat16
        matrix = torch.sparse_csr_tensor(
            torch.as_tensor(csr.indptr.astype(np.int32)).cuda(), torch.as_tensor(csr.indices).cuda(),
            torch.ones(csr.arcs, device="cuda", dtype=kind), size=(csr.rows, csr.columns),
        )  # fmt: skip
        dense = torch.as_tensor(values, device="cuda").to(kind)
        c = torch.sparse.mm(matrix, dense)
        shown = cp.asarray(c) if kind == torch.float32 else cp.asarray(c.view(torch.int16)).view(np.uint16)
        return Made(lambda: torch.sparse.mm(matrix, dense), shown, 0.0, 0)

    def summary(self) -> None:
        """Every product beside ``local``, and that beside the best of cuSPARSE."""
        for kind in dict.fromkeys(kind for _, kind, _ in self.times):
            cells = {key: taken for key, taken in self.times.items() if key[1] == kind}
            click.echo(f"\n{kind}: times over those of local, by cell, and their geometric mean")
            click.echo(" " * 24 + "".join(f"{name[:7]:>8}{dim:>4}" for name, _, dim in cells))
            for label in dict.fromkeys(label for taken in cells.values() for label in taken):
                ratios = [taken.get(label, np.nan) / taken["local"] for taken in cells.values()]
                mean = float(np.exp(np.nanmean(np.log(ratios))))  # of the cells that it is for
                click.echo(f"{label:<24}" + "".join(f"{each:>12.3f}" for each in ratios) + f"{mean:>9.3f}")
            click.echo(f"{'local, ms':<24}" + "".join(f"{taken['local']:>12.3f}" for taken in cells.values()))
            if self.peers:
                theirs = [min(taken[label] for label in taken if "cuSPARSE" in label) for taken in cells.values()]
                ratios = [taken["local"] / best for taken, best in zip(cells.values(), theirs, strict=True)]
                click.echo(
                    f"{'local / cuSPARSE':<24}" + "".join(f"{each:>12.3f}" for each in ratios)
                    + f"{np.exp(np.mean(np.log(ratios))):>9.3f}"
                )  # fmt: skip


@click.command()
@OUT
@click.option("--graphs", default=",".join(list(communities.SHAPES)[:4]), show_default=True, help="separated by commas")
@click.option("--dims", default=DIMS, show_default=True, help="columns, separated by commas")
@click.option("--types", default=",".join(TYPES), show_default=True, help="separated by commas")
@click.option("--candidates", default=",".join(CANDIDATES), show_default=True, help="separated by commas; may be empty")
@SCALE
@click.option("--peers/--no-peers", default=True, show_default=True, help="cuSPARSE and PyTorch, too")
def main(out: Path, graphs: str, dims: str, types: str, candidates: str, scale: float, peers: bool) -> None:
    """Check and time, and print tables."""
    bench = Bench(out, [name for name in candidates.split(",") if name], peers)
    widths, kinds = [int(dim) for dim in dims.split(",")], types.split(",")
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    click.echo(f"{device}, CuPy {cp.__version__}, nvcc {nvcc_version(find_nvcc())}")
    bench.record(part="machine", device=device, scale=scale)
    with ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(bench.compile, kinds)
        made = generated_at_once(graphs.split(","), scale)
        click.echo(f"graphs after {bench.seconds}")
        compiled.result()
        click.echo(f"kernels after {bench.seconds}")
    for name, csr in made.items():
        click.echo(f"{name}: {csr.rows:,} nodes, {csr.arcs:,} arcs, after {bench.seconds}")
        bench.graph(name, csr, widths, kinds)
        cp.get_default_memory_pool().free_all_blocks()
    bench.summary()
    bench.end()
    sys.exit(4 if bench.failed else 0)


if __name__ == "__main__":
    main()
