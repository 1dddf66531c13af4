"""The row-wise product of a CPU rank against public ones: python benchmarks/cpu_product.py OUT.

Sides: ``ours`` (``spmm_rows``, sums in float64), SciPy (which has one thread), PyTorch's CSR product (MKL), and
``loop``: C++ that this script compiles, as iSpLib generates it, with float32 sums of a block of columns in registers,
rows fetched ahead and OpenMP over rows. All but SciPy have ``--threads`` threads. Each is checked against a float64
product before it is timed. In each round every side computes one product, after a pause. Times are medians; the ratio
is the median of the rounds' ratios of the fastest peer's time to ours. OUT gets cpu_product-tN.jsonl, one line per
graph and D.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import torch
from common import OUT, Results, head, row
from scipy import sparse

from mgg.graph.csr import Csr
from mgg.graph.generators import communities
from mgg.kernel import cpu
from mgg.kernel.threads import threads_per_pe

TOLERANCE = 1e-5
#: Seconds before each product, because OpenMP's threads spin for some milliseconds after their work.
PAUSE = 0.01
Product = Callable[[], np.ndarray]

LOOP = r"""
#include <cstdint>
typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
template <int VECTORS>
static void block(const int64_t* ptr, const int32_t* ids, const float* w, const float* b, float* c, int64_t d,
                  int64_t row, int64_t column) {
  Vector sums[VECTORS] = {};
  for (int64_t k = ptr[row]; k < ptr[row + 1]; ++k) {
    const float* ahead = b + ids[k + 16] * d + column;
    const float* from = b + ids[k] * d + column;
    const float scale = w[k];
    for (int v = 0; v < VECTORS; ++v) __builtin_prefetch(ahead + 16 * v);
    for (int v = 0; v < VECTORS; ++v) sums[v] += scale * ((const Vector*)from)[v];
  }
  for (int v = 0; v < VECTORS; ++v) ((Vector*)(c + row * d + column))[v] = sums[v];
}
// ids have 16 more entries than there are arcs; d is a multiple of 16.
extern "C" void product(int64_t rows, const int64_t* ptr, const int32_t* ids, const float* w, const float* b, float* c,
                        int64_t d, int threads) {
#pragma omp parallel for schedule(dynamic, 64) num_threads(threads)
  for (int64_t row = 0; row < rows; ++row) {
    int64_t column = 0;
    for (; column + 128 <= d; column += 128) block<8>(ptr, ids, w, b, c, d, row, column);
    if (column + 64 <= d) block<4>(ptr, ids, w, b, c, d, row, column), column += 64;
    if (column + 32 <= d) block<2>(ptr, ids, w, b, c, d, row, column), column += 32;
    if (column + 16 <= d) block<1>(ptr, ids, w, b, c, d, row, column);
  }
}
"""


def compiled() -> ctypes.CDLL:
    """``LOOP``, by g++."""
    with tempfile.TemporaryDirectory(prefix="mgg-") as folder:
        source, library = Path(folder) / "loop.cc", Path(folder) / "loop.so"
        source.write_text(LOOP)
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


def sides(library: ctypes.CDLL, csr: Csr, b: np.ndarray, threads: int) -> dict[str, Product]:
    """Functions that compute A b, by side."""
    rows, dim = len(csr.indptr) - 1, b.shape[1]
    weights = np.ones(len(csr.indices), np.float32) if csr.weights is None else csr.weights
    ids = np.concatenate([csr.indices, np.zeros(16, np.int32)])
    a = sparse.csr_matrix((weights, csr.indices, csr.indptr), shape=(rows, rows))
    parts = (torch.from_numpy(csr.indptr.astype(np.int32)), torch.from_numpy(csr.indices), torch.from_numpy(weights))
    theirs, dense = torch.sparse_csr_tensor(*parts, size=(rows, rows)), torch.from_numpy(b)
    mine, looped, mkl = (np.empty((rows, dim), np.float32) for _ in range(3))
    into = torch.from_numpy(mkl)

    def ours() -> np.ndarray:
        cpu.spmm_rows(csr.indptr, csr.indices, csr.weights, b, mine, False)
        return mine

    def pytorch() -> np.ndarray:
        torch.addmm(into, theirs, dense, beta=0, out=into)
        return mkl

    def loop() -> np.ndarray:
        arrays = (csr.indptr, ids, weights, b, looped)
        places = [ctypes.c_void_p(each.ctypes.data) for each in arrays]
        library.product(ctypes.c_int64(rows), *places, ctypes.c_int64(dim), ctypes.c_int(threads))
        return looped

    return {"ours": ours, "scipy": lambda: a @ b, "torch": pytorch, "loop": loop}


def check(ways: dict[str, Product], csr: Csr, b: np.ndarray) -> None:
    """Raise ValueError if a side's result differs from the float64 product, in sampled rows and the longest one."""
    lengths = np.diff(csr.indptr)
    rows = np.append(np.random.default_rng(0).integers(0, len(lengths), 200), lengths.argmax())
    for way, product in ways.items():
        found = product()
        for node in rows:
            arcs = slice(csr.indptr[node], csr.indptr[node + 1])
            picked = b[csr.indices[arcs]].astype(np.float64)
            picked *= 1.0 if csr.weights is None else csr.weights[arcs, None]
            if (np.abs(found[node] - picked.sum(0)) > TOLERANCE * np.abs(picked).sum(0)).any():
                raise ValueError(f"{way}: row {node} is not the float64 product")


def measured(ways: dict[str, Product], csr: Csr, b: np.ndarray, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each round, by side, after a check."""
    check(ways, csr, b)
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, product in ways.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            product()
            taken[way].append(1e3 * (time.perf_counter() - start))
    return taken


@click.command()
@OUT
@click.option("--graphs", default="reddit-like,products-like,web-like,orkut-like", show_default=True)
@click.option("--scale", default=0.1, show_default=True)
@click.option("--dims", default="16,64,128", show_default=True, help="multiples of 16")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True)
def main(out: Path, graphs: str, scale: float, dims: str, threads: int, rounds: int) -> None:
    """Check, time, and print a table."""
    torch.set_num_threads(threads)
    results = Results(out / f"cpu_product-t{threads}.jsonl")
    library, ratios = compiled(), []
    results.say(head("graph", "D", "ours, ms", "SciPy, ms", "torch, ms", "loop, ms", "best / ours"))
    with threads_per_pe(threads, 1):
        for name in graphs.split(","):
            csr = communities.make(name, scale, communities.SEED, False).csr
            for dim in map(int, dims.split(",")):
                b = np.random.default_rng(0).standard_normal((csr.columns, dim), np.float32)
                taken = measured(sides(library, csr, b, threads), csr, b, rounds)
                medians = {way: float(np.median(each)) for way, each in taken.items()}
                best = min((way for way in taken if way != "ours"), key=medians.__getitem__)
                ratio = float(np.median(np.array(taken[best]) / taken["ours"]))
                ratios.append(ratio)
                results.say(row(name, dim, *(f"{each:.1f}" for each in medians.values()), f"{ratio:.2f} ({best})"))
                results.record(
                    graph=name, scale=scale, arcs=len(csr.indices), dim=dim, threads=threads, ms=taken, best=best,
                    ratio=ratio,
                )  # fmt: skip
    results.say(f"lowest {min(ratios):.2f}, geometric mean {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()
