"""Row-wise products on one GPU against cuSPARSE: python benchmarks/gpu_peers.py OUT LAYOUT...

LAYOUTs are those of ``mgg layout`` for one PE, of graphs without weights. For every graph, width and type it times
``spmm_rows`` as in technique ``local``, its kernel for rows of B of any length (``pieces``), and each of cuSPARSE's
algorithms by its own API, preprocessed (torch.sparse.mm uses the default one). Before that each is checked against
float64 on sampled and on the longest rows (tests/gpu/test_gpu_operators.py does so for edge cases). ``prepare`` is the
time per matrix before its first product, without compilation; ``MiB`` is memory kept beside the matrix. Without a GPU
only ``local`` is timed.

Times are medians of 20 launches after 5 (of 5 after 1 if one takes over 15 ms). OUT gets gpu_peers.jsonl, one line per
measurement.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from common import OUT, Results
from scipy import sparse

from mgg import layout
from mgg.backend import World, launch
from mgg.graph.csr import Csr
from mgg.kernel.pitch import row_pitch

TOLERANCE = 1e-6
#: Rows that are checked: sampled ones and the longest.
SAMPLE, LONGEST = 2_000, 50
TYPES = {"fp32": np.float32, "bf16": np.uint16}
BF16_ONE = 0x3F80
#: ``cusparseSpMMAlg_t`` of CSR matrices; ``cudaDataType`` of float32, and of bfloat16 as its 16 bits.
ALGORITHMS, CUDA_TYPES = {"default": 0, "ALG1": 4, "ALG2": 6, "ALG3": 12}, {"float32": 0, "uint16": 14}
INT32, ROW_MAJOR, AS_IT_IS, FROM_ZERO = 2, 2, 0, 0
#: A function that launches a product, the seconds of its preparation, and the bytes that it keeps.
Prepared = tuple[Callable[[], object], float, int]


def cusparse(xp: Any, csr: Csr, weights: Any, b: Any, c: Any, algorithm: str) -> Prepared:
    """c = A b by cuSPARSE, preprocessed, with float32 sums; raises RuntimeError with its status.

    Args:
        weights, b, c: float32 or bfloat16 (uint16) [arcs], [columns, D] and [rows, D] on the device, row by row.
    """
    import torch  # noqa: F401  loads its libcusparse

    library = ctypes.CDLL("libcusparse.so.12")

    def call(name: str, *arguments: Any) -> None:
        if status := getattr(library, name)(*arguments):
            raise RuntimeError(f"{name}: cuSPARSE's status {status}")

    def make(name: str, *arguments: Any) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        call(name, ctypes.byref(descriptor), *arguments)
        return descriptor

    def address(array: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.data.ptr)

    stream, long = xp.cuda.get_current_stream(), ctypes.c_int64
    pointers, indices = xp.asarray(csr.indptr.astype(np.int32)), xp.asarray(csr.indices.astype(np.int32))
    handle = make("cusparseCreate")
    call("cusparseSetStream", handle, ctypes.c_void_p(stream.ptr))
    matrix = make(
        "cusparseCreateCsr", long(csr.rows), long(csr.columns), long(csr.arcs), address(pointers), address(indices),
        address(weights), INT32, INT32, FROM_ZERO, CUDA_TYPES[weights.dtype.name],
    )  # fmt: skip
    b_matrix, c_matrix = (
        make("cusparseCreateDnMat", *map(long, (*x.shape, x.shape[1])), address(x), CUDA_TYPES[x.dtype.name], ROW_MAJOR)
        for x in (b, c)
    )
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    operands = (handle, AS_IT_IS, AS_IT_IS, one, matrix, b_matrix, zero, c_matrix, CUDA_TYPES["float32"])
    stream.synchronize()
    started, size = time.perf_counter(), ctypes.c_size_t()
    call("cusparseSpMM_bufferSize", *operands, ALGORITHMS[algorithm], ctypes.byref(size))
    buffer = xp.empty(max(1, size.value), np.uint8)
    call("cusparseSpMM_preprocess", *operands, ALGORITHMS[algorithm], address(buffer))
    stream.synchronize()
    seconds, kept = time.perf_counter() - started, (pointers, indices, weights, b, c, buffer)
    return lambda: call("cusparseSpMM", *operands, ALGORITHMS[algorithm], address(kept[-1])), seconds, size.value


def error_of(found: np.ndarray, product: np.ndarray, scale: np.ndarray) -> float:
    """max |C - C*| / (|A| |B|); infinite where C must be 0 and is not."""
    error = np.abs(found - product)
    if np.any(error[scale == 0] != 0) or not np.all(np.isfinite(error)):
        return np.inf
    return float((error[scale > 0] / scale[scale > 0]).max(initial=0.0))


class Bench(Results):
    """The benchmark: its records and tables."""

    def __init__(self, world: World, out: Path, peers: bool) -> None:
        super().__init__(out / "gpu_peers.jsonl")
        self.world, self.xp, self.peers = world, world.xp, peers and bool(world.gpu)
        self.times: dict[tuple[str, str, int], dict[str, float]] = {}

    def wide(self, array: Any) -> np.ndarray:
        """``array`` as float32 on the host."""
        if array.dtype == np.uint16:
            values = self.xp.empty(array.shape, np.float32)
            self.world.operators.widen_bf16(array, values)
            array = values
        return np.array(self.world.download(array))

    def once(self, run: Callable[[], object]) -> float:
        """Milliseconds of ``run()``."""
        clock = self.world.clock()
        clock.start()
        run()
        return 1e3 * clock.stop()

    def timed(self, run: Callable[[], object]) -> float:
        """Median milliseconds, with fewer launches if one takes long."""
        self.once(run)
        warmup, launches = (1, 5) if self.once(run) > 15 else (5, 20)
        return float(np.median([self.once(run) for _ in range(warmup + launches)][warmup:]))

    def graph(self, name: str, csr: Csr, dims: list[int], types: list[str]) -> None:
        """Check and time all products on one graph."""
        lengths, rng = np.diff(csr.indptr), np.random.default_rng(0)
        sample = np.union1d(rng.integers(0, csr.rows, SAMPLE), np.argsort(lengths)[-LONGEST:])
        a = csr.to_scipy(np.float64)[sample]
        # abs(a) would sum repeated arcs first, and in place.
        magnitude = sparse.csr_matrix((np.abs(a.data), a.indices, a.indptr), a.shape)
        for kind in types:
            for dim in dims:
                values = rng.random((csr.columns, dim), dtype=np.float32) * 2 - 1
                pitch = row_pitch(dim, np.dtype(TYPES[kind]).itemsize)  # rows padded as plans pad them
                b = self.xp.zeros((csr.columns, pitch), TYPES[kind])[:, :dim]
                self.world.operators.write(self.world.upload(values), b)
                exact = self.wide(b).astype(np.float64)
                expected, taken = (a @ exact, magnitude @ np.abs(exact)), dict[str, float]()
                self.times[name, kind, dim] = taken
                for label, c, make in self.products(csr, b):
                    try:
                        run, seconds, size = make()
                    except RuntimeError as refusal:
                        self.say(f"{name}, {kind}, D = {dim}: {label} refuses: {refusal}")
                        continue
                    run()
                    error = error_of(self.wide(c)[sample], *expected)
                    if c.dtype == np.float32 and not error <= TOLERANCE:  # a C of 16 bits has its own rounding error
                        self.failed += 1
                        self.say(f"FAILED {label}, {name}, {kind}, D = {dim}: {error:.3g}")
                    taken[label] = self.timed(run)
                    self.record(
                        graph=name, nodes=csr.rows, arcs=csr.arcs, gpu=self.world.gpu, kind=kind, dim=dim,
                        product=label, ms=taken[label], error=error, prepare=seconds, bytes=size,
                    )  # fmt: skip
                    self.say(
                        f"{name:<13} {kind} D {dim:>3} {label:<24}{taken[label]:>8.3f} ms"
                        f" {taken[label] / taken['local']:>6.3f}  error {error:.1e}"
                        f"  prepare {seconds * 1e3:>6.1f} ms  {size / 2**20:>7.1f} MiB"
                    )

    def products(self, csr: Csr, b: Any) -> Iterator[tuple[str, Any, Callable[[], Prepared]]]:
        """The products: name, result array, and the function that prepares it."""
        ours = {"local": self.world.operators.spmm_rows}
        if self.world.gpu and hasattr(self.world.operators, "spmm_pieces"):
            ours["pieces"] = self.world.operators.spmm_pieces
        for label, product in ours.items():
            c = self.xp.full((csr.rows, b.shape[1]), np.nan, np.float32)
            yield label, c, partial(self.prepared, product, csr, b, c)
        if self.peers:
            plain = self.xp.ascontiguousarray(b)
            ones = self.xp.full(csr.arcs, 1 if b.dtype == np.float32 else BF16_ONE, b.dtype)
            for result in dict.fromkeys((np.dtype(np.float32), b.dtype)):
                for algorithm in ALGORITHMS:
                    c = self.xp.zeros((csr.rows, b.shape[1]), result)
                    label = f"cuSPARSE {algorithm}" + ", bf16 C" * (result == np.uint16)
                    yield label, c, partial(cusparse, self.xp, csr, ones, plain, c, algorithm)

    def prepared(self, product: Callable[..., object], csr: Csr, b: Any, c: Any) -> Prepared:
        """A product of MGG. Its second launch, when kernels are loaded, cuts the rows of a new indptr."""
        pool = self.xp.get_default_memory_pool() if self.world.gpu else None
        used: Callable[[], int] = getattr(pool, "used_bytes", lambda: 0)
        indices = self.world.upload(csr.indices)
        for _ in range(2):
            run = partial(product, self.world.upload(csr.indptr.copy()), indices, None, b, c, False)
            before = used()
            ms = self.once(run)
        return run, ms / 1e3, used() - before

    def summary(self) -> None:
        """Print the times of every product relative to ``local``, and their geometric mean."""
        for kind in dict.fromkeys(kind for _, kind, _ in self.times):
            cells = {(name, dim): taken for (name, of, dim), taken in self.times.items() if of == kind}
            ms = pd.DataFrame({cell: pd.Series(taken) for cell, taken in cells.items()})
            if (theirs := ms.index.str.startswith("cuSPARSE")).any():
                ms.loc["best of cuSPARSE"] = ms[theirs].min()
            ratios = ms / ms.loc["local"]
            ratios["mean", ""] = np.exp(np.log(ratios).mean(axis=1))
            ratios.loc["local, ms"] = ms.loc["local"]
            self.say(f"\n{kind}: times over those of local\n{ratios.round(3).to_string(na_rep='')}")


@click.command()
@OUT
@click.argument("layouts", type=click.Path(path_type=Path, exists=True, file_okay=False), nargs=-1, required=True)
@click.option("--dims", default="16,32,64,128", show_default=True, help="columns, separated by commas")
@click.option("--types", default=",".join(TYPES), show_default=True, help="separated by commas")
@click.option("--peers/--no-peers", default=True, show_default=True, help="whether to time cuSPARSE")
def main(out: Path, layouts: tuple[Path, ...], dims: str, types: str, peers: bool) -> None:
    """Check and time, and print tables."""

    def program(world: World) -> int:
        bench = Bench(world, out, peers)
        bench.about()
        for folder in layouts:
            facts = layout.load(folder, 0)
            if facts.size > 1 or facts.manifest.weighted:
                raise click.UsageError(f"{folder}: not the layout of a graph without weights for one PE")
            bench.graph(facts.manifest.name, facts.forward.local, [*map(int, dims.split(","))], types.split(","))
        bench.summary()
        bench.end()
        return bench.failed

    sys.exit(4 if launch("auto", lambda: 1, program)[0] else 0)


if __name__ == "__main__":
    main()
