"""Autodiff against finite differences of the interpreter."""

import numpy as np
import pytest
from support.graphs.arc_graphs import TYPES, awkward, drawn

from mgg.vertex import autodiff, ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, ProgramError, R, S, T, binary, cast, constant, leaf, total, unary

GRAPH = awkward()
STEP, TOLERANCE = 1e-5, 1e-6
MASKS = 5, 1  # seed and epoch


def inputs_of(values):
    return [value for value in ir.walk(values) if value.op == "input"]


def check(*outputs):
    """Every entry of the gradients by every input, for random gradients by all ``outputs``."""
    inputs = inputs_of(outputs)
    assert inputs
    seeds = [leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    leaves = drawn([*outputs, *seeds], GRAPH, seed=3)
    found = gradients(outputs, seeds, inputs)

    def loss():
        values = evaluate(outputs, GRAPH, leaves, MASKS)
        return sum(np.vdot(value, leaves[seed["name"]]) for value, seed in zip(values, seeds, strict=True))

    for value, gradient, array in zip(inputs, found, evaluate(found, GRAPH, leaves, MASKS), strict=True):
        assert (gradient.space, gradient.shape) == (value.space, value.shape)
        numbers = leaves[value["name"]]
        expected = np.empty_like(numbers)
        for place in np.ndindex(numbers.shape):
            kept = numbers[place]
            ends = []
            for step in (STEP, -STEP):
                numbers[place] = kept + step
                ends.append(loss())
            numbers[place] = kept
            expected[place] = (ends[0] - ends[1]) / (2 * STEP)
        assert expected.any(), f"{value['name']}: nothing but zeros, which tells nothing"
        assert np.abs(array - expected).max() <= TOLERANCE * np.abs(expected).max(), value["name"]


X, Y, F, W, V = leaf("x", D, (3,)), leaf("y", S, (3,)), leaf("f", E, (3,)), leaf("w", P, (3,)), leaf("v", T, (3,))
HEADS, ROWS = leaf("heads", D, (2,)), leaf("rows", S, (2, 3))
#: Above 0.1, as much as x.
POSITIVE = binary("add", unary("abs", X), constant(0.1))

#: Every operation; random programs (test_vertex_random.py) have it of other spaces and shapes.
PROGRAMS = {
    **{op: unary(op, X) for op in ir.UNARY if op not in ("log", "sqrt", "leaky_relu", "power")},
    "log": unary("log", POSITIVE),
    "sqrt": unary("sqrt", POSITIVE),
    "leaky_relu": unary("leaky_relu", X, slope=0.2),
    "power": unary("power", X, exponent=3.0),
    **{f"{op} of shapes": binary(op, HEADS, ROWS) for op in ("add", "subtract", "multiply", "divide")},
    **{f"{op} of spaces": binary(op, binary(op, X, F), V) for op in ir.BINARY[:6]},
    "stretched": binary("multiply", leaf("x", D, (1, 3)), leaf("y", P, (2, 1, 2))),
    "where": ir.where(binary("greater", X, Y), binary("multiply", W, Y), binary("multiply", X, F)),
    "D to S": cast(X, S),
    "E to S to D": total(total(F, S), D),
    "E to P": total(F, P),
    **{f"{op} of arcs": getattr(ir, op)(F, D) for op in ("maximum_of", "minimum_of")},
    "maximum of runs": ir.maximum_of(ir.minimum_of(F, R), D),
    "product": ir.product(X),
    "product, weighted": ir.product(HEADS, leaf("weight", E, ())),
    "product, back": ir.product(HEADS, leaf("weight", E, ()), back=True),
    "matmul": ir.matmul(X, leaf("m", P, (3, 2))),
    "matmul, vector": ir.matmul(ROWS, W),
    "matmul, types": ir.matmul(ROWS, ir.by_type(leaf("m", P, (TYPES, 3, 4)))),
    "matmul, runs": ir.matmul(X, leaf("m", T, (3, 2, 2))),
    "gram": ir.gram(X, leaf("g", D, (2, 2)), P),
    "gram, types": ir.gram(ROWS, HEADS, T),
    "dot": ir.dot(ROWS, leaf("a", P, (1, 3))),
    "dot of arcs": ir.dot(X, Y),
    "sum_axis": ir.sum_axis(ROWS, 0),
    "repeat_axis": ir.repeat_axis(ROWS, 1, 2),
    "reshape": ir.reshape(ROWS, (3, 2)),
    "transpose": ir.transpose(leaf("m", T, (3, 2))),
    "concat": ir.concat([ROWS, leaf("b", P, (2, 1)), leaf("h", D, (2, 2))]),
    "slice": ir.columns(ROWS, 1, 3),
    "pad": ir.pad(ROWS, 1, 5),
    "by_type": ir.by_type(leaf("m", P, (TYPES, 2))),
    "all_types": ir.all_types(V, TYPES),
    "mask": binary("multiply", X, ir.mask(D, (3,), 0.5, 1)),
    "mask of arcs": binary("multiply", X, ir.mask(E, (3,), 0.5, 1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_operation_gradients_match_finite_differences(name):
    check(PROGRAMS[name])


def test_every_operation_has_a_rule_and_a_program():
    assert set(autodiff._RULES) | autodiff.CONSTANT == set(ir.OPERATIONS)
    assert {value.op for value in ir.walk(PROGRAMS.values())} >= set(autodiff._RULES)


def at(value, numbers, *wrt):
    """Gradients by inputs with these ``numbers``, where all gradients by ``value`` are 1."""
    ones = cast(constant(1), value.space)
    for axis, count in enumerate(value.shape):
        ones = ir.repeat_axis(ones, axis, count)
    return evaluate(gradients([value], [ones], wrt), GRAPH, numbers)


@pytest.mark.parametrize(("op", "slope"), [("relu", 0), ("leaky_relu", 0.2), ("abs", 0), ("elu", 1)])
def test_subgradients_are_defined_at_kinks(op, slope):
    x = leaf("x", D, ())
    value = unary(op, x, **({"slope": 0.2} if op == "leaky_relu" else {}))
    assert np.array_equal(at(value, {"x": np.zeros(6)}, x)[0], np.full(6, slope))


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_equal_operands_share_a_gradient(op):
    x, y = leaf("x", D, ()), leaf("y", D, ())
    numbers = {"x": np.array([1.0, 1, 2, 0, 0, 0]), "y": np.array([1.0, 2, 1, 0, 0, 0])}
    larger = [0.5, 0, 1, 0.5, 0.5, 0.5]
    smaller = [0.5, 1, 0, 0.5, 0.5, 0.5]
    by_x, by_y = at(binary(op, x, y), numbers, x, y)
    assert np.array_equal(by_x, larger if op == "maximum" else smaller)
    assert np.array_equal(by_y, smaller if op == "maximum" else larger)


@pytest.mark.parametrize("op", ["maximum_of", "minimum_of"])
def test_extremes_pass_the_gradient_to_one_arc(op):
    """Of all equal arcs to a vertex, the one from the lowest id; vertices without arcs have none."""
    f = leaf("f", E, ())
    (found,) = at(getattr(ir, op)(f, D), {"f": np.zeros(11)}, f)
    winners = {(0, 3): 1.0, (1, 1): 1.0, (2, 3): 1.0, (3, 2): 1.0}
    assert np.array_equal(found, [winners.get(arc, 0) for arc in zip(GRAPH.targets, GRAPH.sources, strict=True)])


def test_unused_input_has_no_gradient():
    x, w = leaf("x", D, (2, 3)), leaf("w", T, (2,))
    value = binary("add", X, cast(constant(1), D))
    found = gradients([value], [X], [x, w, constant(3)])
    assert [(each.space, each.shape) for each in found] == [(D, (2, 3)), (T, (2,)), (P, ())]
    for each, array in zip(found, evaluate(found, GRAPH, {}), strict=True):
        assert not array.any(), each
    assert not any(value.op == "input" for value in ir.walk(found))


@pytest.mark.parametrize(
    "value",
    [ir.stop(X), binary("greater", X, constant(0)), binary("equal", X, X), ir.won(ir.winner(ir.maximum_of(F, D)))],
    ids=lambda value: value.op,
)
def test_stop_blocks_gradients(value):
    (inputs,) = {*inputs_of([value])}
    (by,) = gradients([binary("multiply", value, value)], [leaf("seed", value.space, value.shape)], [inputs])
    assert not any(each.op == "input" for each in ir.walk([by]))


def test_gradients_of_uses_are_added_in_order():
    """Outputs come last; so every executor has the same bits."""
    first, second = unary("exp", X), unary("tanh", X)
    output = binary("add", first, second)
    seeds = leaf("seed", D, (3,)), leaf("own", D, (3,))
    (found,) = gradients([output, X], seeds, [X])
    assert (found.op, found.inputs[1]) == ("add", seeds[1])
    (by_first, by_second) = found.inputs[0].inputs
    assert by_first.inputs == (seeds[0], first)
    assert by_second.inputs[0] is seeds[0]
    assert by_second.inputs[1].op == "subtract"


def test_gradients_by_intermediate_values():
    middle = unary("exp", X)
    seed = leaf("seed", D, (3,))
    by_middle, by_x = gradients([binary("multiply", middle, middle)], [seed], [middle, X])
    leaves = drawn([by_middle, by_x], GRAPH)
    first, second = evaluate([by_middle, by_x], GRAPH, leaves)
    assert np.allclose(first, 2 * np.exp(leaves["x"]) * leaves["seed"])
    assert np.allclose(second, 2 * np.exp(2 * leaves["x"]) * leaves["seed"])


def test_weight_gradients_from_arcs():
    """Then there is a matrix an arc, and else none: sums of outer products go to the parameter."""
    weight = leaf("w", T, (3, 2))
    seen = cast(weight, E)
    output = ir.matmul(F, seen)
    seed = leaf("seed", E, (2,))
    by_seen, by_weight = gradients([output], [seed], [seen, weight])
    (alone,) = gradients([output], [seed], [weight])
    assert (by_seen.space, by_seen.shape) == (E, (3, 2))
    assert not any(value.space is E and len(value.shape) > 1 for value in ir.walk([alone]))
    leaves = drawn([by_seen, by_weight], GRAPH)
    found, summed, other = evaluate([by_seen, by_weight, alone], GRAPH, leaves)
    assert np.allclose(found, np.einsum("ek,em->ekm", leaves["f"], leaves["seed"]))
    assert np.allclose(summed, other)


def test_seeds_have_the_type_of_their_outputs():
    with pytest.raises(ProgramError, match=r"a gradient \[2\] a vertex by a value \[3\] a source"):
        gradients([Y], [HEADS], [Y])
