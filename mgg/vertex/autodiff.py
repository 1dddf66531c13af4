"""Reverse-mode autodiff of vertex programs (Seastar, EuroSys'21, section 5.3): gradients are values like any others.

The space of an operand, never the direction of the pass, decides where its gradient goes: ``cast`` and ``total`` are
adjoint. So the gradient of what an arc reads of its source is a sum over out-arcs, of its target a sum over in-arcs,
and of a parameter a sum over all arcs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from mgg.vertex import ir
from mgg.vertex.ir import E, P, ProgramError, S, Space, T, Value
from mgg.vertex.rewrites.passes import optimized
from mgg.vertex.trace import BUILT_IN, Trace

#: Gradients that an operation adds to values, mostly to its operands.
Parts = list[tuple[Value, Value]]

#: No gradient passes through these; most are piecewise constant.
CONSTANT = frozenset({"input", "constant", "mask", "greater", "equal", "winner", "won", "stop"})


def gradients(outputs: Sequence[Value], seeds: Sequence[Value], wrt: Sequence[Value]) -> list[Value]:
    """Return the gradients of the sum of all <output, seed>.

    Several gradients by one value are added in the order of its uses, outputs last. Where there is no derivative: relu
    and abs have 0 at 0, leaky_relu its slope, elu 1; ``maximum`` and ``minimum`` of equal numbers give half to each, as
    in PyTorch; of a ``maximum_of`` or ``minimum_of``, the winner gets all.

    Args:
        outputs: values of a program.
        seeds: the gradient by each output, of its space and shape.
        wrt: values to differentiate by: inputs, or values that depend on them.

    Returns:
        One value per entry of ``wrt``, of its space and shape; zeros if nothing depends on it.

    Raises:
        ProgramError: a seed has another space or shape than its output.
    """
    wanted = frozenset(wrt)
    order = list(ir.walk(outputs))
    moving: set[Value] = set()  # values that depend on wrt
    for value in order:
        if value in wanted or (value.op not in CONSTANT and any(operand in moving for operand in value.inputs)):
            moving.add(value)
    parts: dict[Value, list[Value]] = {}  # last use first
    for output, seed in reversed(list(zip(outputs, seeds, strict=True))):
        if (seed.space, seed.shape) != (output.space, output.shape):
            given, expected = (f"{list(each.shape)} {ir.per(each.space)}" for each in (seed, output))
            raise ProgramError(f"a gradient {given} by a value {expected}: they must be alike")
        parts.setdefault(output, []).append(seed)
    found: dict[Value, Value] = {}
    for value in reversed(order):
        if value not in moving or value not in parts:
            continue
        gradient = found[value] = reduce(_add, reversed(parts[value]))
        if value.op in CONSTANT:
            continue
        for operand, part in reversed(_RULES[value.op](value, gradient, wanted)):
            if operand in moving:
                assert part.space is operand.space, value
                parts.setdefault(operand, []).append(_summed_to(part, operand.shape))
    return [found[value] if value in found else _zeros(value.space, value.shape) for value in wrt]


def differentiated(trace: Trace) -> tuple[list[Value], dict[str, Value], list[Value]]:
    """Return a program with its gradients, optimized together.

    Returns:
        Its outputs; the gradients by each feature that it reads and each parameter, by name; the inputs that stand for
        the gradients by the outputs.
    """
    forward = optimized(trace.outputs, differentiable=True)
    seeds = [ir.leaf(f"gradient of output {k}", value.space, value.shape) for k, value in enumerate(forward)]
    features = {name: value for name, value in trace.inputs.items() if name not in BUILT_IN}
    wrt = features | trace.parameters
    both = optimized([*forward, *gradients(forward, seeds, list(wrt.values()))])
    return both[: len(forward)], dict(zip(wrt, both[len(forward) :], strict=True)), seeds


def _zeros(space: Space, shape: tuple[int, ...]) -> Value:
    result = ir.cast(ir.constant(0), space)
    for axis, count in enumerate(shape):
        result = ir.repeat_axis(result, axis, count)
    return result


def _summed_to(gradient: Value, shape: tuple[int, ...]) -> Value:
    """Return the adjoint of broadcasting ``shape``: sum over axes added at the end, and over axes of length 1."""
    while len(gradient.shape) > len(shape):
        gradient = ir.sum_axis(gradient, len(gradient.shape) - 1)
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1 != gradient.shape[axis]:
            gradient = ir.sum_axis(gradient, axis)
    return ir.reshape(gradient, shape)


def _add(x: Value, y: Value) -> Value:
    return ir.binary("add", x, y)


def _subtract(x: Value, y: Value) -> Value:
    return ir.binary("subtract", x, y)


def _times(x: Value, y: Value | float) -> Value:
    return ir.binary("multiply", x, y if isinstance(y, Value) else ir.constant(y))


def _over(x: Value, y: Value) -> Value:
    return ir.binary("divide", x, y)


def _minus(x: Value) -> Value:
    return ir.unary("negative", x)


def _positive(x: Value) -> Value:
    return ir.binary("greater", x, ir.constant(0))


def _power(v: Value, g: Value) -> Value:
    exponent = v["exponent"]
    if exponent == 0:
        return _times(g, 0.0)
    return _times(_times(g, exponent), ir.unary("power", v.inputs[0], exponent=exponent - 1))


def _abs(v: Value, g: Value) -> Value:
    x = v.inputs[0]
    return _times(g, _subtract(_positive(x), _positive(_minus(x))))


#: Gradients by the operand of elementwise operations.
_UNARY: dict[str, Callable[[Value, Value], Value]] = {
    "negative": lambda v, g: _minus(g),
    "reciprocal": lambda v, g: _minus(_times(g, _times(v, v))),
    "exp": lambda v, g: _times(g, v),
    "log": lambda v, g: _over(g, v.inputs[0]),
    "sqrt": lambda v, g: _over(_times(g, 0.5), v),
    "tanh": lambda v, g: _times(g, _subtract(ir.constant(1), _times(v, v))),
    "sigmoid": lambda v, g: _times(g, _times(v, _subtract(ir.constant(1), v))),
    "relu": lambda v, g: ir.where(_positive(v), g, ir.constant(0)),
    "leaky_relu": lambda v, g: ir.where(_positive(v.inputs[0]), g, _times(g, v["slope"])),
    "elu": lambda v, g: ir.where(_positive(v), g, _times(g, _add(v, ir.constant(1)))),
    "abs": _abs,
    "power": _power,
}


def _unary(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    return [(v.inputs[0], _UNARY[v.op](v, g))]


def _sum(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x, y = v.inputs
    return [(x, g), (y, g if v.op == "add" else _minus(g))]


def _product(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    # Also for inner products: axes are aligned at the first, so g [...] meets the rows [..., k].
    x, y = v.inputs
    return [(x, _times(g, y)), (y, _times(g, x))]


def _divide(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x, y = v.inputs
    by_x = _over(g, y)
    return [(x, by_x), (y, _minus(_times(by_x, v)))]


def _choice(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x, y = v.inputs
    halves = _times(ir.binary("equal", x, y), 0.5)
    larger, smaller = ir.binary("greater", x, y), ir.binary("greater", y, x)
    by_x, by_y = (larger, smaller) if v.op == "maximum" else (smaller, larger)
    return [(x, _times(g, _add(by_x, halves))), (y, _times(g, _add(by_y, halves)))]


def _where(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    condition, x, y = v.inputs
    zero = ir.constant(0)
    return [(x, ir.where(condition, g, zero)), (y, ir.where(condition, zero, g))]


def _extreme(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x = v.inputs[0]
    return [(x, _times(ir.cast(g, x.space), ir.won(ir.winner(v))))]


def _matmul(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x, w = v.inputs
    lead, (inner, *rest) = x.shape[:-1], w.shape
    outer, root = prod(rest), w
    while root.op == "cast" and root not in wanted:
        root = root.inputs[0]
    if root.space in (P, T):
        # For a parameter, sum all outer products directly; going through its cast would store one per row.
        turned = ir.transpose(ir.reshape(root, (inner, outer)))
        return [(x, ir.matmul(ir.reshape(g, (*lead, outer)), turned)), (root, ir.gram(x, g, root.space))]
    # A matrix per row: the same products elementwise, over the axes [*lead, inner, outer].
    column = ir.reshape(g, (*lead, 1, outer))
    by_x = _times(column, ir.reshape(w, (*(1 for _ in lead), inner, outer)))
    by_w = _summed_to(_times(ir.reshape(x, (*x.shape, 1)), column), (*(1 for _ in lead), inner, outer))
    return [(x, ir.sum_axis(by_x, len(x.shape))), (w, ir.reshape(by_w, w.shape))]


def _gram(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x, y = v.inputs
    lead, inner, rest = x.shape[:-1], x.shape[-1], y.shape[len(x.shape) - 1 :]
    flat, matrix = ir.reshape(y, (*lead, prod(rest))), ir.reshape(g, (inner, prod(rest)))
    return [(x, ir.matmul(flat, ir.transpose(matrix))), (y, ir.reshape(ir.matmul(x, matrix), y.shape))]


def _adjacency(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    x, *weight = v.inputs
    parts = [(x, ir.product(g, *weight, back=not v["back"]))]
    if weight:
        of_sources, of_targets = (g, x) if v["back"] else (x, g)
        each = _times(ir.cast(of_targets, E), ir.cast(ir.cast(of_sources, S), E))
        parts.append((weight[0], each))
    return parts


def _concat(v: Value, g: Value, wanted: frozenset[Value]) -> Parts:
    parts, first = [], 0
    for operand in v.inputs:
        last = first + operand.shape[-1]
        parts.append((operand, ir.columns(g, first, last)))
        first = last
    return parts


def _linear(adjoint: Callable[[Value, Value, Value], Value]) -> Callable[[Value, Value, frozenset[Value]], Parts]:
    """Return the rule of a linear operation on x, given its adjoint (v, x, g)."""
    return lambda v, g, wanted: [(v.inputs[0], adjoint(v, v.inputs[0], g))]


_RULES: dict[str, Callable[[Value, Value, frozenset[Value]], Parts]] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(("add", "subtract"), _sum),
    **dict.fromkeys(("multiply", "dot"), _product),
    "divide": _divide,
    **dict.fromkeys(("maximum", "minimum"), _choice),
    "where": _where,
    "cast": _linear(lambda v, x, g: ir.total(g, x.space)),
    "total": _linear(lambda v, x, g: ir.cast(g, x.space)),
    "product": _adjacency,
    **dict.fromkeys(("maximum_of", "minimum_of"), _extreme),
    "matmul": _matmul,
    "gram": _gram,
    "sum_axis": _linear(lambda v, x, g: ir.repeat_axis(g, v["axis"], x.shape[v["axis"]])),
    "repeat_axis": _linear(lambda v, x, g: ir.sum_axis(g, v["axis"])),
    "reshape": _linear(lambda v, x, g: ir.reshape(g, x.shape)),
    "transpose": _linear(lambda v, x, g: ir.transpose(g)),
    "concat": _concat,
    "slice": _linear(lambda v, x, g: ir.pad(g, v["first"], x.shape[-1])),
    "pad": _linear(lambda v, x, g: ir.columns(g, v["first"], v["first"] + x.shape[-1])),
    "by_type": _linear(lambda v, x, g: ir.all_types(g, v["types"])),
    "all_types": _linear(lambda v, x, g: ir.by_type(g)),
}
