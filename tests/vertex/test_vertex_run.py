"""Programs as CPU ranks work them off, units of numba loops between operations on rows, against the interpreter."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.arc_graphs import drawn
from support.random_programs import programs, random_graph, values

from mgg.graph.csr import Csr
from mgg.layout.split import transposed
from mgg.model.arrays.host import HostArrays
from mgg.vertex import host, ir
from mgg.vertex.arcs import ArcTables, pointers
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, R, S, T
from mgg.vertex.passes import optimized
from mgg.vertex.run import Part, run
from mgg.vertex.units import Rows, schedule


def tables_of(graph):
    """The tables of the one PE that has all of an interpreter's ``graph``."""
    n, ptr = graph.vertices, pointers(graph.targets, graph.vertices)
    out = transposed(Csr(ptr, graph.sources.astype(np.int32), None, n))
    return ArcTables(
        rows=n, sources=n, ptr=ptr, ends=graph.sources.astype(np.int32), weights=None,
        types=graph.types.astype(np.int32), runs=np.append(graph.firsts, len(graph.targets)),
        row_runs=pointers(graph.targets[graph.firsts], n), out_ptr=out.csr.indptr, out_ends=out.csr.indices,
        out_arcs=out.forward, ids=graph.ids, type_count=graph.type_count,
    )  # fmt: skip


def worked_off(wanted, graph, leaves, *, outputs=None, seeds=(), draws=(0, 0), fused=True):
    """Arrays of ``wanted``, of which the first ``outputs`` are made before the others and the ``seeds`` are known."""
    shape = graph.vertices, graph.vertices

    def product(x, weights, back):
        weights = np.ones(len(graph.targets)) if weights is None else weights
        adjacency = sparse.coo_array((weights, (graph.targets, graph.sources)), shape=shape).tocsr()
        return (adjacency.T if back else adjacency) @ x

    part = Part(tables_of(graph), HostArrays(), np.copy, np.copy, product, work=host.run, real=np.float64)
    known = {
        value: leaves[value["name"]][None] if value.space is P else leaves[value["name"]]
        for value in ir.walk(wanted)
        if value.op == "input"
    }
    first, rest = wanted[:outputs], wanted[len(wanted[:outputs]) :]
    plan = schedule(first, rest, seeds, fused=fused)
    found = {value: array for value, array in known.items() if value not in seeds}
    early = [value for value in rest if not set(seeds) & set(ir.walk([value]))]
    run(plan.forward, found, part, draws=draws, wanted=[*first, *plan.kept, *plan.carried, *early])
    found |= known
    kept = {value: found[value] for value in [*known, *plan.kept, *plan.stored] if value in found}
    again = kept | {}
    run([Rows(plan.again), *plan.backward], again, part, draws=draws, wanted=[*(v for v in rest if v not in found)])
    shapes = [(() if value.space is P else (graph.rows(value.space),), value.shape) for value in wanted]
    arrays = [(again | found)[value] for value in wanted]
    return [
        np.broadcast_to(array[0] if value.space is P else array, rows + shape)
        for value, array, (rows, shape) in zip(wanted, arrays, shapes, strict=True)
    ]


@pytest.fixture
def interpreted(monkeypatch):
    """Sources of units are run by Python: the same text, and nothing to compile."""

    def plain(source):
        names = {}
        text = host.HEAD.replace("import numba", "from support import plain as numba") + source
        exec(compile(text, "unit", "exec"), names)  # noqa: S102 - what we wrote
        return names["unit"]

    monkeypatch.setattr(host, "compiled", plain)


#: What programs that were traced add up, and their gradients; they have extremes of arcs alone.
ADDED = {(E, D), (E, R), (E, S), (R, D), (R, T), (S, D), (E, P), (E, T), (D, P), (S, P)}
MULTIPLIED = {(E, P), (E, T), (D, P), (S, P), (R, P), (R, T)}


def supported(value):
    spaces = value.inputs[0].space if value.inputs else None, value.space
    if value.op in ("maximum_of", "minimum_of", "winner"):
        return spaces in {(E, D), (E, R), (E, S)}
    return value.op not in ("total", "gram") or spaces in (ADDED if value.op == "total" else MULTIPLIED)


def check(data):
    graph = random_graph(data.draw(st.integers(0, 2**16)))
    outputs = values(data.draw(programs(graph.type_count)))
    seeds = [ir.leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    inputs = [value for value in ir.walk(outputs) if value.op == "input"]
    before = [*outputs, *gradients(outputs, seeds, inputs)]
    wanted = optimized(before) if data.draw(st.booleans()) else before
    assume(all(supported(value) for value in ir.walk(wanted)))
    leaves = drawn(before, graph, seed=data.draw(st.integers(0, 2**16)))
    fused = data.draw(st.booleans())
    found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, fused=fused)
    for value, array, expected in zip(wanted, found, evaluate(before, graph, leaves), strict=True):
        if expected.size:
            assert np.abs(array - expected).max() <= 1e-9 * max(1, np.abs(expected).max()), value


@pytest.mark.usefixtures("interpreted")
@settings(max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_some_programs(data):
    check(data)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@settings(max_examples=300, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_programs(data):
    check(data)
