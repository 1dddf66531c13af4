"""Run vertex programs step by step on one PE with the whole graph: on the host, or by kernels for GPUs."""

from types import SimpleNamespace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from scipy import sparse

from mgg.graph.csr import Csr
from mgg.kernel.schedule import row_schedule
from mgg.layout.split import transposed
from mgg.model.arrays.host import HostArrays
from mgg.vertex import ir
from mgg.vertex.arcs import ArcTables, pointers
from mgg.vertex.autodiff import gradients
from mgg.vertex.cpu import host
from mgg.vertex.cuda import device
from mgg.vertex.cuda.execution import DEFAULT
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, R, S, T
from mgg.vertex.rewrites.passes import optimized
from mgg.vertex.run import Part, Work, dense
from mgg.vertex.units import Rows, is_weight_sum, schedule
from support.devices.on_host import generated, launch
from support.graphs.arc_graphs import drawn
from support.vertex.random_programs import programs, random_graph, values

#: Spaces (from, to) of sums in traced programs and their gradients; these have extremes over arcs only.
ADDED = {(E, D), (E, R), (E, S), (R, D), (R, T), (S, D), (E, P), (E, T), (D, P), (S, P), (T, P)}
MULTIPLIED = {(E, P), (E, T), (D, P), (S, P), (R, P), (R, T), (T, P), (T, T)}


def supported(value):
    """Whether traced programs and their gradients can have such a value."""
    spaces = value.inputs[0].space if value.inputs else None, value.space
    if value.op in ("maximum_of", "minimum_of", "winner"):
        return spaces in {(E, D), (E, R), (E, S)}
    return value.op not in ("total", "gram") or spaces in (ADDED if value.op == "total" else MULTIPLIED)


def space_of(x):
    """The space of ``x`` before casts and stops."""
    while x.op in ("cast", "stop", "reshape"):
        x = x.inputs[0]
    return x.space


def drawn_work(data):
    """A random program with gradients, and the interpreter's results.

    Returns:
        The values, optimized or not; the graph; inputs by name; options of ``worked_off``; the expected arrays.
    """
    graph = random_graph(data.draw(st.integers(0, 2**16)))
    outputs = values(data.draw(programs(graph.type_count)))
    # In traced programs products summed over rows are gradients, of which nothing by type is derived.
    assume(not any(value.op == "gram" and T in map(space_of, value.inputs) for value in ir.walk(outputs)))
    seeds = [ir.leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    inputs = [value for value in ir.walk(outputs) if value.op == "input"]
    before = [*outputs, *gradients(outputs, seeds, inputs)]
    wanted = optimized(before) if data.draw(st.booleans()) else before
    assume(all(supported(value) for value in ir.walk(wanted)))
    leaves = drawn(before, graph, seed=data.draw(st.integers(0, 2**16)))
    return wanted, graph, leaves, {"outputs": len(outputs), "seeds": seeds}, evaluate(before, graph, leaves)


def tables_of(graph):
    """The tables of a PE that has the whole ``graph`` of an interpreter."""
    n, ptr = graph.vertices, pointers(graph.targets, graph.vertices)
    out = transposed(Csr(ptr, graph.sources.astype(np.int32), None, n))
    return ArcTables(
        rows=n, sources=n, ptr=ptr, ends=graph.sources.astype(np.int32), weights=None,
        types=graph.types.astype(np.int32), runs=np.append(graph.firsts, len(graph.targets)),
        row_runs=pointers(graph.targets[graph.firsts], n), out_ptr=out.csr.indptr, out_ends=out.csr.indices,
        out_arcs=out.forward, ids=graph.ids, type_count=graph.type_count,
    )  # fmt: skip


def worked_off(wanted, graph, leaves, *, outputs=None, seeds=(), draws=(0, 0), fused=True, kernels=None, how=DEFAULT):
    """The arrays of ``wanted``: the first ``outputs`` without the ``seeds``, then the others with them.

    With ``kernels``, a ``KernelsOnHost``, the kernels for GPUs compute in float32 and divide arcs by ``how``.
    """
    shape = graph.vertices, graph.vertices
    real = np.float64 if kernels is None else np.float32

    def product(value, x, weights, before, after):
        weights = np.ones(len(graph.targets)) if weights is None else weights
        adjacency = sparse.coo_array((weights, (graph.targets, graph.sources)), shape=shape).tocsr()
        result = (adjacency.T if value["back"] else adjacency) @ (x if before is None else x * before)
        return (result if after is None else result * after).astype(real)

    weights = next((leaves[v["name"]] for v in ir.walk(wanted) if is_weight_sum(v) for v in v.inputs[1:]), None)
    degrees = np.bincount(graph.targets, weights, graph.vertices)
    tables = tables_of(graph)
    part = Part(
        graph.vertices, lambda: tables, HostArrays() if kernels is None else _Unset(), graph.ids, degrees, np.copy,
        np.asarray, np.copy, product, work=host.run, real=real,
    )  # fmt: skip
    known = {
        value: (leaves[value["name"]][None] if value.space is P else leaves[value["name"]]).astype(real)
        for value in ir.walk(wanted)
        if value.op == "input"
    }

    def do(steps, found, goals):
        work, random_draws = Work(steps, found, goals), draws
        if kernels is not None:
            work = device.DeviceWork(
                work, device.DeviceTables(lambda: tables, tables.rows, np.ascontiguousarray, kernels), how=how
            )
            random_draws = draws[0], np.array([float(draws[1])])
        work.run(found, part, random_draws)

    first, rest = wanted[:outputs], wanted[len(wanted[:outputs]) :]
    plan = schedule(first, rest, seeds, fused=fused)
    found = {value: array for value, array in known.items() if value not in seeds}
    early = [value for value in rest if not set(seeds) & set(ir.walk([value]))]
    do(plan.forward, found, [*first, *plan.kept, *plan.carried, *early])
    found |= known
    kept = {value: found[value] for value in [*known, *plan.kept, *plan.carried] if value in found}
    again = kept | {}
    late = [value for value in rest if value not in found]
    do([Rows(plan.again), *plan.backward], again, late)
    shapes = [(() if value.space is P else (graph.rows(value.space),), value.shape) for value in wanted]
    arrays = [dense((again | found)[value]) for value in wanted]  # a cast to runs may be a view
    return [
        np.broadcast_to(array[0] if value.space is P else array, rows + shape)
        for value, array, (rows, shape) in zip(wanted, arrays, shapes, strict=True)
    ]


class _Unset(HostArrays):
    """New arrays have NaN or -7, so that reads of unwritten elements show."""

    def empty(self, shape, dtype):
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -7, dtype)


class KernelsOnHost:
    """Generated kernels compiled by g++, with rows cut into pieces of ``task`` arcs.

    Args:
        folder: for the libraries.
        task: small, so that small graphs have rows that are cut.

    Attributes:
        launched: (source, kernel) in the order of launches.
    """

    def __init__(self, folder, task=32):
        self.folder, self.task, self.launched = folder, task, []
        self._libraries = {}

    def schedule(self, ptr, columns):
        """As ``CudaOperators.schedule``."""
        cut = row_schedule(ptr, self.task)
        rows = np.repeat(cut.split_rows, np.diff(cut.split_first)).astype(np.int32)
        return None, SimpleNamespace(
            begin=cut.begin, target=cut.target, slot_rows=rows, slots=cut.slots, split_rows=cut.split_rows,
            split_first=cut.split_first, splits=cut.splits,
        )  # fmt: skip

    def kernel(self, build, name):
        """As ``CudaOperators.kernel``."""
        if build.source not in self._libraries:
            self._libraries[build.source] = generated(self.folder, build)

        def call(grid, block, given):
            self.launched.append((build.source, name))
            launch(self._libraries[build.source], name, grid, block[0], *map(np.asarray, given))

        return call
