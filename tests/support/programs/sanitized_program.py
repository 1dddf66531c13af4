"""Launch every kernel on small graphs, for compute-sanitizer: ``python sanitized_program.py BACKEND LAYOUT...``.

BACKEND ``threads``: two PEs on one GPU run all techniques, one PE at a time; then the remaining operators are called.
``nvshmem``: MPI ranks run the kernels that call NVSHMEM; a single rank fetches half of its rows from itself.
``nvshmem:TECHNIQUE``: two ranks run a technique whose kernel reads the other's memory. Each array has an allocation of
its own instead of a piece of CuPy's pool, so that accesses out of bounds are noticed. The layouts are for two PEs, for
a single rank for one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import World, job_size, launch
from mgg.backend.emulated.device_port import DevicePort
from mgg.graph.csr import Csr, row_ids
from mgg.kernel import compile as build
from mgg.kernel import cuda
from mgg.kernel.cola import column_schedule
from mgg.kernel.cuda.lookups import CudaLookups
from mgg.kernel.groups import Groups, GroupSetting, groups_of
from mgg.kernel.pitch import row_pitch
from mgg.kernel.random import Draws
from mgg.kernel.wire import words
from mgg.layout import PeLayout, Product
from mgg.layout.neighbor_partitions import neighbor_partitions
from mgg.layout.split import transposed
from support.programs.spmm_program import VARIANTS, inputs, products, variant
from support.ranks.turns import Turns

#: Every load size, and tiles of columns: narrow, full, several, two widths.
DIMS = (1, 41, 64, 80, 130)
WITH_NVSHMEM = [label for label, (_, options, _) in VARIANTS.items() if options.get("primitive", "direct") != "direct"]

#: Technique -> its variants on two ranks. Kernels read the other rank's memory, and those of halo wait for its flags;
#: with two workgroups rows are put between them.
WITH_PEERS = {
    "halo": ["halo", "halo:1", "halo:2-bf16"],
    "cola": ["cola", "cola:1"],
    "mgg": ["mgg", "mgg:synchronous", "mgg:whole-rows", "mgg:merged"],
}


def recording_cubin(built: set[str]) -> Callable[..., Path]:
    """``cubin``, which also adds the names of requested sources to ``built``."""

    def cubin(source: Path, *rest: Any) -> Path:
        built.add(source.stem)
        return build.cubin(source, *rest)

    return cubin


def call_operators(csr: Csr) -> None:
    """Call operators, with both types of ids, that the techniques on two PEs may not need."""
    operators, rows = cuda.CudaOperators(), csr.rows
    pieces, columns = neighbor_partitions(csr.indptr, 3), transposed(csr).csr
    some = np.random.default_rng(0).integers(0, rows, 3 * rows)
    for ids in (np.int32, np.int64):
        indptr, indices = cp.asarray(csr.indptr), cp.asarray(csr.indices.astype(ids))
        weights = None if csr.weights is None else cp.asarray(csr.weights)
        for dim in DIMS:
            b, out = cp.ones((rows, dim), np.float32), cp.zeros((rows, dim), np.float32)
            operators.spmm_rows(indptr, indices, weights, b, out, True)
            starts = [cp.asarray(array) for array in (pieces.rows, pieces.starts, pieces.stops)]
            operators.spmm_partitions(*starts, indices, weights, b, out)
            pointer, targets = cp.asarray(columns.indptr), cp.asarray(columns.indices.astype(ids))
            operators.spmm_columns(pointer, targets, None, b, out)
            by_column = Csr(columns.indptr, columns.indices.astype(ids), columns.weights, rows)
            schedule = column_schedule(by_column, np.arange(rows), np.arange(rows, dtype=np.uint64))
            operators.cola_kernel(schedule, cp.asarray(np.array([b.data.ptr], np.uint64)))(b, out)
            for setting in (
                GroupSetting(2, 5, 96, aligned=False),
                GroupSetting(1, 32, 64, ordered=False),
                GroupSetting(3, 8, 32),
            ):
                operators.gnnadvisor(on_device(groups_of(csr.indptr, setting)), indices, weights, b, out, setting)
            gathered = cp.zeros((len(some), dim), np.float32)
            operators.gather_rows(b, cp.asarray(some.astype(ids)), gathered)
            operators.add_rows(b, cp.arange(rows, dtype=ids)[::-1].copy(), gathered)
            for element in (np.float32, np.uint16):  # padded rows, and unaligned ones
                padded = cp.zeros((rows, row_pitch(dim, np.dtype(element).itemsize)), element)[:, :dim]
                for into in (padded, cp.zeros((rows, dim + 2), element)[:, 1 : dim + 1]):
                    operators.write(b, into)
                    pack_and_unpack(operators, into, cp.asarray(some.astype(ids)))
                    operators.spmm_rows(
                        indptr, indices, weights, into, cp.zeros((rows, dim + 1), np.float32)[:, 1:], False
                    )
            port = DevicePort(operators)
            for seconds in (1e-5, 0.0):
                port.take(seconds, 1e-6)
            port.settle()
            lookups(CudaLookups(operators), cp.asarray(some[: rows // 3 * 3].astype(ids).reshape(-1, 3)), b)
    cp.cuda.Device().synchronize()


def pack_and_unpack(operators: cuda.CudaOperators, matrix: Any, rows: Any) -> None:
    """Pack rows of ``matrix`` into few bits, and unpack them."""
    for bits in (2, 4, 8, 16):
        packed = cp.zeros((len(rows), words(matrix.shape[1], bits)), np.uint32)
        operators.pack_rows(matrix, rows, rows.astype(np.int64), Draws(0, cp.ones(1), 0), bits, packed)
        operators.unpack_rows(packed[: len(matrix)], bits, matrix)


def on_device(groups: Groups) -> Groups:
    """The same groups in arrays of the GPU."""
    arrays = {key: cp.asarray(value) for key, value in vars(groups).items() if isinstance(value, np.ndarray)}
    return replace(groups, **arrays)


def lookups(kernels: CudaLookups, bags: Any, rows: Any) -> None:
    """Look up bags in a matrix, and in two PEs that both have it."""
    out, peers = cp.zeros((len(bags), rows.shape[1]), np.float32), kernels.peers({0: rows, 1: rows})
    kernels.group(bags, 2, 0, cp.zeros(2 * bags.size, bags.dtype), cp.zeros(2, np.int32))
    kernels.pool(bags, rows, rows, out)
    kernels.direct(bags, peers, out)
    kernels.mgg(bags, 0, peers, out)


def fetching_from_itself(part: PeLayout) -> PeLayout:
    """The layout of one PE, with every other row of its own as its halo."""
    whole = part.forward
    targets = row_ids(whole.local)
    fetched = whole.local.indices % 2 == 1
    halo, places = np.unique(whole.local.indices[fetched], return_inverse=True)

    def arcs(chosen: np.ndarray, columns: np.ndarray, width: int) -> Csr:
        indptr = np.concatenate([[0], np.cumsum(np.bincount(targets[chosen], minlength=whole.rows))])
        weights = None if whole.local.weights is None else whole.local.weights[chosen]
        return Csr(indptr.astype(np.int64), columns.astype(np.int32), weights, width)

    product = Product(
        local=arcs(~fetched, whole.local.indices[~fetched], part.rows),
        remote=arcs(fetched, places, len(halo)),
        halo_ptr=np.array([0, len(halo)]),
        halo_rows=halo.astype(np.int32),
        send_ptr=np.array([0, len(halo)]),
        send_rows=halo.astype(np.int32),
        send_first=np.zeros(1, np.int64),
    )
    return replace(part, forward=product)


def run_on_one_rank(world: World, folder: Path) -> None:
    """Run the variants that call NVSHMEM; their products equal the one without a halo."""
    part = layout.load(folder, 0)
    for dim in DIMS:
        b = world.upload(inputs(part.node_ids, dim))
        found = []
        for label, layout_of_pe in (("local", part), *((label, fetching_from_itself(part)) for label in WITH_NVSHMEM)):
            name, options, _ = variant(label)
            plan = prepare(name, world, layout_of_pe, "forward", dim, options)
            plan.input(dim)[:] = b
            found.append(world.download(plan(dim)).copy())
            plan.close()
        for product in found[1:]:
            np.testing.assert_allclose(product, found[0], rtol=1e-4, atol=1e-4)


def main(backend: str, folders: list[Path]) -> None:
    """Run the kernels, and print ``ok`` if all expected ones were launched."""
    cp.cuda.set_allocator(None)
    built: set[str] = set()
    cuda.cubin = recording_cubin(built)
    backend, _, technique = backend.partition(":")
    labels = WITH_PEERS.get(technique, WITH_NVSHMEM)
    if backend == "threads":
        labels = [*all_techniques(), *(label for label in VARIANTS if label not in WITH_NVSHMEM)]

    def program(world: World) -> None:
        for folder in folders:
            if backend == "nvshmem" and world.size == 1:
                run_on_one_rank(world, folder)
            else:
                products(world, folder, DIMS, only=labels)

    if backend == "nvshmem":
        launch(backend, job_size, program)
        wanted = {technique or "mgg"}
    else:
        from mgg.backend.threads import run

        # If two threads launch at once, racecheck loses launches ("failure to track a kernel launch") or hangs.
        turns = Turns(lambda: cp.cuda.Device().synchronize())

        def in_turns(world: World) -> None:
            with turns:
                program(world)

        run(2, in_turns, devices=[0])
        for folder in folders:
            call_operators(layout.load(folder, 0).product("forward").local)
        wanted = {path.stem for path in build.source_folder().glob("*/*.cu")}
    assert built >= wanted, f"never launched: {wanted - built}"
    print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [Path(name) for name in sys.argv[2:]])
