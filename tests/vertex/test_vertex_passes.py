"""Rewrites keep values, and give the forms that are wanted."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs.arc_graphs import awkward, drawn
from support.vertex.models import MODELS, NORM, differentiated, gat, gcn, of_source, rgcn, sgc, softmax, times
from support.vertex.random_programs import programs, random_graph, values
from support.vertex.random_sums import program
from support.vertex.schedules import follow

from mgg.vertex import ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.crossing import crossing, least_cut, mirrors, placed
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, R, S, T, Value, binary, cast, constant, leaf, total, unary
from mgg.vertex.rewrites.passes import COMMUTATIVE, optimized
from mgg.vertex.units import schedule

GRAPH = awkward()
MASKS = 5, 1
X, Y, Z = leaf("x", D, (3,)), leaf("y", S, (3,)), leaf("z", D, (3,))
F, W, WEIGHT = leaf("f", E, (3,)), leaf("w", P, (3,)), leaf("weight", E, ())
H, G = leaf("h", D, (2, 3)), leaf("g", D, (2, 3))
Q = leaf("q", E, (2,))
WIDE, NARROW, TYPED = leaf("wide", P, (3, 5)), leaf("narrow", P, (3, 2)), leaf("typed", T, (3, 2))


def same(values, others, seed=0, tolerance=1e-12):
    leaves = drawn([*values, *others], GRAPH, seed)
    for value, other in zip(values, others, strict=True):
        assert (value.space, value.shape) == (other.space, other.shape)
    found = evaluate(others, GRAPH, leaves, MASKS)
    for expected, array in zip(evaluate(values, GRAPH, leaves, MASKS), found, strict=True):
        assert np.isfinite(expected).all()
        assert np.abs(array - expected).max(initial=0) <= tolerance * max(1, np.abs(expected).max(initial=0))


def form(v: Value) -> str:
    """As one expression; casts by their space, operands that may change places by their names."""
    if v.op in ("input", "constant"):
        return v["name"] if v.op == "input" else f"{v['value']:g}"
    if v.op == "cast":
        return f"{v.space.name}:{form(v.inputs[0])}"
    to = f">{v.space.name}" if v.op in ("total", "gram", "maximum_of") else ""
    operands = sorted(map(form, v.inputs)) if v.op in COMMUTATIVE else map(form, v.inputs)
    return f"{v.op}{to}({', '.join(operands)})"


def ordered(text: str) -> str:
    """An expression whose operands that may change places are in the order of ``form``."""
    prefix, bracket, inside = text.partition("(")
    if not bracket:
        return text
    operands, depth = [""], 0
    for sign in inside[:-1]:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            operands.append("")
        else:
            operands[-1] += sign
    operands = [ordered(operand.strip()) for operand in operands]
    operation = prefix.rpartition(":")[2]
    return f"{prefix}({', '.join(sorted(operands) if operation in COMMUTATIVE else operands)})"


def ops(values, *names, space=None):
    return [v for v in ir.walk(values) if v.op in names and space in (None, v.space)]


ONE, MINUS = constant(1), constant(-1)
COUNT = "total>D(E:1)"
FORMS = {
    "number made of numbers": (binary("add", constant(2), unary("exp", constant(0))), "3"),
    "times 1": (times(X, ONE), "x"),
    "times ones of a shape": (times(X, ir.repeat_axis(ONE, 0, 3)), "x"),
    "over 1": (binary("divide", X, ONE), "x"),
    "plus 0": (binary("add", constant(0), X), "x"),
    "minus 0": (binary("subtract", X, constant(0)), "x"),
    "0 minus": (binary("subtract", constant(0), X), "negative(x)"),
    "minus itself": (binary("subtract", X, X), "D:repeat_axis(0)"),
    "times 0": (times(X, constant(0)), "D:repeat_axis(0)"),
    "plus a negative": (binary("add", X, unary("negative", Z)), "subtract(x, z)"),
    "negative twice": (unary("negative", unary("negative", X)), "x"),
    "times -1": (times(MINUS, X), "negative(x)"),
    "reciprocal of a product": (unary("reciprocal", times(X, Z)), "reciprocal(multiply(x, z))"),
    "the same twice": (binary("subtract", times(X, Z), times(Z, X)), "D:repeat_axis(0)"),
    "cast of cast": (cast(cast(W, S), E), "E:w"),
    "cast of a source's": (of_source(X), "E:S:x"),
    "mask of sources": (ir.mask(S, (3,), 0.3, 1), "mask()"),
    "total of total": (total(total(F, R), D), "total>D(f)"),
    "halo given back": (total(total(F, S), D), "total>D(total>S(f))"),
    "sum of all arcs": (total(F, P), "total>P(total>D(f))"),
    "sum of a type's arcs": (total(total(F, T), P), "total>P(total>D(f))"),
    "cast back": (total(cast(X, E), D), f"multiply(x, {COUNT})"),
    "cast back, run by run": (total(cast(leaf("r", R, ()), E), D), "total>D(multiply(r, total>R(E:1)))"),
    "hoisted": (unary("tanh", binary("add", of_source(X), of_source(Z))), "E:S:tanh(add(x, z))"),
    "hoisted to runs": (times(cast(X, E), cast(leaf("t", T, ()), E)), "E:multiply(R:t, R:x)"),
    "not hoisted": (binary("add", cast(X, E), of_source(X)), "add(E:x, E:S:x)"),
    "factors of one space meet": (times(of_source(X), F, of_source(Z)), "multiply(f, E:S:multiply(x, z))"),
    "factor out": (total(times(F, cast(X, E)), D), "multiply(x, total>D(f))"),
    "number out": (total(times(F, constant(3)), D), "multiply(total>D(f), D:3)"),
    "sign out": (total(unary("negative", F), D), "negative(total>D(f))"),
    "of sources, to sources": (total(times(F, of_source(X)), S), "multiply(S:x, total>S(f))"),
    "of targets, to sources": (total(times(F, cast(X, E)), S), "total>S(multiply(f, E:x))"),
    "sum of sums": (total(binary("add", F, cast(X, E)), D), f"add(total>D(f), multiply(x, {COUNT}))"),
    "1 - f stays": (
        total(times(F, binary("subtract", ONE, F), of_source(X)), D),
        "total>D(multiply(multiply(f, subtract(E:1, f)), E:S:x))",
    ),
    "weights of a sum": (
        total(times(Q, binary("add", times(Q, of_source(H)), cast(G, E))), D),
        "add(total>D(multiply(multiply(q, q), E:S:h)), multiply(g, total>D(q)))",
    ),
    "dot out": (total(times(Q, ir.dot(cast(G, E), of_source(H))), D), "dot(g, total>D(multiply(q, E:S:h)))"),
    "dot out, of sources": (
        total(times(Q, ir.dot(cast(G, E), of_source(H))), S),
        "dot(S:h, total>S(multiply(q, E:g)))",
    ),
    "dot of a sum": (
        total(times(Q, binary("add", ir.dot(cast(G, E), of_source(H)), Q)), D),
        "add(dot(g, total>D(multiply(q, E:S:h))), total>D(multiply(q, q)))",
    ),
    "sum_axis is a dot": (ir.sum_axis(times(Q, cast(G, E), of_source(H)), 1), "multiply(q, dot(E:g, E:S:h))"),
    "sum_axis of one": (ir.sum_axis(times(Q, of_source(H)), 1), "multiply(q, E:S:sum_axis(h))"),
    "matrix of a sum of ends": (
        ir.matmul(binary("subtract", cast(X, E), of_source(Z)), NARROW),
        "subtract(E:matmul(x, narrow), E:S:matmul(z, narrow))",
    ),
    "dot of a sum of ends": (
        ir.dot(binary("add", cast(X, E), of_source(Z)), W), "add(E:dot(D:w, x), E:S:dot(D:w, z))",
    ),
    "repeated": (times(ir.repeat_axis(Q, 1, 3), of_source(H)), "multiply(q, E:S:h)"),
    "dot of parts": (
        ir.dot(ir.concat([cast(X, E), of_source(Z)]), leaf("a", P, (6,))),
        "add(E:dot(x, D:slice(a)), E:S:dot(z, D:slice(a)))",
    ),
    "to fewer columns": (total(ir.matmul(of_source(X), NARROW), D), "product(matmul(x, narrow))"),
    "to more": (total(ir.matmul(of_source(X), WIDE), D), "matmul(product(x), wide)"),
    "to fewer, after": (ir.matmul(total(of_source(X), D), NARROW), "product(matmul(x, narrow))"),
    "of arcs": (total(ir.matmul(F, NARROW), D), "matmul(total>D(f), narrow)"),
    "of arcs, scaled by sources": (
        total(ir.matmul(times(WEIGHT, of_source(X)), NARROW), D), "product(matmul(x, narrow), weight)",
    ),
    "by type": (
        total(ir.matmul(of_source(X), TYPED), D), "total>D(matmul(total>R(E:S:x), R:typed))",
    ),
    "product back": (total(total(times(WEIGHT, cast(X, E)), S), D), "product(x, weight)"),
    "product of a product": (ir.product(ir.product(X), back=True), "product(product(x))"),
    "another's weights": (total(times(leaf("e", E, ()), of_source(X)), D), "total>D(multiply(e, E:S:x))"),
    "gram of a source's": (ir.gram(of_source(X), F, P), "gram>P(x, total>D(total>S(f)))"),
    "gram of a target's": (ir.gram(F, cast(X, E), P), "gram>P(total>D(f), x)"),
    "gram by type": (ir.gram(of_source(Y), cast(leaf("r", R, ()), E), T), "gram>T(total>R(E:y), r)"),
    "leaky mask": (
        ir.where(binary("greater", F, constant(0)), F, times(F, constant(0.2))),
        "multiply(f, where(greater(f, E:0), E:1, E:0.2))",
    ),
    "mask": (ir.where(binary("greater", F, constant(0)), F, constant(0)), "multiply(f, greater(f, E:0))"),
    "not of what may be infinite": (
        ir.where(binary("greater", F, constant(0)), unary("reciprocal", F), constant(0)),
        "where(greater(f, E:0), reciprocal(f), E:0)",
    ),
    "stop": (ir.stop(X), "x"),
    "slice of a concat": (ir.columns(ir.concat([X, Z]), 3, 5), "slice(z)"),
    "dot of rows of both ends": (
        total(ir.dot(W, times(cast(X, E), of_source(Z))), D), "dot(multiply(D:w, x), product(z))",
    ),
    "given back and fetched": (
        ir.maximum_of(of_source(ir.columns(total(total(F, S), D), 0, 2)), D),
        "maximum_of>D(E:S:total>D(slice(total>S(f))))",
    ),
    "slice of a pad": (ir.columns(ir.pad(X, 2, 9), 2, 5), "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_passes_produce_the_expected_form(name):
    value, expected = FORMS[name]
    (found,) = optimized([value])
    if name == "product back":
        assert found["back"]
    same([value], [found])
    assert form(found) == ordered(expected)


@pytest.mark.parametrize("name", MODELS)
def test_passes_keep_the_values_of_models(name):
    """Gradients, too, whether what they are derived of was optimized or not."""
    outputs = MODELS[name]
    forward, backward, seeds = differentiated(outputs)
    inputs = [v for v in ir.walk(outputs) if v.op == "input" and v["name"] != "norm"]
    plain = gradients(outputs, seeds, inputs)
    same([*outputs, *plain], [*forward, *backward], seed=4)
    same([*outputs, *plain], optimized([*outputs, *plain]), seed=4)


@pytest.mark.parametrize("seed", range(60))
def test_passes_keep_the_values_of_random_programs(seed):
    outputs = program(seed)
    same(outputs, optimized(outputs), seed, tolerance=1e-11)
    forward, backward, seeds = differentiated(outputs)
    inputs = [v for v in ir.walk(outputs) if v.op == "input" and v["name"] not in ("norm", "weight")]
    same([*outputs, *gradients(outputs, seeds, inputs)], [*forward, *backward], seed, tolerance=1e-11)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data(), st.integers(0, 10**6))
def test_passes_keep_the_values_of_drawn_programs(data, seed):
    """On other graphs, of other operations; wherever there are numbers."""
    graph = random_graph(seed)
    outputs = values(data.draw(programs(graph.type_count)))
    forward, backward, seeds = differentiated(outputs)
    plain = [*outputs, *gradients(outputs, seeds, [v for v in ir.walk(outputs) if v.op == "input"])]
    leaves = drawn([*plain, *forward, *backward], graph, seed)
    found = evaluate([*forward, *backward], graph, leaves, MASKS)
    for expected, array in zip(evaluate(plain, graph, leaves, MASKS), found, strict=True):
        if np.isfinite(expected).all():
            assert np.abs(array - expected).max(initial=0) <= 1e-10 * max(1, np.abs(expected).max(initial=0))
    follow(schedule(forward, backward, seeds), forward, backward, seeds)


@pytest.mark.parametrize("name", MODELS)
def test_passes_reach_a_fixed_point(name):
    once = optimized(MODELS[name], differentiable=True)
    again = optimized(once, differentiable=True)
    assert len(list(ir.walk(once))) == len(list(ir.walk(again)))
    assert [form(v) for v in once] == [form(v) for v in optimized(MODELS[name], differentiable=True)]


def test_passes_keep_the_input_objects():
    """Gradients are derived by the inputs of the program that was given."""
    (found,) = optimized([unary("tanh", X)], differentiable=True)
    assert found.inputs[0] is X


def test_infinite_factors_without_arcs_stay_out_of_sums():
    """1 over a sum of none goes out of a sum that is 0 there."""
    value = total(times(softmax(Q), of_source(H)), D)
    (found,) = optimized([value])
    same([value], [found])
    assert not evaluate([found], GRAPH, drawn([found], GRAPH))[0][5].any()
    for factor in (unary("reciprocal", total(Q, D)), unary("log", total(Q, D))):
        value = total(times(of_source(H), factor), D)
        leaves = drawn([value], GRAPH)
        leaves["q"] = np.abs(leaves["q"])
        expected, array = evaluate([value, *optimized([value])], GRAPH, leaves)
        assert np.allclose(array, expected, rtol=1e-12)
    rows = ir.repeat_axis(unary("reciprocal", total(Q, D)), 1, 1)  # a number per head
    value = ir.gram(ir.cast(rows, E), of_source(H), P)
    leaves = drawn([value], GRAPH)
    expected, array = evaluate([value, *optimized([value])], GRAPH, leaves)
    assert np.isfinite(expected).all() and np.allclose(array, expected, rtol=1e-12)


def test_long_products_are_not_expanded():
    """Squares of squares have 2^40 factors, which nobody lists; a long product stays one."""
    value = unary("tanh", F)
    for _ in range(40):
        value = times(value, value)
    same([total(times(value, cast(X, E)), D)], optimized([total(times(value, cast(X, E)), D)]))
    value = times(*(leaf(f"f{k}", E, (3,)) for k in range(20)), cast(X, E))
    same([total(value, D)], optimized([total(value, D)]))


def test_stop_is_kept_for_gradients():
    (found,) = optimized([times(ir.stop(X), X)], differentiable=True)
    assert ops([found], "stop")


# Models.


@pytest.mark.parametrize(("inner", "outer"), [(5, 2), (2, 5), (3, 3)])
def test_gcn_becomes_one_product_and_two_scalings(inner, outer):
    """One product and two scalings, forward and back; the matrix where it leaves fewer columns to gather."""
    forward, backward, _ = differentiated(gcn(inner, outer))
    products = ops(forward, "product")
    assert [v.shape for v in products] == [(min(inner, outer),)]
    assert sorted((v["back"], v.shape) for v in ops([*forward, *backward], "product")) == [
        (False, (min(inner, outer),)),
        (True, (min(inner, outer),)),
    ]
    assert len(ops(forward, "multiply")) == 2
    assert all(NORM in v.inputs for v in ops(forward, "multiply"))
    assert not ops([*forward, *backward], "cast", "total", space=E)
    assert not ops([*forward, *backward], "total")
    assert (ops(forward, "matmul")[0] in ir.walk(products)) == (outer <= inner)


def test_sgc_multiplies_by_the_matrix_first():
    """The matrix first: all hops with its columns."""
    (found,) = optimized(sgc(5, 2, hops=3))
    assert [v.shape for v in ops([found], "product")] == [(2,)] * 3
    (found,) = optimized(sgc(2, 5, hops=3))
    assert [v.shape for v in ops([found], "product")] == [(2,)] * 3


def test_sum_with_other_uses_is_kept():
    hop = total(of_source(X), D)
    found = optimized([ir.matmul(hop, NARROW), hop])
    assert [v.shape for v in ops(found, "product")] == [(3,)]


def test_gat_has_no_inner_products_per_arc():
    """Neither direction has a dot of an arc's: inner products are with sums. Everything of a vertex is done there."""
    forward, backward, _ = differentiated(gat(9, 2, 4))
    both = [*forward, *backward]
    assert not ops(both, "dot", "matmul", "sum_axis", "gram", space=E)
    assert sorted((v.space.name, v.shape) for v in ops(both, "total") if v.inputs[0].space is E and v.size > 1) == [
        ("D", (2,)), ("D", (2,)), ("D", (2, 4)), ("D", (2, 4)), ("S", (2,)), ("S", (2, 4)), ("S", (2, 4)),
    ]  # fmt: skip
    wide = {form(v) for v in ir.walk(both) if v.op == "cast" and v.space is E and v.shape == (2, 4)}
    assert len(wide) == 2, "rows of sources, and gradients of targets over their sums"


def test_rgcn_multiplies_sums_of_runs():
    """Matrices of types meet sums of runs, forward and back."""
    forward, backward, _ = differentiated(rgcn(3, 2))
    both = [*forward, *backward]
    assert {v.space for v in ops(both, "matmul")} == {R}
    assert [(v.space, v.inputs[0].space) for v in ops(both, "gram")] == [(T, R)]


def test_gated_model_multiplies_only_arc_features_per_arc():
    """Only arcs' own features meet a matrix an arc."""
    forward, backward, _ = differentiated(MODELS["gated"])
    assert [form(v) for v in ops(forward, "matmul", space=E)] == ["matmul(f, C)"]
    assert len(ops([*forward, *backward], "matmul", space=E)) == 2, "and the gradient of these"
    assert len([v for v in ops(forward, "total") if v.inputs[0].op != "cast"]) == 2


def test_edge_conv_splits_its_matrix_by_ends():
    """A matrix of two ends side by side becomes one for each."""
    (found,) = optimized(MODELS["edge_conv"])
    assert not ops([found], "matmul", "concat", space=E)


# Products.


def test_gathered_rows_make_no_product():
    rows = of_source(X)
    assert not ops(optimized([total(rows, D), ir.maximum_of(rows, D)]), "product")
    assert ops(optimized([total(rows, D), ir.maximum_of(of_source(Z), D)]), "product")


# What crosses.


def brute(wanted, costs, given):
    """The least cost of values without which nothing given leads to what is wanted."""
    nodes = list(costs)
    best = None
    for count in range(len(nodes) + 1):
        for cut in itertools.combinations(nodes, count):
            reached = set()
            for v in nodes:
                if v not in cut and (v in given or any(x in reached for x in v.inputs)):
                    reached.add(v)
            if not reached & set(wanted):
                cost = sum(costs[v] for v in cut)
                best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(25))
def test_minimum_cut_of_crossing_values(seed):
    rng = random.Random(seed)
    nodes = [leaf(f"{k}", D, (rng.randint(1, 5),)) for k in range(3)]
    given = set(nodes)
    for _ in range(7):
        operands = rng.sample(nodes, rng.randint(1, 3))
        nodes.append(Value("concat", tuple(operands), D, (rng.randint(1, 6),)))
    wanted = set(rng.sample(nodes[3:], 3))
    costs = {v: v.size for v in nodes}
    cut = least_cut(wanted, costs, given)
    assert sum(costs[v] for v in cut) == brute(wanted, costs, given)
    reached = set()
    for v in nodes:
        if v not in cut and (v in given or any(x in reached for x in v.inputs)):
            reached.add(v)
    assert not reached & wanted


@pytest.mark.parametrize(("inner", "expected"), [(9, ["reshape(matmul(x, W))"]), (3, ["x"])])
def test_crossing_values_have_the_fewest_columns(inner, expected):
    """Rows, of which the scores are made again; or inputs, if these have fewer columns."""
    outputs = optimized(gat(inner, 2, 4), differentiable=True)
    fetched = crossing(outputs)
    assert [form(v) for v in fetched] == expected
    found = placed(outputs)
    same(outputs, found)
    assert {v.inputs[0].shape for v in ops(found, "cast", space=S) if v.inputs[0].space is D} == {
        v.shape for v in fetched
    }


def test_crossing_prefers_results_over_equal_inputs():
    """Work is not done twice for nothing; sums are never made again."""
    outputs = [ir.maximum_of(of_source(unary("tanh", X)), D)]
    assert [v.op for v in crossing(outputs)] == ["tanh"]
    inner = total(F, D)
    outputs = [ir.maximum_of(of_source(ir.concat([inner, times(inner, Z)])), D)]
    assert sorted(form(v) for v in crossing(outputs)) in (
        ["concat(total>D(f), multiply(total>D(f), z))"],
        ["total>D(f)", "z"],
    )
    assert sum(v.size for v in crossing(outputs)) == 6


def test_halo_values_are_also_computed_for_own_vertices():
    """Then a PE's own rows are there already."""
    (outputs,) = optimized(gat(9, 2, 4))
    twins = mirrors([outputs])
    rows = next(v for v in twins if v.op == "cast" and v.shape == (2, 4) and v.inputs[0].op == "reshape")
    assert twins[rows] is rows.inputs[0]
    (narrow,) = optimized(gat(3, 2, 4))
    made = next(v for v in mirrors([narrow]) if v.op == "matmul")
    assert (made.space, mirrors([narrow])[made].space) == (S, D)
    leaves = drawn([narrow], GRAPH)
    assert np.array_equal(*evaluate([made, mirrors([narrow])[made]], GRAPH, leaves))
    assert not any(v.op == "dot" for v in twins), "scores are of sources here, of targets there"


def test_masks_do_not_cross():
    x = leaf("x", D, (2,))
    outputs = optimized([ir.maximum_of(ir.concat([times(cast(x, S), ir.mask(S, (2,), 0.5, 1)), cast(x, S)]), D)])
    assert [form(v) for v in crossing(outputs)] == ["x"]
