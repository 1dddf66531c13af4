"""Random vertex programs: expression trees that hypothesis draws, for the IR's constructors and other evaluators.

They are differentiable at nearly all inputs: a fresh parameter is added to the operand of each kink or choice, and a
fresh input per arc to each operand of a maximum or minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mgg.vertex import ir
from mgg.vertex.interpret import ArcGraph
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value

Shape = tuple[int, ...]
#: Space of a result -> spaces of two operands, neither of which is that of the result.
MEETING = {E: [(D, S), (S, T), (S, R)], R: [(D, T)]}
#: Space of a result -> spaces of operands beside one of the result's space.
BESIDE = {P: [P], T: [P, T], D: [P, D], S: [P, S], R: [P, T, D, R], E: [P, T, D, S, R, E]}
COARSER = {P: [], T: [P], D: [P], S: [P, D], R: [P, T, D], E: [P, T, D, S, R]}
FINER = {P: [T, D, S, R, E], T: [R, E], D: [S, R, E], S: [E], R: [E], E: []}
SMOOTH = ("exp", "log", "power", "sqrt", "reciprocal", "square", "tanh", "elu", "sigmoid", "negative")
#: Aggregations that consist of several operations.
AGGREGATIONS = ("mean", "deviation", "attention")


@dataclass(frozen=True, eq=False)
class Node:
    """An operation of ``BUILD`` or ``ir`` with its operands, and the expected space and shape."""

    op: str
    operands: tuple[Node, ...]
    space: Space
    shape: Shape
    attributes: dict[str, Any] = field(default_factory=dict)


class Grammar:
    """Draws expressions, which may share subexpressions."""

    def __init__(self, draw: Callable[..., Any], types: int) -> None:
        self.draw, self.types = draw, types
        self.nodes: list[Node] = []
        self.leaves = 0

    def one(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def node(self, op: str, operands: tuple[Node, ...], space: Space, shape: Shape, **attributes: Any) -> Node:
        self.nodes.append(Node(op, operands, space, tuple(shape), attributes))
        return self.nodes[-1]

    def leaf(self, space: Space, shape: Shape) -> Node:
        """An input of vertices, arcs or parameters, cast to ``space`` if it is another."""
        if space in (D, E, P):
            self.leaves += 1
            return self.node("input", (), space, shape, name=f"leaf {self.leaves}")
        if space is T:
            return self.node("by_type", (self.leaf(P, (self.types, *shape)),), T, shape)
        return self.node("cast", (self.leaf(D, shape),), space, shape)

    def expression(self, space: Space, shape: Shape, depth: int) -> Node:
        """A value of ``space`` and ``shape``."""
        known = [node for node in self.nodes if (node.space, node.shape) == (space, shape)]
        if known and self.draw(st.integers(0, 3)) == 0:
            return self.one(known)
        if depth <= 0:
            return self.leaf(space, shape)
        kinds = ["smooth", "kinked", "choice", "where", "dot", "sum_axis", "stop", *["binary", "matmul"] * 2]
        if shape:
            kinds += ["concat", "slice", "pad", "repeat_axis", "reshape"]
        if COARSER[space]:
            kinds += ["cast"] * 2
        if FINER[space]:
            kinds += ["total"] * 3 + ["extreme"] * 2
        if space in (D, R):
            kinds += ["aggregation"] * 3
        if space in (P, T) and len(shape) == 2:
            kinds += ["transpose"]
        if space in (P, T) and shape:
            kinds += ["gram"] * 2
        if space is T:
            kinds += ["by_type"]
        if space is P and shape and shape[0] == self.types:
            kinds += ["all_types"]
        return getattr(self, f"_{self.one(kinds)}")(space, shape, depth - 1)

    def _spaces(self, space: Space) -> tuple[Space, Space]:
        pairs = [(space, other) for other in BESIDE[space]] + MEETING.get(space, [])
        pair = self.one(pairs)
        return pair if self.draw(st.booleans()) else pair[::-1]

    def _beside(self, shape: Shape) -> Shape:
        """A shape that broadcasts to ``shape``: fewer axes at the end, and some of length 1."""
        kept = shape[: self.draw(st.integers(0, len(shape)))]
        return tuple(self.one([1, length]) for length in kept)

    def _two(self, space: Space, shape: Shape, depth: int) -> tuple[Node, Node]:
        first, second = self._spaces(space)
        x, y = self.expression(first, shape, depth), self.expression(second, self._beside(shape), depth)
        return (x, y) if self.draw(st.booleans()) else (y, x)

    def _shifted(self, x: Node) -> Node:
        return self.node("add", (x, self.leaf(P, x.shape)), x.space, x.shape)

    def _noisy(self, x: Node) -> Node:
        """``x`` plus noise, so that no two rows are nearly equal."""
        noise = self.leaf(E, x.shape)
        if x.space is not E:
            noise = self.node("total", (noise,), x.space, x.shape)
        return self.node("add", (x, noise), x.space, x.shape)

    def _smooth(self, space: Space, shape: Shape, depth: int) -> Node:
        op = self.one(SMOOTH)
        return self.node(op, (self.expression(space, shape, depth),), space, shape, exponent=self.one([-1.5, 0.5, 2.5]))

    def _kinked(self, space: Space, shape: Shape, depth: int) -> Node:
        shifted = self._shifted(self.expression(space, shape, depth))
        return self.node(self.one(["relu", "leaky_relu", "abs"]), (shifted,), space, shape, slope=0.2)

    def _binary(self, space: Space, shape: Shape, depth: int) -> Node:
        op = self.one(["add", "subtract", "multiply", "divide"])
        return self.node(op, self._two(space, shape, depth), space, shape)

    def _choice(self, space: Space, shape: Shape, depth: int) -> Node:
        x, y = self._two(space, shape, depth)
        return self.node(self.one(["maximum", "minimum"]), (self._shifted(x), y), space, shape)

    def _where(self, space: Space, shape: Shape, depth: int) -> Node:
        x, y = self._two(space, shape, depth)
        condition = self._shifted(self.expression(self.one(BESIDE[space]), self._beside(shape), depth))
        return self.node("where", (condition, x, y), space, shape)

    def _matmul(self, space: Space, shape: Shape, depth: int) -> Node:
        inner, lead = self.one([2, 3]), self.draw(st.integers(0, len(shape)))
        first, second = self._spaces(space)
        if second not in (P, T) and self.draw(st.booleans()):
            first, second = space, self.one([each for each in BESIDE[space] if each in (P, T)])
        x = self.expression(first, (*shape[:lead], inner), depth)
        return self.node("matmul", (x, self.expression(second, (inner, *shape[lead:]), depth)), space, shape)

    def _dot(self, space: Space, shape: Shape, depth: int) -> Node:
        inner = self.one([2, 3])
        first, second = self._spaces(space)
        stretched = tuple(self.one([1, length]) for length in shape)
        operands = self.expression(first, (*shape, inner), depth), self.expression(second, (*stretched, inner), depth)
        return self.node("dot", operands, space, shape)

    def _gram(self, space: Space, shape: Shape, depth: int) -> Node:
        first, second = self._spaces(self.one([space, *FINER[space]]))
        lead = self.one([(), (2,)])
        x, y = self.expression(first, (*lead, shape[0]), depth), self.expression(second, (*lead, *shape[1:]), depth)
        return self.node("gram", (x, y), space, shape)

    def _sum_axis(self, space: Space, shape: Shape, depth: int) -> Node:
        axis = self.draw(st.integers(0, len(shape)))
        x = self.expression(space, (*shape[:axis], self.one([1, 2, 3]), *shape[axis:]), depth)
        return self.node("sum_axis", (x,), space, shape, axis=axis)

    def _repeat_axis(self, space: Space, shape: Shape, depth: int) -> Node:
        axis = self.draw(st.integers(0, len(shape) - 1))
        x = self.expression(space, shape[:axis] + shape[axis + 1 :], depth)
        return self.node("repeat_axis", (x,), space, shape, axis=axis, count=shape[axis])

    def _reshape(self, space: Space, shape: Shape, depth: int) -> Node:
        x = self.expression(space, self.one([(prod(shape),), shape[::-1], (1, *shape)]), depth)
        return self.node("reshape", (x,), space, shape)

    def _concat(self, space: Space, shape: Shape, depth: int) -> Node:
        first = self.draw(st.integers(0, shape[-1]))
        spaces = self._spaces(space)
        widths = first, shape[-1] - first
        parts = (self.expression(each, (*shape[:-1], width), depth) for each, width in zip(spaces, widths, strict=True))
        return self.node("concat", tuple(parts), space, shape)

    def _slice(self, space: Space, shape: Shape, depth: int) -> Node:
        before, after = self.one([0, 1]), self.one([0, 1])
        x = self.expression(space, (*shape[:-1], before + shape[-1] + after), depth)
        return self.node("slice", (x,), space, shape, first=before)

    def _pad(self, space: Space, shape: Shape, depth: int) -> Node:
        first = self.draw(st.integers(0, shape[-1]))
        last = self.draw(st.integers(first, shape[-1]))
        return self.node(
            "pad", (self.expression(space, (*shape[:-1], last - first), depth),), space, shape, first=first
        )

    def _transpose(self, space: Space, shape: Shape, depth: int) -> Node:
        return self.node("transpose", (self.expression(space, shape[::-1], depth),), space, shape)

    def _by_type(self, space: Space, shape: Shape, depth: int) -> Node:
        return self.node("by_type", (self.expression(P, (self.types, *shape), depth),), space, shape)

    def _all_types(self, space: Space, shape: Shape, depth: int) -> Node:
        return self.node("all_types", (self.expression(T, shape[1:], depth),), space, shape)

    def _stop(self, space: Space, shape: Shape, depth: int) -> Node:
        return self.node("stop", (self.expression(space, shape, depth),), space, shape)

    def _cast(self, space: Space, shape: Shape, depth: int) -> Node:
        return self.node("cast", (self.expression(self.one(COARSER[space]), shape, depth),), space, shape)

    def _total(self, space: Space, shape: Shape, depth: int) -> Node:
        return self.node("total", (self.expression(self.one(FINER[space]), shape, depth),), space, shape)

    def _extreme(self, space: Space, shape: Shape, depth: int) -> Node:
        finer = [each for each in FINER[space] if each in (E, R, S, D)]
        x = self._noisy(self.expression(self.one(finer), shape, depth))
        if x.space in (S, D):  # vertices without arcs have equal noise
            own = self.leaf(D, shape)
            own = own if x.space is D else self.node("cast", (own,), S, shape)
            x = self.node("add", (x, own), x.space, shape)
        return self.node(self.one(["maximum_of", "minimum_of"]), (x,), space, shape)

    def _aggregation(self, space: Space, shape: Shape, depth: int) -> Node:
        op, finer = self.one(AGGREGATIONS), self.one([E, R] if space is D else [E])
        x = self.expression(finer, shape, depth)
        operands = (x, self.expression(finer, self._beside(shape), depth)) if op == "attention" else (x,)
        return self.node(op, operands, space, shape)


def random_graph(seed: int) -> ArcGraph:
    """Few vertices, up to 3 types, no duplicate arcs; self-loops, and vertices without arcs.

    It takes a seed because hypothesis, which prefers small values, would draw hardly any arcs.
    """
    rng = np.random.default_rng(seed)
    vertices, types = rng.integers(1, 6), rng.integers(1, 4)
    targets, sources, kinds = np.nonzero(rng.random((vertices, vertices, types)) < rng.choice([0.1, 0.3, 0.6]))
    ids = 10 + rng.permutation(vertices)
    return ArcGraph.of(int(vertices), targets, sources, kinds, int(types), ids)


@st.composite
def programs(draw: Callable[..., Any], types: int, depth: int = 4) -> list[Node]:
    """One value of vertices, usually with heads, and sometimes one of another space."""
    grammar = Grammar(draw, types)
    shapes = st.sampled_from([(), (3,), (2,), (2, 3), (2, 1)])
    outputs = [grammar.expression(D, draw(shapes), depth)]
    if draw(st.booleans()):
        outputs.append(grammar.expression(draw(st.sampled_from([E, S, R, T, P])), draw(shapes), depth - 1))
    return outputs


def values(outputs: list[Node]) -> list[Value]:
    """The programs in the IR."""

    @cache
    def of(node: Node) -> Value:
        value = _value(node, [of(operand) for operand in node.operands])
        assert (value.space, value.shape) == (node.space, node.shape), node
        return value

    return [of(node) for node in outputs]


def _positive(x: Value) -> Value:
    """x^2 + 1/2, which stays away from 0."""
    return ir.binary("add", ir.binary("multiply", x, x), ir.constant(0.5))


def _mean(x: Value, space: Space) -> Value:
    count = ir.total(ir.cast(ir.constant(1), x.space), space)
    return ir.binary("divide", ir.total(x, space), ir.binary("maximum", count, ir.constant(1)))


def _deviation(x: Value, space: Space) -> Value:
    middle = ir.binary("subtract", x, ir.cast(_mean(x, space), x.space))
    square = ir.binary("multiply", middle, middle)
    return ir.unary("sqrt", ir.binary("add", _mean(square, space), ir.constant(0.1)))


def _attention(x: Value, score: Value, space: Space) -> Value:
    top = ir.cast(ir.stop(ir.maximum_of(score, space)), x.space)
    weight = ir.unary("exp", ir.binary("subtract", score, top))
    share = ir.binary("divide", weight, ir.cast(ir.total(weight, space), x.space))
    return ir.total(ir.binary("multiply", share, x), space)


def _value(node: Node, operands: list[Value]) -> Value:
    if node.op in BUILD:
        return BUILD[node.op](node, *operands)
    if node.op in ir.UNARY:
        return ir.unary(node.op, *operands)
    return ir.binary(node.op, *operands)


#: Operation -> function of the node and its operands; all others are operations of ``ir.unary`` and ``ir.binary``.
BUILD: dict[str, Callable[..., Value]] = {
    "input": lambda node: ir.leaf(node.attributes["name"], node.space, node.shape),
    "square": lambda node, x: ir.binary("multiply", x, x),
    "exp": lambda node, x: ir.unary("exp", ir.unary("tanh", x)),
    "log": lambda node, x: ir.unary("log", _positive(x)),
    "sqrt": lambda node, x: ir.unary("sqrt", _positive(x)),
    "reciprocal": lambda node, x: ir.unary("reciprocal", _positive(x)),
    "power": lambda node, x: ir.unary("power", _positive(x), exponent=node.attributes["exponent"]),
    "leaky_relu": lambda node, x: ir.unary("leaky_relu", x, slope=node.attributes["slope"]),
    "stop": lambda node, x: ir.stop(x),
    "divide": lambda node, x, y: ir.binary("divide", x, _positive(y)),
    "where": lambda node, condition, x, y: ir.where(ir.binary("greater", condition, ir.constant(0)), x, y),
    "cast": lambda node, x: ir.cast(x, node.space),
    "total": lambda node, x: ir.total(x, node.space),
    "maximum_of": lambda node, x: ir.maximum_of(x, node.space),
    "minimum_of": lambda node, x: ir.minimum_of(x, node.space),
    "mean": lambda node, x: _mean(x, node.space),
    "deviation": lambda node, x: _deviation(x, node.space),
    "attention": lambda node, x, score: _attention(x, score, node.space),
    "matmul": lambda node, x, w: ir.matmul(x, w),
    "dot": lambda node, x, y: ir.dot(x, y),
    "gram": lambda node, x, y: ir.gram(x, y, node.space),
    "sum_axis": lambda node, x: ir.sum_axis(x, node.attributes["axis"]),
    "repeat_axis": lambda node, x: ir.repeat_axis(x, node.attributes["axis"], node.attributes["count"]),
    "reshape": lambda node, x: ir.reshape(x, node.shape),
    "transpose": lambda node, x: ir.transpose(x),
    "concat": lambda node, *parts: ir.concat(parts),
    "slice": lambda node, x: ir.columns(x, node.attributes["first"], node.attributes["first"] + node.shape[-1]),
    "pad": lambda node, x: ir.pad(x, node.attributes["first"], node.shape[-1]),
    "by_type": lambda node, w: ir.by_type(w),
    "all_types": lambda node, x: ir.all_types(x, node.shape[0]),
}
