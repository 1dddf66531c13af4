"""The benchmark graphs in memory: generated with a GPU's help, cut for the PEs of a job, checked by samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn
from unittest import mock

import cupy as cp
import numpy as np
from scipy import sparse

from mgg.aggregate import oracle
from mgg.aggregate.plan import Plan
from mgg.backend import World, job_size
from mgg.graph.csr import Csr
from mgg.graph.generators import communities
from mgg.layout import LayoutManifest, PeLayout
from mgg.layout.parts import Product
from mgg.layout.store import Direction
from mgg.partition.schemes import edge_balanced

#: Rows of a PE that are checked before a timing, beside the longest ones.
SAMPLE, LONGEST = 2_000, 50
#: Columns of the features, classes, and share of the nodes that are trained on.
WIDTHS = {"reddit-like": (602, 41, 0.66), "products-like": (100, 47, 0.08), "orkut-like": (128, 32, 0.5)}


def on_gpus(program: Callable[[World], int], patience: float = 120.0) -> NoReturn:
    """Run it on this job's PEs, which wait ``patience`` seconds for one another; code 4 where it counts failures."""
    from mgg.backend import nvshmem

    sys.exit(4 if nvshmem.run(lambda: job_size() or 1, program, timeout=patience)[0] else 0)


def _sorted(rows: np.ndarray, columns: np.ndarray, *, n: int, **_: bool) -> Csr:
    """What ``from_arcs`` makes of a benchmark graph's edges, on the GPU."""
    ends, starts = cp.asarray(rows), cp.asarray(columns)
    keep = ends != starts
    ends, starts = ends[keep].astype(cp.int64), starts[keep].astype(cp.int64)
    keys = cp.concatenate([ends * n + starts, starts * n + ends])
    del ends, starts, keep
    keys.sort()
    first = cp.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    keys = keys[first]
    indptr = cp.searchsorted(keys, cp.arange(n + 1, dtype=cp.int64) * n)
    csr = Csr(indptr.astype(cp.int64).get(), (keys % n).astype(cp.int32).get(), None, n)
    del keys, first, indptr
    cp.get_default_memory_pool().free_all_blocks()
    return csr


def generated(name: str, scale: float) -> Csr:
    """The graph that ``mgg generate`` makes: the same draws, sorted on the GPU."""
    return generated_at_once([name], scale)[name]


def generated_at_once(names: Sequence[str], scale: float) -> dict[str, Csr]:
    """``generated`` of several graphs, a thread each."""
    with mock.patch.object(communities, "from_arcs", _sorted), ThreadPoolExecutor() as pool:
        made = {name: pool.submit(communities.make, name, scale, communities.SEED, False) for name in names}
        return {name: each.result().csr for name, each in made.items()}


def pe_layout(world: World, csr: Csr, name: str) -> PeLayout:
    """This PE's part of a symmetric graph, edge-balanced, without node data (collective).

    The transposed product is the forward one: the graphs are symmetric and have no weights.
    """
    bounds = edge_balanced.bounds(csr.indptr, world.size)
    product = _product(world, csr, bounds)
    counts = _counts(world, product)
    manifest = LayoutManifest(
        name=name, graph_hash=name, nodes=csr.rows, arcs=csr.arcs, symmetric=True, weighted=False, features=0,
        classes=0, splits=False, ids=False, permuted=False, pes=world.size, scheme="edge_balanced", workgroup=8,
        bounds=bounds.tolist(), forward=counts, transpose=counts,
    )  # fmt: skip
    return PeLayout(manifest, world.rank, product, product, None, None, None)


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


def _product(world: World, csr: Csr, bounds: np.ndarray) -> Product:
    """This PE's rows of ``csr`` (collective)."""
    lo, hi = int(bounds[world.rank]), int(bounds[world.rank + 1])
    arcs = slice(csr.indptr[lo], csr.indptr[hi])
    columns = csr.indices[arcs]
    near = (columns >= lo) & (columns < hi)
    needed = np.zeros(csr.columns, bool)
    needed[columns[~near]] = True
    halo, place = np.flatnonzero(needed), np.cumsum(needed, dtype=columns.dtype) - columns.dtype.type(1)
    ends = csr.indptr[lo : hi + 1] - arcs.start
    before = np.concatenate(([0], np.cumsum(near)))[ends]
    halo_ptr = np.searchsorted(halo, bounds)
    halo_rows = (halo - np.repeat(bounds[:-1], np.diff(halo_ptr))).astype(columns.dtype)
    halos = world.gather((halo_ptr, halo_rows))
    wanted = [rows[ptr[world.rank] : ptr[world.rank + 1]] for ptr, rows in halos]
    return Product(
        local=Csr(before, columns[near] - columns.dtype.type(lo), None, hi - lo),
        remote=Csr(ends - before, place[columns[~near]], None, len(halo)),
        halo_ptr=halo_ptr,
        halo_rows=halo_rows,
        send_ptr=np.concatenate(([0], np.cumsum([len(rows) for rows in wanted]))),
        send_rows=np.concatenate(wanted),
        send_first=np.array([ptr[world.rank] for ptr, _ in halos], np.int64),
    )


def _counts(world: World, product: Product) -> Direction:
    everywhere = world.gather((product.local.arcs + product.remote.arcs, product.remote.arcs, product.halo))
    arcs, remote, halo = (list(column) for column in zip(*everywhere, strict=True))
    return Direction(arcs=arcs, remote_arcs=remote, halo_rows=halo)


class Sample:
    """Some rows of this PE and all of their arcs, for a float64 product (the longest rows are among them)."""

    def __init__(self, layout: PeLayout):
        product = layout.forward
        lengths = np.diff(product.local.indptr) + np.diff(product.remote.indptr)
        rng = np.random.default_rng(0)
        self.rows = np.union1d(rng.integers(0, layout.rows, SAMPLE), np.argsort(lengths)[-LONGEST:])
        parts = [_ones(part)[self.rows] for part in (product.local, product.remote)]
        matrix = sparse.hstack(parts, format="csr")
        used, matrix.indices = np.unique(matrix.indices, return_inverse=True)
        self._matrix = sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), (len(self.rows), len(used)))
        self._nodes = np.concatenate((layout.node_ids, oracle.halo_nodes(layout, product)))[used]

    def error(self, out: cp.ndarray) -> float:
        """max |C - C*| / (|A| |B|) of the sampled rows of ``out`` [rows, D]."""
        b = oracle.embeddings(self._nodes, out.shape[1]).astype(np.float64)
        return error_of(cp.asnumpy(out[cp.asarray(self.rows)]), self._matrix @ b, self._matrix @ np.abs(b))


def error_of(found: np.ndarray, product: np.ndarray, scale: np.ndarray) -> float:
    """max |C - C*| / (|A| |B|); infinite where C must be 0 and is not."""
    error = np.abs(found - product)
    if np.any(error[scale == 0] != 0) or not np.all(np.isfinite(error)):
        return np.inf
    return float((error[scale > 0] / scale[scale > 0]).max(initial=0.0))


Inputs = dict[int, Any]


def graphs_of(world: World, names: str, scale: float, dims: str) -> Iterator[tuple[str, PeLayout, Sample, Inputs]]:
    """Each graph's name, this PE's part, a sample of its rows and inputs by width (collective).

    Whoever deletes the last two at the end of its loop has their memory back for the next graph.
    """
    for name in names.split(","):
        layout = pe_layout(world, generated(name, scale), name)
        inputs = {dim: world.upload(oracle.embeddings(layout.node_ids, dim)) for dim in map(int, dims.split(","))}
        yield name, layout, Sample(layout), inputs
        del layout, inputs


def checked(world: World, plan: Plan, sample: Sample, inputs: Inputs) -> Iterator[tuple[int, float]]:
    """Each width and the error of its product, whose input is then in place; at the end the plan goes (collective)."""
    for dim, rows in inputs.items():
        plan.write(dim, rows)
        yield dim, max(world.gather(sample.error(plan(dim))))
    plan.close()
    cp.get_default_memory_pool().free_all_blocks()


def _ones(csr: Csr) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(csr.arcs), csr.indices, csr.indptr), (csr.rows, csr.columns))
