"""Programs as CPU ranks work them off, units of numba loops between operations on rows, against the interpreter."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from support.arc_graphs import awkward, drawn
from support.random_programs import graphs, programs, values

from mgg.graph.csr import Csr
from mgg.layout.split import transposed
from mgg.model.arrays.host import HostArrays
from mgg.vertex import host, ir
from mgg.vertex.arcs import ArcTables, pointers
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, R, S, T
from mgg.vertex.run import Part, run
from mgg.vertex.units import schedule


def tables_of(graph):
    """The tables of the one PE that has all of an interpreter's ``graph``."""
    n, ptr = graph.vertices, pointers(graph.targets, graph.vertices)
    out = transposed(Csr(ptr, graph.sources.astype(np.int32), None, n))
    return ArcTables(
        rows=n, sources=n, ptr=ptr, ends=graph.sources.astype(np.int32), weights=None,
        types=graph.types.astype(np.int32), numbers=graph.order, runs=np.append(graph.firsts, len(graph.targets)),
        row_runs=pointers(graph.targets[graph.firsts], n), out_ptr=out.csr.indptr, out_ends=out.csr.indices,
        out_arcs=out.forward, ids=graph.ids, type_count=graph.type_count,
    )  # fmt: skip


def worked_off(wanted, graph, leaves, draws=(0, 0)):
    part = Part(
        tables_of(graph), HostArrays(), fetch=np.copy, give_back=np.copy, product=None, work=host.run, real=np.float64
    )
    found = {
        value: leaves[value["name"]][None] if value.space is P else leaves[value["name"]]
        for value in ir.walk(wanted)
        if value.op == "input"
    }
    run(schedule(wanted).forward, found, part, draws=draws, wanted=wanted)
    return [
        np.broadcast_to(found[value][0] if value.space is P else found[value], shape.shape)
        for value, shape in zip(wanted, evaluate(wanted, graph, leaves), strict=True)
    ]


@pytest.fixture
def interpreted(monkeypatch):
    """Sources of units are run by Python: the same text, and nothing to compile."""

    def plain(source):
        names = {}
        exec(
            compile(host.HEAD.replace("import numba", "from support import plain as numba") + source, "unit", "exec"),
            names,
        )
        return names["unit"]

    monkeypatch.setattr(host, "compiled", plain)


#: What programs that were traced aggregate.
AGGREGATED = {(E, D), (E, R), (E, S), (R, D), (R, T), (S, D), (E, P), (E, T), (D, P), (S, P)}


def supported(value):
    if value.op in ("total", "maximum_of", "minimum_of", "winner"):
        spaces = value.inputs[0].space, value.space
        return spaces in AGGREGATED if value.op == "total" else spaces in {(E, D), (E, R), (E, S)}
    return value.op != "gram" or (value.inputs[0].space, value.space) in {
        (E, P),
        (E, T),
        (D, P),
        (S, P),
        (R, P),
        (R, T),
    }


def check(data):
    graph = data.draw(graphs())
    outputs = values(data.draw(programs(graph.type_count)))
    seeds = [ir.leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    inputs = [value for value in ir.walk(outputs) if value.op == "input"]
    wanted = [*outputs, *gradients(outputs, seeds, inputs)]
    assume(all(supported(value) for value in ir.walk(wanted)))
    leaves = drawn(wanted, graph, seed=data.draw(st.integers(0, 2**16)))
    for value, found, expected in zip(
        wanted, worked_off(wanted, graph, leaves), evaluate(wanted, graph, leaves), strict=True
    ):
        assert found.shape == expected.shape
        if expected.size:
            assert np.abs(found - expected).max() <= 1e-10 * max(1, np.abs(expected).max()), value


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@settings(
    max_examples=60,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_random_programs(data):
    check(data)


def test_it():
    graph = awkward()
