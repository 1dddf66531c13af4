"""Models as vertex programs in the intermediate representation, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.vertex import ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.ir import D, E, P, R, S, Value, binary, cast, constant, leaf, total, unary
from mgg.vertex.rewrites.passes import optimized
from support.graphs.arc_graphs import TYPES

NORM = leaf("norm", D, ())


def times(*values: Value) -> Value:
    result = values[0]
    for value in values[1:]:
        result = binary("multiply", result, value)
    return result


def of_source(x: Value) -> Value:
    return cast(cast(x, S), E)


def gcn(inner: int, outer: int) -> list[Value]:
    x, w = leaf("x", D, (inner,)), leaf("W", P, (inner, outer))
    return [times(NORM, total(cast(times(cast(NORM, S), ir.matmul(cast(x, S), w)), E), D))]


def sgc(inner: int, outer: int, hops: int = 2) -> list[Value]:
    x = leaf("x", D, (inner,))
    for _ in range(hops):
        x = times(NORM, total(of_source(times(NORM, x)), D))
    return [ir.matmul(x, leaf("W", P, (inner, outer)))]


def sage(inner: int, outer: int) -> list[Value]:
    x = leaf("x", D, (inner,))
    degree = binary("maximum", total(cast(constant(1), E), D), constant(1))
    mean = binary("divide", total(of_source(x), D), degree)
    own = ir.matmul(x, leaf("own", P, (inner, outer)))
    return [unary("relu", binary("add", own, ir.matmul(mean, leaf("W", P, (inner, outer)))))]


def softmax(score: Value) -> Value:
    weight = unary("exp", binary("subtract", score, ir.stop(ir.maximum_of(score, D))))
    return binary("divide", weight, total(weight, D))


def gat(inner: int, heads: int, outer: int) -> list[Value]:
    x, w = leaf("x", D, (inner,)), leaf("W", P, (inner, heads * outer))
    rows = ir.reshape(ir.matmul(x, w), (heads, outer))
    of_u = ir.reshape(ir.matmul(cast(x, S), w), (heads, outer))
    score = binary("add", ir.dot(of_u, leaf("a", P, (heads, outer))), ir.dot(rows, leaf("b", P, (heads, outer))))
    share = times(softmax(unary("leaky_relu", score, slope=0.2)), ir.mask(E, (heads,), 0.3, 0))
    return [total(times(share, of_u), D)]


def rgcn(inner: int, outer: int) -> list[Value]:
    w = ir.by_type(leaf("W", P, (TYPES, inner, outer)))
    message = ir.matmul(cast(leaf("x", D, (inner,)), S), w)
    degree = binary("maximum", total(cast(constant(1), E), R), constant(1))
    return [total(binary("divide", total(message, R), degree), D)]


def gated(width: int) -> list[Value]:
    x, f = leaf("x", D, (width,)), leaf("f", E, (width,))
    a, b, c, d, e = (leaf(name, P, (width, width)) for name in "ABCDE")
    z = binary("add", binary("add", ir.matmul(x, d), ir.matmul(cast(x, S), e)), ir.matmul(f, c))
    gate = unary("sigmoid", z)
    sums = binary(
        "divide", total(times(gate, ir.matmul(cast(x, S), b)), D), binary("add", total(gate, D), constant(1e-6))
    )
    return [binary("add", ir.matmul(x, a), sums), z]


def edge_conv(inner: int, outer: int) -> list[Value]:
    x = leaf("x", D, (inner,))
    pair = ir.concat([cast(x, E), binary("subtract", of_source(x), cast(x, E))])
    return [ir.maximum_of(unary("relu", ir.matmul(pair, leaf("W", P, (2 * inner, outer)))), D)]


def deviation(width: int) -> list[Value]:
    x = of_source(leaf("x", D, (width,)))
    degree = binary("maximum", total(cast(constant(1), E), D), constant(1))
    middle = binary("divide", total(x, D), degree)
    apart = binary("subtract", x, middle)
    return [unary("sqrt", binary("add", binary("divide", total(times(apart, apart), D), degree), constant(1e-2)))]


MODELS = {
    "gcn": gcn(5, 2), "gcn, wider": gcn(2, 5), "sgc": sgc(5, 2), "sage": sage(5, 2), "gat": gat(3, 2, 4),
    "gat, one head": gat(5, 1, 3), "rgcn": rgcn(3, 2), "gated": gated(3), "edge_conv": edge_conv(3, 2),
    "deviation": deviation(2),
}  # fmt: skip


def differentiated(outputs: Sequence[Value]) -> tuple[list[Value], list[Value], list[Value]]:
    """Optimized outputs, gradients by all inputs except norms and arc weights, and the seeds."""
    forward = optimized(outputs, differentiable=True)
    seeds = [leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(forward)]
    inputs = [v for v in ir.walk(outputs) if v.op == "input" and v["name"] not in ("norm", "weight")]
    both = optimized([*forward, *gradients(forward, seeds, inputs)])
    return both[: len(forward)], both[len(forward) :], seeds
