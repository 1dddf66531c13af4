"""Tracing: what the programs of the documentation become, node by node, and what programs compute, vertex by vertex."""

import numpy as np
import pytest

from mgg import vertex as V
from mgg.vertex import ir
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, P, R, S, T, Value


@V.program
def gcn(v, W):
    return v.norm * V.sum(u.norm * (u.x @ W) for u in v.innbs)


@V.program
def gat(v, W, a, b, rate):
    s = [V.leaky_relu(V.dot(u.x @ W, a) + V.dot(v.x @ W, b), 0.2) for u in v.innbs]
    p = V.dropout(V.softmax(s), rate)
    return V.sum(q * (u.x @ W) for q, u in zip(p, v.innbs))  # noqa: B905


@V.program
def rgcn(v, W):
    return V.sum(V.mean(e.src.x @ W[t] for e in v.inedges[t]) for t in v.types)


@V.program
def gated(v, A, B, C, D, E):
    z = [v.x @ D + e.src.x @ E + e.f @ C for e in v.inedges]
    g = [V.sigmoid(x) for x in z]
    return v.x @ A + V.sum(y * (e.src.x @ B) for y, e in zip(g, v.inedges)) / (V.sum(g) + 1e-6), V.keep(z)  # noqa: B905


GATED = dict.fromkeys("ABDE", (6, 2)) | {"C": (5, 2)}


def same(value: Value, expected: Value, meaning: str = "output") -> None:
    """Both are the same down to their leaves; where they are written aside."""
    for name in ("op", "space", "shape", "attributes"):
        assert getattr(value, name) == getattr(expected, name), (meaning, name)
    assert len(value.inputs) == len(expected.inputs), meaning
    for number, (one, other) in enumerate(zip(value.inputs, expected.inputs, strict=True)):
        same(one, other, f"{meaning} {value.op} {number}")


def node(op, space, shape, *inputs, **attributes):
    """A value as a person writes it, without the constructors that tracing uses."""
    return Value(op, inputs, space, shape, tuple(attributes.items()))


def leaf(name, space, shape):
    return node("input", space, shape, name=name)


def to(space, value):
    return node("cast", space, value.shape, value)


def number(value, space):
    return to(space, node("constant", P, (), value=value))


def test_gcn_traces_to_its_representation():
    trace = gcn.trace({"x": (16,)}, {"W": (16, 8)})
    norm, x, W = leaf("norm", D, ()), leaf("x", D, (16,)), leaf("W", P, (16, 8))
    sent = node("multiply", S, (8,), to(S, norm), node("matmul", S, (8,), to(S, x), W))
    same(trace.outputs[0], node("multiply", D, (8,), norm, node("total", D, (8,), to(E, sent))))
    assert len(trace.outputs) == 1
    assert list(trace.inputs) == ["norm", "x"] and trace.inputs["norm"].space is D
    assert list(trace.parameters) == ["W"] and trace.parameters["W"].space is P
    assert (trace.name, trace.loops, trace.types, trace.dropouts) == ("gcn", False, 0, ())
    assert trace.file == __file__
    with open(__file__) as lines:  # noqa: PTH123
        assert list(lines)[trace.line - 1] == "def gcn(v, W):\n"


@pytest.mark.parametrize("dropped", [True, False])
def test_gat_traces_to_its_representation(dropped):
    given = {"W": (16, 4, 8), "a": (4, 8), "b": (4, 8), "rate": 0.5}
    trace = gat.trace({"x": (16,)}, given, training=dropped)
    x, W, a, b = leaf("x", D, (16,)), leaf("W", P, (16, 4, 8)), leaf("a", P, (4, 8)), leaf("b", P, (4, 8))
    h, own = node("matmul", S, (4, 8), to(S, x), W), node("matmul", D, (4, 8), x, W)
    score = node("add", E, (4,), to(E, node("dot", S, (4,), h, to(S, a))), to(E, node("dot", D, (4,), own, to(D, b))))
    score = node("leaky_relu", E, (4,), score, slope=0.2)
    top = node("stop", D, (4,), node("maximum_of", D, (4,), score))
    part = node("exp", E, (4,), node("subtract", E, (4,), score, to(E, top)))
    share = node("divide", E, (4,), part, to(E, node("total", D, (4,), part)))
    if dropped:
        share = node("multiply", E, (4,), share, node("mask", E, (4,), rate=0.5, place=0, flipped=False))
    same(trace.outputs[0], node("total", D, (4, 8), node("multiply", E, (4, 8), share, to(E, h))))
    assert trace.dropouts == ((0.5,) if dropped else ())
    assert list(trace.parameters) == ["W", "a", "b"]


def test_rgcn_traces_to_its_representation():
    trace = rgcn.trace({"x": (16,)}, {"W": (3, 16, 8)}, types=3)
    x, W = leaf("x", D, (16,)), leaf("W", P, (3, 16, 8))
    sent = node("matmul", E, (8,), to(E, to(S, x)), to(E, node("by_type", T, (16, 8), W, types=3)))
    count = node("maximum", R, (), node("total", R, (), number(1.0, E)), number(1.0, R))
    mean = node("multiply", R, (8,), node("total", R, (8,), sent), node("reciprocal", R, (), count))
    same(trace.outputs[0], node("total", D, (8,), mean))
    assert trace.types == 3


def test_gated_model_traces_to_its_representation():
    trace = gated.trace({"x": (6,)}, GATED, arc_inputs={"f": (5,)})
    x, f = leaf("x", D, (6,)), leaf("f", E, (5,))
    A, B, C, own, other = (leaf(name, P, GATED[name]) for name in "ABCDE")
    z = node(
        "add", E, (2,),
        node("add", E, (2,), to(E, node("matmul", D, (2,), x, own)), to(E, node("matmul", S, (2,), to(S, x), other))),
        node("matmul", E, (2,), f, C),
    )  # fmt: skip
    g = node("sigmoid", E, (2,), z)
    above = node("total", D, (2,), node("multiply", E, (2,), g, to(E, node("matmul", S, (2,), to(S, x), B))))
    below = node("add", D, (2,), node("total", D, (2,), g), number(1e-6, D))
    same(
        trace.outputs[0],
        node("add", D, (2,), node("matmul", D, (2,), x, A), node("divide", D, (2,), above, below)),
    )
    same(trace.outputs[1], z)
    assert [output.space for output in trace.outputs] == [D, E]
    assert {name: leaf.space for name, leaf in trace.inputs.items()} == {"x": D, "f": E}


# What programs compute, on a graph worked off vertex by vertex: vertex 3 has no arcs, 0 has some of two types.

ARCS = np.array([(0, 1, 0), (0, 2, 0), (0, 0, 1), (1, 0, 1), (1, 2, 0), (2, 1, 1)])  # target, source, type
VERTICES = 4
GRAPH = ArcGraph.of(VERTICES, *ARCS.T, 2)
TARGETS, SOURCES, ARC_TYPES = GRAPH.targets, GRAPH.sources, GRAPH.types
RNG = np.random.default_rng(5)
X, F, WEIGHT = RNG.normal(size=(VERTICES, 4)), RNG.normal(size=(6, 4)), RNG.uniform(1, 2, size=6)


def result(function, loops=False, **parameters):
    """The program's first output on this graph; parameters are arrays."""
    trace = V.program(loops=loops)(function).trace(
        {"x": (4,)}, {name: array.shape for name, array in parameters.items()}, arc_inputs={"f": (4,)}, types=2
    )
    leaves = {"x": X, "f": F, "weight": WEIGHT, "norm": 1 / (1 + np.arange(4.0)), **parameters}
    [array] = evaluate(trace.outputs[:1], GRAPH, leaves)
    assert array.shape == (VERTICES, *trace.outputs[0].shape)
    return array


def by_vertex(formula):
    """``formula(v, arcs)`` for every vertex."""
    return np.array([formula(v, np.flatnonzero(v == TARGETS)) for v in range(VERTICES)])


def axis0(how, array):
    return how(array, axis=0) if len(array) else np.zeros(array.shape[1:])


AGGREGATED = {
    "sum": (lambda v: V.sum(u.x for u in v.innbs), lambda v, arcs: X[SOURCES[arcs]].sum(0)),
    "mean": (lambda v: V.mean([u.x for u in v.innbs]), lambda v, arcs: axis0(np.mean, X[SOURCES[arcs]])),
    "max": (
        lambda v: V.max(e.f * e.src.x for e in v.inedges),
        lambda v, arcs: axis0(np.max, F[arcs] * X[SOURCES[arcs]]),
    ),
    "min": (lambda v: V.min(u.x + v.x for u in v.innbs), lambda v, arcs: axis0(np.min, X[SOURCES[arcs]] + X[v])),
    "std": (lambda v: V.std(u.x for u in v.innbs), lambda v, arcs: axis0(np.std, X[SOURCES[arcs]])),
    "std of equal ones": (lambda v: V.std(1e-3 * u.x for u in v.innbs), lambda v, arcs: np.zeros(4)),
    "degree": (lambda v: v.degree, lambda v, arcs: len(arcs)),
    "degree of sources": (
        lambda v: V.sum(u.degree for u in v.innbs),
        lambda v, arcs: sum((u == TARGETS).sum() for u in SOURCES[arcs]),
    ),
    "weight": (lambda v: V.sum(e.weight * e.dst.x for e in v.inedges), lambda v, arcs: WEIGHT[arcs].sum() * X[v]),
    "norm": (
        lambda v: v.norm * V.sum(u.norm for u in v.innbs),
        lambda v, arcs: (1 / (1 + SOURCES[arcs])).sum() / (1 + v),
    ),
    "softmax": (
        lambda v: V.sum(p * u.x for p, u in zip(V.softmax(e.f for e in v.inedges), v.innbs, strict=True)),
        lambda v, arcs: (np.exp(F[arcs]) / np.exp(F[arcs]).sum(0) * X[SOURCES[arcs]]).sum(0),
    ),
    "mean of types": (
        lambda v: V.mean(V.sum(e.f for e in v.inedges[t]) for t in v.types),
        lambda v, arcs: F[arcs].sum(0) / max(len(set(ARC_TYPES[arcs])), 1),
    ),
    "max of types": (
        lambda v: V.max(V.mean(e.f for e in v.inedges[t]) for t in v.types),
        lambda v, arcs: axis0(
            np.max,
            np.array([F[arcs][ARC_TYPES[arcs] == t].mean(0) for t in sorted(set(ARC_TYPES[arcs]))]).reshape(-1, 4),
        ),
    ),
    "for statement": (
        lambda v: [s := [], [s.append(u.x - v.x) for u in v.innbs], V.sum(s)][2],
        lambda v, arcs: (X[SOURCES[arcs]] - X[v]).sum(0),
    ),
    "aggregate in a loop": (
        lambda v: V.sum(u.x * V.mean(w.x for w in v.innbs) for u in v.innbs),
        lambda v, arcs: X[SOURCES[arcs]].sum(0) * axis0(np.mean, X[SOURCES[arcs]]),
    ),
}


@pytest.mark.parametrize("name", AGGREGATED)
def test_aggregations_trace_to_their_operations(name):
    function, formula = AGGREGATED[name]
    np.testing.assert_allclose(result(function), by_vertex(formula), rtol=1e-12, atol=1e-14)


def test_parameters_are_selected_by_arc_type():
    W, b = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 3))
    expected = by_vertex(lambda v, arcs: sum((X[SOURCES[a]] @ W[ARC_TYPES[a]] for a in arcs), np.zeros(3)))
    by_arc = result(lambda v, W: V.sum(e.src.x @ W[e.type] for e in v.inedges), W=W)
    by_run = result(lambda v, W: V.sum(V.sum(e.src.x for e in v.inedges[t]) @ W[t] for t in v.types), W=W)
    np.testing.assert_allclose(by_arc, expected, rtol=1e-12)
    np.testing.assert_allclose(by_run, expected, rtol=1e-12)
    there = by_vertex(lambda v, arcs: sum((b[t] for t in set(ARC_TYPES[arcs])), np.zeros(3)))
    np.testing.assert_allclose(result(lambda v, b: V.sum(b[t] for t in v.types), b=b), there, rtol=1e-12)


def test_parameter_entries_can_be_indexed():
    W = RNG.normal(size=(3, 4, 2))
    np.testing.assert_allclose(result(lambda v, W: v.x @ W[1] + v.x @ W[-1], W=W), X @ (W[1] + W[2]), rtol=1e-12)


def test_correlation_traces_to_its_representation():
    z, kinds = RNG.normal(size=4), RNG.normal(size=(2, 4))

    def correlated(x, z):  # by the convolution theorem
        return np.fft.irfft(np.fft.rfft(x).conj() * np.fft.rfft(z), 4)

    np.testing.assert_allclose(result(lambda v, z: V.correlate(v.x, z), z=z), correlated(X, z), rtol=1e-12)
    by_type = result(lambda v, z: V.sum(V.correlate(e.src.x, z[e.type]) for e in v.inedges), z=kinds)
    expected = by_vertex(lambda v, arcs: correlated(X[SOURCES[arcs]], kinds[ARC_TYPES[arcs]]).sum(0))
    np.testing.assert_allclose(by_type, expected, rtol=1e-12, atol=1e-14)


def test_numbers_per_type_become_a_parameter():
    """Made of numbers alone: 2 for the first type, 3 for the second."""
    found = result(lambda v, W: V.sum(V.concat(V.repeat(2, 1), V.repeat(3, 1))[e.type] * e.f for e in v.inedges), W=X)
    expected = by_vertex(lambda v, arcs: ((2 + ARC_TYPES[arcs])[:, None] * F[arcs]).sum(0))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


ELEMENTWISE = {
    "left": (lambda x: (1 + x) * 2 - (3 - x) / 4 - x / 2, lambda x: (1 + x) * 2 - (3 - x) / 4 - x / 2),
    "right": (lambda x: 2 / (x**2 + 1) + -x + abs(+x), lambda x: 2 / (x**2 + 1) - x + np.abs(x)),
    "numpy numbers": (lambda x: np.float64(2) * x - np.float32(1), lambda x: 2 * x - 1),
    "numpy number less": (lambda x: np.float64(0.1) < x, lambda x: 1.0 * (x > 0.1)),
    "compare": (lambda x: (x > 0) + 2 * (x < 0.5), lambda x: 1.0 * (x > 0) + 2 * (x < 0.5)),
    "not less": (lambda x: (x >= X[0, 0]) + 2 * (x <= X[1, 1]), lambda x: 1.0 * (x >= X[0, 0]) + 2 * (x <= X[1, 1])),
    "equal": (lambda x: (x == X[0, 0]) + 2 * (x != X[1, 1]), lambda x: 1.0 * (x == X[0, 0]) + 2 * (x != X[1, 1])),
    "exp log": (lambda x: V.exp(x) + V.log(V.abs(x)), lambda x: np.exp(x) + np.log(np.abs(x))),
    "sqrt tanh": (lambda x: V.sqrt(x * x) + V.tanh(x), lambda x: np.abs(x) + np.tanh(x)),
    "rectified": (
        lambda x: V.relu(x) + V.leaky_relu(x, 0.3) + V.elu(x),
        lambda x: np.where(x > 0, 3 * x, 0.3 * x + np.exp(x) - 1),
    ),
    "sigmoid": (V.sigmoid, lambda x: np.exp(x) / (1 + np.exp(x))),
    "choice": (
        lambda x: V.where(x > 0, V.maximum(x, 0.5), V.minimum(x, -0.5)),
        lambda x: np.where(x > 0, np.clip(x, 0.5, None), np.clip(x, None, -0.5)),
    ),
    "numbers alone": (lambda x: x * V.sqrt(4.0), lambda x: 2 * x),
    "heads": (lambda x: V.heads(x, 2), lambda x: x.reshape(-1, 2, 2)),
    "repeat": (
        lambda x: V.reshape(V.repeat(x, 3), (3, 4)) + V.repeat(x, 3, 0),
        lambda x: x.repeat(3, 1).reshape(-1, 3, 4) + x[:, None],
    ),
    "mean of heads": (lambda x: V.mean_of_heads(V.heads(x, 2)), lambda x: (x[:, :2] + x[:, 2:]) / 2),
    "flatten": (lambda x: V.flatten(V.reshape(x, (2, 1, 2))), lambda x: x),
    "axes": (
        lambda x: V.sum_axis(V.heads(x, 2)) + V.mean_axis(x),
        lambda x: x.reshape(-1, 2, 2).sum(2) + x.mean(1)[:, None],
    ),
    "a number a head": (
        lambda x: V.heads(x, 2) * V.dot(V.heads(x, 2), V.heads(x, 2)),
        lambda x: x.reshape(-1, 2, 2) * (x.reshape(-1, 2, 2) ** 2).sum(2, keepdims=True),
    ),
    "concat": (lambda x: V.concat(x, 2 * x), lambda x: np.concatenate([x, 2 * x], 1)),
    "concat of a list": (lambda x: V.concat([x, 2 * x]), lambda x: np.concatenate([x, 2 * x], 1)),
    "normalize": (V.normalize, lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)),
    "normalize zeros": (lambda x: V.normalize(0 * x), lambda x: 0 * x),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_apply_to_values(name):
    function, formula = ELEMENTWISE[name]
    np.testing.assert_allclose(result(lambda v: function(v.x)), formula(X), rtol=1e-12, atol=1e-14)


def test_functions_apply_to_lists_value_by_value():
    def listed(v):
        return V.sum(V.dropout(V.tanh(V.heads([u.x for u in v.innbs], 2)), 0))

    def one_by_one(v):
        return V.sum(V.tanh(V.heads(u.x, 2)) for u in v.innbs)

    traces = [V.program(f).trace({"x": (4,)}, {}) for f in (listed, one_by_one)]
    same(traces[0].outputs[0], traces[1].outputs[0])


def test_feature_named_norm_is_the_users():
    trace = gcn.trace({"x": (16,), "norm": (8,)}, {"W": (16, 8)})
    assert trace.inputs["norm"].shape == (8,)


def test_unused_features_are_no_inputs():
    trace = V.program(lambda v, W, U: v.x @ W).trace({"x": (4,), "y": (3,)}, {"W": (4, 2), "U": (9,)})
    assert list(trace.inputs) == ["x"]
    assert list(trace.parameters) == ["W", "U"]


def test_numeric_parameters_are_constants_of_the_program():
    def f(v, W, scale, kind, bias):
        y = scale * v.x if kind == "scaled" else v.x
        return y if bias is None else y + bias

    trace = V.program(f).trace({"x": (4,)}, {"W": (4,), "scale": 3, "kind": "scaled", "bias": None})
    same(trace.outputs[0], node("multiply", D, (4,), number(3.0, D), leaf("x", D, (4,))))


def test_equal_values_are_built_once():
    trace = gat.trace({"x": (16,)}, {"W": (16, 4, 8), "a": (4, 8), "b": (4, 8), "rate": 0.5})
    values = list(ir.walk(trace.outputs))
    keys = {(value.op, value.inputs, value.space, value.shape, value.attributes) for value in values}
    assert len(keys) == len(values)
    assert trace.parameters["W"] in values and trace.inputs["x"] in values


def test_each_dropout_has_its_place():
    def f(v, rate):
        own = V.dropout(v.x, 0.1)
        again = V.dropout(v.x, 0.1)
        source = V.sum(V.dropout(u.x, rate) for u in v.innbs)
        other = V.sum(V.dropout(u.x, rate) + V.dropout(u.x, rate) for u in v.innbs)
        typed = V.sum(V.sum(V.dropout(e.f, 0.3) for e in v.inedges[t]) for t in v.types)
        return own + again + source + other + typed

    trace = V.program(f).trace({"x": (4,)}, {"rate": 0.2}, arc_inputs={"f": (4,)}, types=2)
    masks = {value["place"]: value for value in ir.walk(trace.outputs) if value.op == "mask"}
    assert trace.dropouts == (0.1, 0.1, 0.2, 0.2, 0.2, 0.3)
    assert {place: value["rate"] for place, value in masks.items()} == dict(enumerate(trace.dropouts))
    assert [masks[place].space for place in range(6)] == [D, D, S, S, S, E]


def test_programs_state_loops_and_may_call_others():
    @V.program(loops=True)
    def outer(v, W):
        return 2 * inner(v, W)

    @V.program(loops=True)
    def inner(v, W):
        return V.sum(u.x @ W for u in v.innbs)

    traces = [program.trace({"x": (4,)}, {"W": (4, 2)}) for program in (outer, inner)]
    assert traces[0].loops and traces[1].loops
    same(traces[0].outputs[0], node("multiply", D, (2,), number(2.0, D), traces[1].outputs[0]))


def test_several_outputs_keep_their_order():
    def f(v):
        z = [e.f + e.src.x for e in v.inedges]
        return V.sum(z), v.x, V.keep(z), V.keep(u.x for u in v.innbs)

    trace = V.program(f).trace({"x": (4,)}, {}, arc_inputs={"f": (4,)})
    assert [output.op for output in trace.outputs] == ["total", "input", "add", "cast"]
    assert [output.space for output in trace.outputs] == [D, D, E, E]


def test_values_know_their_lines():
    def f(v):
        y = v.x + 1
        return V.exp(
            y * 2,
        )

    first = f.__code__.co_firstlineno
    lines = {
        value.op: value.where.line - first
        for value in ir.walk(V.program(f).trace({"x": (4,)}, {}).outputs[:1])
        if value.where
    }
    assert (lines["add"], lines["multiply"], lines["exp"]) == (1, 3, 2)


def test_values_can_be_printed():
    seen = []
    V.program(lambda v: [seen.append(f"{v.x} {v.x.shape}"), v.x][1]).trace({"x": (4,)}, {})
    assert seen[0] == "<input [4] a vertex> (4,)"
