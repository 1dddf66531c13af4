"""Factor values into products of values of several spaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce

from mgg.vertex import ir
from mgg.vertex.crossing import ROWWISE
from mgg.vertex.ir import D, E, S, Space, Value

#: Numerator factors, denominator factors, and a number.
Factors = tuple[list[Value], list[Value], float]

#: Products of more factors stay unfactored.
MOST_FACTORS = 16
#: Operations with finite results for finite operands.
TAME = ROWWISE - {"divide", "reciprocal", "exp", "log", "sqrt", "power"} | {
    "input", "constant", "mask", "cast", "total", "maximum_of", "minimum_of", "won", "winner", "by_type", "all_types",
    "product", "gram",
}  # fmt: skip


def root(x: Value) -> Value:
    """Return the operand of the cast ``x``, or ``x`` itself if it is no cast."""
    return x.inputs[0] if x.op == "cast" else x


def above(coarse: Space, middle: Space, fine: Space) -> bool:
    """Return whether all rows of ``fine`` in one row of ``middle`` are in one row of ``coarse``, by the same maps."""
    return coarse is middle or (coarse.over(middle) and (coarse, middle, fine) != (D, S, E))


def seen(x: Value, space: Space) -> Value:
    """Cast ``x`` to ``space``, in one step where that is equivalent."""
    while x.op == "cast" and x.space is not space and (x.inputs[0].space, x.space, space) != (D, S, E):
        x = x.inputs[0]
    return ir.cast(x, space)


def number(x: Value) -> float | None:
    """Return the number that all entries of ``x`` are known to equal, or None."""
    while x.op in ("cast", "repeat_axis", "reshape"):
        x = x.inputs[0]
    return x["value"] if x.op == "constant" else None


def factors(x: Value, over: Space | None = None) -> Factors:
    """Factor ``x`` into values of its space; look behind casts if that gives factors constant in rows of ``over``."""
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
    """Return whether ``x`` is the same in all rows summed into one row of ``space``."""
    return x.op == "cast" and above(x.inputs[0].space, space, x.space)


def quotient(nums: Iterable[Value], dens: Iterable[Value], c: float, space: Space) -> Value:
    """Return the product of ``nums`` and ``c``, divided by ``dens``, all cast to ``space``, in their order."""
    parts, by = [seen(x, space) for x in nums], [seen(x, space) for x in dens]
    if c != 1 or not parts + by:
        parts.append(ir.cast(ir.constant(c), space))
    if not parts:
        parts = [ir.unary("reciprocal", by.pop(0))]
    return reduce(partial(ir.binary, "divide"), by, reduce(times, parts))


def split(x: Value, axes: int) -> tuple[Factors, Factors]:
    """Split the factors of ``x`` into those with at most ``axes`` axes and the others."""
    nums, dens, c = factors(x)
    few, many = ([each for each in nums if lead([each], axes) is side] for side in (True, False))
    above_line, below_line = ([each for each in dens if lead([each], axes) is side] for side in (True, False))
    return (few, above_line, c), (many, below_line, 1.0)


def loose(x: Value, space: Space, alone: bool = False) -> bool:
    """Return whether a factor can leave the sum of ``x`` to ``space``; ``alone`` is the result if ``x`` is a number."""
    nums, dens, _ = factors(x, space)
    if not nums + dens:
        return alone
    return any(outside(each, space) for each in nums + dens) or any(
        each.op == "dot" and any(outside(y, space) for row in each.inputs for y in factors(row, space)[0])
        for each in nums
    )


def lead(values: Iterable[Value], axes: int) -> bool:
    """Return whether all ``values`` have at most ``axes`` axes."""
    return all(len(x.shape) <= axes for x in values)


def times(x: Value, y: Value) -> Value:
    """Multiply elementwise."""
    return ir.binary("multiply", x, y)


def zeros(space: Space, shape: Sequence[int]) -> Value:
    """Return zeros of shape ``shape`` in ``space``."""
    result = ir.constant(0)
    for axis, count in enumerate(shape):
        result = ir.repeat_axis(result, axis, count)
    return ir.cast(result, space)


def of(v: Value, *inputs: Value, space: Space | None = None) -> Value:
    """Apply the operation of ``v`` to other operands."""
    return replace(v, inputs=inputs, space=space or v.space)


def safe(x: Value) -> bool:
    """Return whether ``x`` is known never to be 0, as a denominator should be."""
    x = root(x)
    if x.op in ("where", "maximum"):
        return any((number(each) or 0) > 0 for each in x.inputs[-2:])
    return bool(number(x))


def if_any(x: Value, fine: Space) -> Value:
    """Return ``x`` in rows to which rows of ``fine`` belong, else 1."""
    count = ir.total(ir.cast(ir.constant(1), fine), x.space)
    return ir.where(ir.binary("greater", count, ir.constant(0)), x, ir.constant(1))


class Tameness:
    """Decides which values are finite whenever their leaves are."""

    def __init__(self) -> None:
        self._known: dict[tuple[Value, bool], bool] = {}

    def of(self, x: Value, *, overflow: bool = False) -> bool:
        """Return whether ``x`` is finite; ``overflow``: ignore the overflow of exp."""
        for v in ir.walk([x]):
            if (v, overflow) not in self._known:
                tame = v.op in TAME or (v.op == "exp" and overflow)
                tame = tame or (v.op in ("divide", "reciprocal") and safe(v.inputs[-1]))
                self._known[v, overflow] = tame and all(self._known[operand, overflow] for operand in v.inputs)
        return self._known[x, overflow]

    def guarded(self, x: Value, space: Space, fine: Space) -> Value:
        """Cast a factor ``x`` of sums of ``fine`` rows to ``space``; if it may be infinite, 1 in rows without any."""
        x = seen(x, space)
        return x if self.of(x, overflow=True) else if_any(x, fine)
