"""Values as products of factors, of several spaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce

from mgg.vertex import ir
from mgg.vertex.crossing import ROWWISE
from mgg.vertex.ir import D, E, S, Space, Value

#: Of what multiplies, what divides, and a number.
Factors = tuple[list[Value], list[Value], float]

#: Products of more factors are left as they are.
MOST_FACTORS = 16
#: Finite for finite operands.
TAME = ROWWISE - {"divide", "reciprocal", "exp", "log", "sqrt", "power"} | {
    "input", "constant", "mask", "cast", "total", "maximum_of", "minimum_of", "won", "winner", "by_type", "all_types",
    "product", "gram",
}  # fmt: skip


def root(x: Value) -> Value:
    """What ``x`` is cast from, else itself."""
    return x.inputs[0] if x.op == "cast" else x


def above(coarse: Space, middle: Space, fine: Space) -> bool:
    """Whether rows of ``fine`` of one row of ``middle`` are of one row of ``coarse``, by the same maps."""
    return coarse is middle or (coarse.over(middle) and (coarse, middle, fine) != (D, S, E))


def seen(x: Value, space: Space) -> Value:
    """``x`` cast to ``space``, in one step where that is the same."""
    while x.op == "cast" and x.space is not space and (x.inputs[0].space, x.space, space) != (D, S, E):
        x = x.inputs[0]
    return ir.cast(x, space)


def number(x: Value) -> float | None:
    """The number that all entries of ``x`` are, if it is known."""
    while x.op in ("cast", "repeat_axis", "reshape"):
        x = x.inputs[0]
    return x["value"] if x.op == "constant" else None


def factors(x: Value, over: Space | None = None) -> Factors:
    """``x`` as a product of values of its space; casts are opened if that gives factors of ``over`` or coarser."""
    nums: list[Value] = []
    dens: list[Value] = []
    c, stack = 1.0, [x]
    while stack:
        y = stack.pop()
        if y.op == "multiply":
            stack += reversed(y.inputs)
        elif y.op == "negative":
            c = -c
            stack.append(y.inputs[0])
        elif y.op in ("divide", "reciprocal"):
            stack += y.inputs[:-1]
            dens.append(y.inputs[-1])
        elif y.op == "cast" and over is not None and not outside(y, over):
            inner, below, d = factors(root(y))
            inner, below = [seen(each, y.space) for each in inner], [seen(each, y.space) for each in below]
            opened = d != 1 or any(outside(each, over) for each in inner + below)
            nums += inner if opened else [y]
            dens += below if opened else []
            c *= d if opened else 1
        elif y.shape == () and (known := number(y)) is not None:
            c *= known
        else:
            nums.append(y)
        if len(nums) + len(dens) + len(stack) > MOST_FACTORS:
            return [x], [], 1.0
    return nums, dens, c


def outside(x: Value, space: Space) -> bool:
    """Whether ``x`` is the same in all rows that are added up to one row of ``space``."""
    return x.op == "cast" and above(x.inputs[0].space, space, x.space)


def quotient(nums: Iterable[Value], dens: Iterable[Value], c: float, space: Space) -> Value:
    """The product of ``nums`` and ``c`` over ``dens``, all seen from ``space``, in their order."""
    parts, by = [seen(x, space) for x in nums], [seen(x, space) for x in dens]
    if c != 1 or not parts + by:
        parts.append(ir.cast(ir.constant(c), space))
    if not parts:
        parts = [ir.unary("reciprocal", by.pop(0))]
    return reduce(partial(ir.binary, "divide"), by, reduce(times, parts))


def split(x: Value, axes: int) -> tuple[Factors, Factors]:
    """Factors of ``x`` of at most ``axes`` axes, and the others."""
    nums, dens, c = factors(x)
    few, many = ([each for each in nums if lead([each], axes) is side] for side in (True, False))
    above_line, below_line = ([each for each in dens if lead([each], axes) is side] for side in (True, False))
    return (few, above_line, c), (many, below_line, 1.0)


def loose(x: Value, space: Space, alone: bool = False) -> bool:
    """Whether a sum of ``x`` to ``space`` lets a factor out that is more than a number, or is a number ``alone``."""
    nums, dens, _ = factors(x, space)
    if not nums + dens:
        return alone
    return any(outside(each, space) for each in nums + dens) or any(
        each.op == "dot" and any(outside(y, space) for row in each.inputs for y in factors(row, space)[0])
        for each in nums
    )


def lead(values: Iterable[Value], axes: int) -> bool:
    """Whether none of ``values`` has more axes."""
    return all(len(x.shape) <= axes for x in values)


def times(x: Value, y: Value) -> Value:
    """Elementwise."""
    return ir.binary("multiply", x, y)


def zeros(space: Space, shape: Sequence[int]) -> Value:
    """Zeros all over."""
    result = ir.constant(0)
    for axis, count in enumerate(shape):
        result = ir.repeat_axis(result, axis, count)
    return ir.cast(result, space)


def of(v: Value, *inputs: Value, space: Space | None = None) -> Value:
    """The operation of ``v`` on others."""
    return replace(v, inputs=inputs, space=space or v.space)


def safe(x: Value) -> bool:
    """Whether ``x`` is never 0, as a denominator should be."""
    x = root(x)
    if x.op in ("where", "maximum"):
        return any((number(each) or 0) > 0 for each in x.inputs[-2:])
    return bool(number(x))


def if_any(x: Value, fine: Space) -> Value:
    """``x`` in rows to which rows of ``fine`` belong, else 1."""
    count = ir.total(ir.cast(ir.constant(1), fine), x.space)
    return ir.where(ir.binary("greater", count, ir.constant(0)), x, ir.constant(1))


class Tameness:
    """Which values are finite if what they are made of is."""

    def __init__(self) -> None:
        self._known: dict[tuple[Value, bool], bool] = {}

    def of(self, x: Value, *, overflow: bool = False) -> bool:
        """Whether ``x`` is; ``overflow``: but for exp of large numbers."""
        for v in ir.walk([x]):
            if (v, overflow) not in self._known:
                tame = v.op in TAME or (v.op == "exp" and overflow)
                tame = tame or (v.op in ("divide", "reciprocal") and safe(v.inputs[-1]))
                self._known[v, overflow] = tame and all(self._known[operand, overflow] for operand in v.inputs)
        return self._known[x, overflow]

    def guarded(self, x: Value, space: Space, fine: Space) -> Value:
        """``x``, factor of sums of ``fine`` rows, seen from ``space``; 1 where there are none if it may be infinite."""
        x = seen(x, space)
        return x if self.of(x, overflow=True) else if_any(x, fine)
