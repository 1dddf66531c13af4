"""Rewrites of vertex programs that keep their values (Seastar, EuroSys'21, section 6).

Equal values are made once, work goes to the coarsest space in which it can be done, what a sum has in common goes out
of it. Every rule looks at one value whose operands are in their final form, and says what to write for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import isfinite, prod

import numpy as np

from mgg.vertex import ir
from mgg.vertex.crossing import ROWWISE, placed
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value

#: Of what multiplies, what divides, and a number.
Factors = tuple[list[Value], list[Value], float]

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "equal", "dot"})
#: Nothing but zeros if one operand (of ``divide``: the first) is.
LINEAR = frozenset({
    "negative", "total", "sum_axis", "reshape", "transpose", "slice", "pad", "matmul", "dot", "gram", "multiply", "divide",
    "product", "by_type", "all_types", "stop",
})  # fmt: skip
#: Finite for finite operands.
TAME = ROWWISE - {"divide", "reciprocal", "exp", "log", "sqrt", "power"} | {
    "input", "constant", "mask", "cast", "total", "maximum_of", "minimum_of", "won", "winner", "by_type", "all_types",
    "product", "gram",
}  # fmt: skip
#: Products of more factors are left as they are.
MOST_FACTORS = 16
_NOWHERE = ArcGraph.of(0, np.empty(0), np.empty(0))


def optimized(outputs: Sequence[Value], *, differentiable: bool = False) -> list[Value]:
    """Values equal to ``outputs`` (but for rounding) that take less work; the same for the same ``outputs``.

    Forward alone, then forward and gradients together: gradients are best derived of what is optimized already, since
    then both sum the same values over arcs.

    Args:
        outputs: of a program, and of its gradients.
        differentiable: gradients are still to be derived: ``stop`` stays, plain products are not yet named, and
            what crosses from D to S not yet chosen.
    """
    rewriter = _Rewriter(differentiable)
    values = [rewriter.final(value) for value in outputs]
    while (narrowed := _narrowed(values)) is not None:
        values = [rewriter.final(value) for value in narrowed]
    return values if differentiable else placed(_products(values))


# What values are.


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
    inner: Factors | None = None
    if x.op == "multiply":
        first, second = factors(x.inputs[0], over), factors(x.inputs[1], over)
        inner = first[0] + second[0], first[1] + second[1], first[2] * second[2]
    elif x.op == "divide":
        first = factors(x.inputs[0], over)
        inner = first[0], [*first[1], x.inputs[1]], first[2]
    elif x.op == "negative":
        first = factors(x.inputs[0], over)
        inner = first[0], first[1], -first[2]
    elif x.op == "reciprocal":
        inner = [], [x.inputs[0]], 1.0
    elif x.op == "cast" and over is not None and not outside(x, over):
        nums, dens, c = factors(root(x), None)
        inner = [seen(each, x.space) for each in nums], [seen(each, x.space) for each in dens], c
        if c == 1 and not any(outside(each, over) for each in inner[0] + inner[1]):
            inner = None
    elif x.shape == () and (known := number(x)) is not None:
        return [], [], known
    return inner if inner is not None and len(inner[0] + inner[1]) <= MOST_FACTORS else ([x], [], 1.0)


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
    return reduce(partial(ir.binary, "divide"), by, reduce(_times, parts))


def _times(x: Value, y: Value) -> Value:
    return ir.binary("multiply", x, y)


def _zeros(space: Space, shape: Sequence[int]) -> Value:
    result = ir.constant(0)
    for axis, count in enumerate(shape):
        result = ir.repeat_axis(result, axis, count)
    return ir.cast(result, space)


def _of(v: Value, *inputs: Value, space: Space | None = None) -> Value:
    """The operation of ``v`` on others."""
    return replace(v, inputs=inputs, space=space or v.space)


def _lead(values: Iterable[Value], axes: int) -> bool:
    """Whether none of ``values`` has more axes."""
    return all(len(x.shape) <= axes for x in values)


class _Rewriter:
    """Final forms of values. ``final`` is a fixed point: no rule changes what it gives."""

    def __init__(self, stops: bool) -> None:
        self._known: dict[tuple[object, ...], Value] = {}
        self._serial: dict[Value, int] = {}
        self._done: dict[Value, Value] = {}
        self._tame: dict[tuple[Value, bool], bool] = {}
        #: Of an operation, in their order, behind those of all.
        self._rules: dict[str, list[Callable[[Value], Value | None]]] = {
            "cast": [_cast], "mask": [_mask], "product": [_unnamed], "reshape": [_reshape], "slice": [_slice],
            "transpose": [_transpose], "stop": [] if stops else [lambda v: v.inputs[0]],
            **dict.fromkeys(("multiply", "divide"), [_neutral, self._product]),
            **dict.fromkeys(("negative", "reciprocal"), [self._product]),
            **dict.fromkeys(("add", "subtract"), [_sum]), "where": [self._where], "sum_axis": [_sum_axis],
            "dot": [_dot], "matmul": [_matmul], "gram": [_gram],
            "total": [_total, _total_of_cast, _total_of_linear, self._total_of_product],
        }  # fmt: skip

    def final(self, v: Value) -> Value:
        """What to write for ``v``."""
        stack = [v]
        while stack:
            top = stack[-1]
            if top in self._done:
                stack.pop()
            elif pending := [operand for operand in top.inputs if operand not in self._done]:
                stack += reversed(pending)
            else:
                self._done[top] = self._rewritten(top)
        return self._done[v]

    def _rewritten(self, v: Value) -> Value:
        """``v``, whose operands have their final form already."""
        value = self._interned(v)
        if value in self._done:
            return self._done[value]
        for rule in (_fold, _hoist, _zero, *self._rules.get(value.op, ())):
            new = rule(value)
            if new is None:
                continue
            new = new if new.where else replace(new, where=value.where)
            for operand in new.inputs:
                self.final(operand)
            if self._interned(new) is not value:
                self._done[value] = self.final(new)
                return self._done[value]
        self._done[value] = value
        return value

    def _interned(self, v: Value) -> Value:
        inputs = [self._done[operand] for operand in v.inputs]
        if v.op in COMMUTATIVE:
            inputs.sort(key=self._serial.__getitem__)
        key = (v.op, *inputs, v.space, v.shape, v.attributes)
        if key not in self._known:
            value = self._known[key] = v if (*inputs,) == v.inputs else replace(v, inputs=tuple(inputs))
            self._serial[value] = len(self._serial)
        return self._known[key]

    def _product(self, v: Value) -> Value | None:
        """Factors of a space meet there, then in the finer one, narrow ones first."""
        nums, dens, c = factors(v)
        nums = _unrepeated(nums, dens, v.shape)
        nums, dens = [self.final(x) for x in nums], [self.final(x) for x in dens]
        spaces = {root(x).space for x in nums + dens}
        groups = {space: ([x for x in nums if root(x).space is space], [x for x in dens if root(x).space is space])
                  for space in (T, D, S, R, E, P) if space in spaces}  # fmt: skip
        if P in groups and len(groups) > 1:
            first, last = next(iter(groups.values())), groups.pop(P)
            first[0].extend(last[0])
            first[1].extend(last[1])
        order: Callable[[Value], tuple[int, bool, int]] = lambda x: (x.size, x.op == "cast", self._serial[root(x)])  # noqa: E731
        parts, by = [], []
        sign, c = (-1, 1.0) if c == -1 else (1, c)
        for k, (space, (above_line, below_line)) in enumerate(groups.items()):
            above_line.sort(key=order)
            below_line.sort(key=order)
            if space is v.space:
                parts += above_line
                by += below_line
            else:
                parts.append(self.final(seen(quotient(above_line, below_line, 1.0 if k else c, space), v.space)))
                c = c if k else 1.0
        new = quotient(sorted(parts, key=order), by, c, v.space)
        assert new.shape == v.shape, v
        return new if sign == 1 else ir.unary("negative", new)

    def _where(self, v: Value) -> Value | None:
        condition, x, y = v.inputs
        if x is y and x.shape == v.shape:
            return x
        zero = next((k for k, each in enumerate((x, y)) if number(each) == 0), None)
        if zero is not None:
            other = (y, x)[zero]
            nums, dens, c = factors(other)
            tame = [each for each in nums if self._is_tame(each)]
            if not tame or number(other) is not None:
                return None
            rest = quotient([each for each in nums if each not in tame], dens, 1.0, v.space)
            zeros = ir.cast(ir.constant(0), v.space)
            chosen = ir.where(condition, *((zeros, rest) if zero == 0 else (rest, zeros)))
            if zero == 1 and root(condition).op in ("greater", "equal") and number(rest) == 1:
                chosen = condition
            new = quotient([*tame, chosen], [], c, v.space)
            return new if new.shape == v.shape else None
        (nums, dens, c), (others, below, d) = factors(x), factors(y)
        if c * d != 0 and nums and Counter(nums) == Counter(others) and Counter(dens) == Counter(below):
            chosen = ir.where(condition, *(ir.cast(ir.constant(each), v.space) for each in (1.0, d / c)))
            return quotient([chosen, *nums], dens, c, v.space)
        return None

    def _is_tame(self, x: Value, *, overflow: bool = False) -> bool:
        """Whether finite operands make no infinity of ``x``; ``overflow``: but for exp of large ones."""
        for value in ir.walk([x]):
            if (value, overflow) not in self._tame:
                tame = value.op in TAME or (value.op == "exp" and overflow) or (value.op in ("divide", "reciprocal") and _safe(value.inputs[-1]))
                self._tame[value, overflow] = tame and all(self._tame[operand, overflow] for operand in value.inputs)
        return self._tame[x, overflow]

    def _guarded(self, x: Value, space: Space, fine: Space) -> Value:
        """``x``, a factor of sums of ``fine`` rows, seen from ``space``; 1 where there are none and it may be infinite."""
        x = seen(x, space)
        return x if self._is_tame(self.final(x), overflow=True) else _if_any(x, fine)


    def _total_of_product(self, v: Value) -> Value | None:
        """Linearity: factors of coarser rows go out of sums, through dots and matrices, too."""
        (x,), space = v.inputs, v.space
        fine = x.space
        nums, dens, c = factors(x, space)
        out = [each for each in nums if outside(each, space)], [each for each in dens if outside(each, space)]
        rest, below = [each for each in nums if each not in out[0]], [each for each in dens if each not in out[1]]
        if (fine, space) == (S, D):  # of vertices that are nobody's source there is no count
            out = [each for each in out[0] if self._is_tame(self.final(each), overflow=True)], []
            rest, below = [each for each in nums if each not in out[0]], dens
        if (c != 1 or out[0] or out[1]) and rest + below:
            inside = ir.total(quotient(rest, below, 1.0, fine), space)
            opened = [factors(root(each)) for each in out[0]]
            out = [x for f in opened for x in f[0]], [*out[1], *(x for f in opened for x in f[1])]
            c *= prod(f[2] for f in opened)
            guarded = [self._guarded(each, space, fine) for each in out[0]]
            new = quotient([*guarded, inside], [x if _safe(x) else _if_any(seen(x, space), fine) for x in out[1]], c, space)
            return new if new.shape == v.shape else None
        for k, each in enumerate(nums):
            others = nums[:k] + nums[k + 1 :]
            weighted = partial(_weighted, others, dens, fine)
            if each.op in ("add", "subtract") and any(_loose(part, space) for part in each.inputs) and others + dens:
                parts = [weighted(part) for part in each.inputs]
                return ir.binary(each.op, *(ir.total(part, space) for part in parts))
            if not _lead(others + dens, len(each.shape)) or each.shape != x.shape:
                continue
            if each.op == "dot" and fine is not S and (new := self._inner(each, weighted, space)) is not None:
                return new
            if (new := _through_matrix(each, weighted, others + dens, space)) is not None:
                return new
        return None

    def _inner(self, each: Value, weighted: Callable[[Value], Value], space: Space) -> Value | None:
        """sum of w <g, y> = <g, sum of w y>."""
        all_factors = [factors(row, space) for row in each.inputs]
        nums, dens = [x for f in all_factors for x in f[0]], [x for f in all_factors for x in f[1]]
        out = [x for x in nums if outside(x, space)], [x for x in dens if outside(x, space)]
        rest = [x for x in nums if x not in out[0]], [x for x in dens if x not in out[1]]
        if not out[0] or not rest[0]:
            return None
        g = self._guarded(quotient(*out, prod(f[2] for f in all_factors), each.space), space, each.space)
        y = weighted(quotient(*rest, 1.0, each.space))
        shapes = {(len(x.shape), x.shape[-1:]) for x in (g, y, each.inputs[0])}
        return ir.dot(g, ir.total(y, space)) if len(shapes) == 1 and each.shape == ir.dot(g, ir.total(y, space)).shape else None


def _if_any(x: Value, fine: Space) -> Value:
    """``x`` in rows to which rows of ``fine`` belong, else 1."""
    count = ir.total(ir.cast(ir.constant(1), fine), x.space)
    return ir.where(ir.binary("greater", count, ir.constant(0)), x, ir.constant(1))


def _safe(x: Value) -> bool:
    """Whether ``x`` is never 0, as a denominator should be."""
    x = root(x)
    if x.op in ("where", "maximum"):
        return any((number(each) or 0) > 0 for each in x.inputs[-2:])
    return bool(number(x))


def _unrepeated(nums: Sequence[Value], dens: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """``nums``, without axes at their ends along which they are repeated, as far as others have these."""
    result = list(nums)
    for k, x in enumerate(nums):
        while (inner := root(result[k])).op == "repeat_axis" and inner["axis"] == len(inner.shape) - 1:
            less = [*result[:k], seen(inner.inputs[0], x.space), *result[k + 1 :]]
            if len(less) + len(dens) < 2 or ir.broadcast([each.shape for each in [*less, *dens]]) != shape:
                break
            result = less
    return result


# Rules of all operations.


def _fold(v: Value) -> Value | None:
    """A number made of numbers."""
    if v.op not in ROWWISE or v.shape != () or v.space is not P or any(x.op != "constant" for x in v.inputs):
        return None
    result = float(evaluate([v], _NOWHERE, {})[0])
    return ir.constant(result) if isfinite(result) else None


def _hoist(v: Value) -> Value | None:
    """What is made of coarser rows alone is made once for each."""
    if v.op not in ROWWISE or v.space is P:
        return None
    spaces = {root(x).space for x in v.inputs}
    for space in (P, T, D, S, R):
        if space.over(v.space) and all(above(each, space, v.space) for each in spaces):
            break
    else:
        return None
    if space is v.space:
        return None
    keep = v.op == "matmul" and v.inputs[1].space is P
    inputs = [x if keep and k else seen(root(x), space) for k, x in enumerate(v.inputs)]
    return ir.cast(_of(v, *inputs, space=space), v.space)


def _zero(v: Value) -> Value | None:
    """Of zeros come zeros."""
    operands = v.inputs[:1] if v.op == "divide" else v.inputs
    return _zeros(v.space, v.shape) if v.op in LINEAR and any(number(x) == 0 for x in operands) else None


# Rules of single operations.


def _cast(v: Value) -> Value | None:
    return seen(v.inputs[0], v.space) if v.inputs[0].op == "cast" else None


def _mask(v: Value) -> Value | None:
    return ir.cast(replace(v, space=D), S) if v.space is S else None


def _unnamed(v: Value) -> Value:
    x, *weight = v.inputs
    rows = ir.cast(x, E) if v["back"] else ir.cast(ir.cast(x, S), E)
    each = quotient([*weight, rows], [], 1.0, E)
    return ir.total(ir.total(each, S), D) if v["back"] else ir.total(each, D)


def _reshape(v: Value) -> Value | None:
    (x,) = v.inputs
    return ir.reshape(x.inputs[0] if x.op == "reshape" else x, v.shape) if x.op == "reshape" or x.shape == v.shape else None


def _transpose(v: Value) -> Value | None:
    return v.inputs[0].inputs[0] if v.inputs[0].op == "transpose" else None


def _slice(v: Value) -> Value | None:
    (x,), first, last = v.inputs, v["first"], v["last"]
    if x.shape == v.shape:
        return x
    if x.op == "slice":
        return ir.columns(x.inputs[0], x["first"] + first, x["first"] + last)
    if x.op == "pad" and x["first"] <= first and last <= x["first"] + x.inputs[0].shape[-1]:
        return ir.columns(x.inputs[0], first - x["first"], last - x["first"])
    start = 0
    for part in x.inputs if x.op == "concat" else ():
        if start <= first and last <= start + part.shape[-1]:
            return ir.columns(part, first - start, last - start)
        start += part.shape[-1]
    return None


def _neutral(v: Value) -> Value | None:
    """Numbers all over, of any shape, become plain ones."""
    for k, known in enumerate(map(number, v.inputs)):
        x = v.inputs[1 - k]
        if known is None or x.shape != v.shape or (v.op == "divide" and (k == 0 or known == 0)):
            continue
        if known == 1:
            return x
        if v.inputs[k].shape != ():
            return _of(v, x, ir.cast(ir.constant(known), v.space))
    return None


def _sum(v: Value) -> Value | None:
    x, y = v.inputs
    plus = v.op == "add"
    if number(y) == 0 and x.shape == v.shape:
        return x
    if number(x) == 0 and y.shape == v.shape:
        return y if plus else ir.unary("negative", y)
    if y.op == "negative":
        return ir.binary("subtract" if plus else "add", x, y.inputs[0])
    if x.op == "negative":
        return ir.binary("subtract", y, x.inputs[0]) if plus else ir.unary("negative", ir.binary("add", x.inputs[0], y))
    return _zeros(v.space, v.shape) if x is y and not plus else None


def _split(x: Value, axes: int) -> tuple[Factors, Factors]:
    """Factors of ``x`` of at most ``axes`` axes, and the others."""
    nums, dens, c = factors(x)
    few, many = ([each for each in nums if _lead([each], axes) is side] for side in (True, False))
    above_line, below_line = ([each for each in dens if _lead([each], axes) is side] for side in (True, False))
    return (few, above_line, c), (many, below_line, 1.0)


def _sum_axis(v: Value) -> Value | None:
    """Factors without the axis go out; a sum of products over the last axis is a dot."""
    (x,), axis = v.inputs, v["axis"]
    if x.op == "repeat_axis" and x["axis"] == axis:
        return quotient([x.inputs[0]], [], float(x["count"]), v.space)
    few, (many, below, _) = _split(x, axis)
    if not many:
        return None
    inside, result = quotient(many, below, 1.0, v.space), None
    if axis == len(x.shape) - 1 and len(many) > 1 and inside.shape == x.shape:
        rows = quotient(many[:-1], below, 1.0, v.space), many[-1]
        if all(len(each.shape) == len(x.shape) and each.shape[-1] == x.shape[-1] for each in rows):
            result = ir.dot(*rows)
    if result is None and few[0] + few[1] and inside.shape[axis : axis + 1] == x.shape[axis : axis + 1]:
        result = ir.sum_axis(inside, axis)
    if result is None or ir.broadcast([result.shape, *(each.shape for each in few[0] + few[1])]) != v.shape:
        return None
    return quotient([*few[0], result], few[1], few[2], v.space)


def _dot(v: Value) -> Value | None:
    """Factors of no columns go out; a row of parts side by side gives a sum of its parts' dots."""
    for k, x in enumerate(v.inputs):
        y = v.inputs[1 - k]
        if x.op == "concat" and len({root(part).space for part in x.inputs}) > 1:
            return reduce(partial(ir.binary, "add"), (ir.dot(p, ir.columns(y, a, b)) for p, a, b in _parts(x)))
        few, many = _split(x, len(x.shape) - 1)
        rest = quotient(*many, v.space)
        if (few[0] or few[1] or few[2] != 1) and many[0] and rest.shape == x.shape:
            return quotient([*few[0], ir.dot(rest, y)], few[1], few[2], v.space)
    return None


def _parts(x: Value) -> list[tuple[Value, int, int]]:
    """Parts of a concat, with their first and last columns."""
    ends = [sum(part.shape[-1] for part in x.inputs[:k]) for k in range(len(x.inputs) + 1)]
    return list(zip(x.inputs, ends, ends[1:], strict=False))


def _matmul(v: Value) -> Value | None:
    """Factors of no columns go out, where that is narrower or lets a product of coarser rows be made; likewise parts."""
    x, w = v.inputs
    if root(w).space is P and w.space is not P:
        return _of(v, x, root(w))
    inner, outer = w.shape[0], prod(w.shape[1:])
    if x.op == "concat" and root(w).space in (P, T) and len({root(part).space for part in x.inputs}) > 1:
        turned = ir.transpose(ir.reshape(root(w), (inner, outer)))
        rows = [(p, ir.transpose(ir.columns(turned, a, b))) for p, a, b in _parts(x)]
        return reduce(
            partial(ir.binary, "add"), (ir.matmul(p, ir.reshape(m, (b, *w.shape[1:]))) for p, m in rows for b in m.shape[:1])
        )
    few, many = _split(x, len(x.shape) - 1)
    rest = quotient(*many, x.space)
    if not (few[0] or few[1] or few[2] != 1) or not many[0] or rest.shape != x.shape:
        return None
    if v.space in (P, T, D) and outer > inner:
        return None
    return quotient([*few[0], _of(v, rest, w)], few[1], few[2], v.space)


def _gram(v: Value) -> Value | None:
    """Of a coarser row the products with all that belong to it are the product with their sum."""
    fine = v.inputs[0].space
    for space in (P, T, D, R, S):
        if space is fine or not space.over(fine) or not above(v.space, space, fine):
            continue
        for k, x in enumerate(v.inputs):
            nums, dens, c = factors(x, space)
            out = [each for each in nums if outside(each, space)], [each for each in dens if outside(each, space)]
            rest = [each for each in nums if each not in out[0]], [each for each in dens if each not in out[1]]
            if not out[0] or not _lead(rest[0] + rest[1], len(v.inputs[0].shape) - 1):
                continue
            other = quotient([*rest[0], v.inputs[1 - k]], rest[1], c, fine)
            coarse = quotient(*out, 1.0, space)
            if coarse.shape == x.shape and other.shape == v.inputs[1 - k].shape:
                pair = coarse, ir.total(other, space)
                return ir.gram(*(pair if k == 0 else pair[::-1]), v.space)
    return None


def _total(v: Value) -> Value | None:
    """By rows of vertices to parameters, by runs to types; else in one step."""
    (x,) = v.inputs
    via = {(E, P): D, (R, P): D, (E, T): R}.get((x.space, v.space))
    if via is not None:
        return ir.total(ir.total(x, via), v.space)
    if x.op == "total" and (v.space, x.space) not in ((P, D), (T, R), (D, S)):
        return ir.total(x.inputs[0], v.space)
    return None


def _total_of_cast(v: Value) -> Value | None:
    """As often as there are rows."""
    (x,), space = v.inputs, v.space
    y = root(x)
    if x.op != "cast" or (x.space, space) == (S, D) or (y.op == "constant" and y["value"] == 1):
        return None
    ones = ir.cast(ir.constant(1), x.space)
    if above(y.space, space, x.space):
        return _times(seen(y, space), ir.total(ones, space))
    if above(space, y.space, x.space):
        return ir.total(_times(y, ir.total(ones, y.space)), space)
    return None


def _total_of_linear(v: Value) -> Value | None:
    """Sums of what is made of one row each, without weights of its own."""
    (x,), space = v.inputs, v.space
    if x.op in ("negative", "reshape", "repeat_axis", "pad", "concat"):
        return _of(x, *(ir.total(each, space) for each in x.inputs), space=space)
    if x.op in ("add", "subtract") and any(_loose(each, space, alone=True) for each in x.inputs):
        return ir.binary(x.op, *(ir.total(each, space) for each in x.inputs))
    return None


def _loose(x: Value, space: Space, alone: bool = False) -> bool:
    """Whether a sum of ``x`` to ``space`` lets a factor out that is more than a number, or is a number ``alone``."""
    nums, dens, _ = factors(x, space)
    if not nums + dens:
        return alone
    return any(outside(each, space) for each in nums + dens) or any(
        each.op == "dot" and any(outside(y, space) for row in each.inputs for y in factors(row, space)[0]) for each in nums
    )


def _weighted(nums: Sequence[Value], dens: Sequence[Value], space: Space, x: Value) -> Value:
    return quotient([*nums, x], dens, 1.0, space)


def _through_matrix(
    each: Value, weighted: Callable[[Value], Value], weights: Sequence[Value], space: Space
) -> Value | None:
    """sum of w y M = (sum of w y) M, of runs if M is their type's; from rows of sources where it has more columns."""
    fine = each.space
    chain, core = [fine], each
    while core.op == "cast":
        core = core.inputs[0]
        chain.append(core.space)
    nums, dens, c = factors(core)
    for k, m in enumerate(nums):
        if m.op != "matmul" or m.shape != each.shape or not _lead(weights, len(m.inputs[0].shape) - 1):
            continue
        scales = nums[:k] + nums[k + 1 :]
        (y, w), lead = m.inputs, len(m.inputs[0].shape) - 1
        if not _lead(scales + dens, lead) or (len(chain) > 1 and (w.space is not P or m.size < y.size)):
            continue
        if len(chain) > 1 and (fine is not E or S not in chain):
            continue
        rows = quotient([*scales, y], dens, c, core.space)
        for finer in reversed(chain[:-1]):
            rows = ir.cast(rows, finer)
        rows = weighted(rows)
        if rows.shape != y.shape:
            continue
        if above(root(w).space, space, fine):
            return ir.matmul(ir.total(rows, space), root(w) if root(w).space is P else seen(w, space))
        if root(w).space is T and (fine, space) == (E, D):
            return ir.total(ir.matmul(ir.total(rows, R), seen(w, R)), D)
    return None


# Rewrites of whole programs.


def _rebuilt(outputs: Sequence[Value], change: Callable[[Value, Value], Value]) -> list[Value]:
    """``outputs``, in which ``change`` (value, the same of changed operands) stands for each value."""
    done: dict[Value, Value] = {}
    for value in ir.walk(outputs):
        inputs = tuple(done[operand] for operand in value.inputs)
        done[value] = change(value, value if inputs == value.inputs else replace(value, inputs=inputs))
    return [done[value] for value in outputs]


def _narrowed(outputs: Sequence[Value]) -> list[Value] | None:
    """A matrix with fewer columns than rows goes into the sum that it follows, if nothing else needs that: A (X W)."""
    uses = Counter(operand for value in ir.walk(outputs) for operand in set(value.inputs))
    uses.update(outputs)
    for value in ir.walk(outputs):
        if value.op != "matmul" or value.space is not D or value.inputs[1].space is not P:
            continue
        x, w = value.inputs
        nums, dens, c = factors(x)
        for k, each in enumerate(nums):
            rest = nums[:k] + nums[k + 1 :]
            inside = _with_matrix(each, w) if uses[each] == 1 and (x is each or uses[x] == 1) else None
            if inside is not None and value.size < x.size and _lead(rest + dens, len(x.shape) - 1):
                new = quotient([*rest, inside], dens, c, D)
                return _rebuilt(outputs, lambda old, now, value=value, new=new: new if old is value else now)  # type: ignore[misc]
    return None


def _with_matrix(v: Value, w: Value) -> Value | None:
    """The sum ``v`` of rows of sources, times ``w``, which is applied to the sources."""
    if v.op != "total" or v.inputs[0].space is not E or v.space is not D:
        return None
    nums, dens, c = factors(v.inputs[0])
    for k, each in enumerate(nums):
        rest = nums[:k] + nums[k + 1 :]
        if root(each).space is S and each.shape == v.shape and _lead(rest + dens, len(v.shape) - 1):
            return ir.total(quotient([*rest, ir.cast(ir.matmul(root(each), w), E)], dens, c, E), D)
    return None


def _products(outputs: Sequence[Value]) -> list[Value]:
    """Names plain products, but for what is gathered for other sums, too."""
    gathered: set[Value] = set()
    for value in ir.walk(outputs):
        if value.op in ("total", "maximum_of", "minimum_of") and value.inputs[0].space is E and _plain(value) is None:
            for each in ir.walk([value.inputs[0]]):
                if each.space is E and each.op == "cast":
                    gathered.add(each)

    def change(old: Value, now: Value) -> Value:
        if old.op != "total" or old.space is not D:
            return now
        back = old.inputs[0].op == "total" and old.inputs[0].space is S
        plain = _plain(old.inputs[0] if back else old)
        if plain is None or plain[0] in gathered or (back and plain[0].inputs[0].space is not D):
            return now
        of_now = _plain(now.inputs[0] if back else now)
        assert of_now is not None
        rows = of_now[0].inputs[0] if back else of_now[0].inputs[0].inputs[0]
        return ir.product(rows, *of_now[1], back=back, where=old.where)

    return _rebuilt(outputs, change)


def _plain(v: Value) -> tuple[Value, list[Value]] | None:
    """Of a sum of rows from the arcs' other ends, weighted or not: these rows, seen from arcs, and the weight if any."""
    if v.op != "total" or v.inputs[0].space is not E or v.space not in (D, S):
        return None
    nums, dens, c = factors(v.inputs[0])
    rows = [x for x in nums if x.op == "cast" and (root(root(x)) if v.space is D else root(x)).space is D]
    rows = [x for x in rows if (root(x).space is S) is (v.space is D)]
    weight = [x for x in nums if x.op == "input" and x["name"] == "weight" and x.shape == ()]
    if dens or c != 1 or len(rows) != 1 or len(nums) != 1 + len(weight) or len(weight) > 1:
        return None
    return rows[0], weight
