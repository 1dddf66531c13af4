"""Rewrites of vertex programs that keep their values (Seastar, EuroSys'21, section 6).

Equal values are computed once, work moves to the coarsest space in which it can be done, and common factors move out
of sums. Every rule takes one value whose operands are in final form and returns its replacement, or None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import isfinite

import numpy as np

from mgg.vertex import ir
from mgg.vertex.crossing import ROWWISE, placed, sent_home
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, P, R, S, T, Value
from mgg.vertex.rewrites import linear
from mgg.vertex.rewrites.factors import Tameness, above, factors, lead, number, of, quotient, root, seen, zeros

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "equal", "dot"})
#: Operations that give zeros if any operand is zero (for ``divide``: the first).
LINEAR = frozenset({
    "negative", "total", "sum_axis", "reshape", "transpose", "slice", "pad", "matmul", "dot", "gram", "multiply",
    "divide", "product", "by_type", "all_types", "stop",
})  # fmt: skip
_NOWHERE = ArcGraph.of(0, np.empty(0), np.empty(0))


def optimized(outputs: Sequence[Value], *, differentiable: bool = False) -> list[Value]:
    """Return values equal to ``outputs`` (up to rounding) that take less work; the result is deterministic.

    Optimize the forward values alone first, then together with the gradients. Gradients are best derived from optimized
    values, because both then sum the same values over arcs.

    Args:
        outputs: values of a program, and of its gradients.
        differentiable: whether gradients are still to be derived. If so, ``stop`` stays, plain products are not yet
            named, and the values that cross from D to S are not yet chosen.
    """
    rewriter = _Rewriter(differentiable)
    values = [rewriter.final(value) for value in outputs]
    while (narrowed := _narrowed(values)) is not None:
        values = [rewriter.final(value) for value in narrowed]
    return values if differentiable else sent_home(placed(_gathered_once(_products(values))))


# Rewrites of single values.


class _Rewriter:
    """Rewrites values to final form. ``final`` reaches a fixed point: no rule changes its result."""

    def __init__(self, stops: bool) -> None:
        self._known: dict[tuple[object, ...], Value] = {}
        self._serial: dict[Value, int] = {}
        self._done: dict[Value, Value] = {}
        self._tame = Tameness()
        #: Rules of single operations in order; the rules of all operations run before them.
        self._rules: dict[str, list[Callable[[Value], Value | None]]] = {
            "cast": [_cast], "mask": [_mask], "product": [_unnamed], "reshape": [_reshape], "slice": [_slice],
            "transpose": [_transpose], "stop": [] if stops else [lambda v: v.inputs[0]],
            "multiply": [_neutral, self._product], "divide": [_neutral, self._product],
            "negative": [self._product], "reciprocal": [self._product],
            "add": [_sum], "subtract": [_sum], "where": [self._where], "sum_axis": [linear.sum_axis],
            "dot": [linear.dot], "matmul": [linear.matmul], "gram": [lambda v: linear.gram(v, self._tame)],
            "total": [linear.total, lambda v: linear.total_of_cast(v, self._tame), linear.total_of_linear,
                      lambda v: linear.total_of_product(v, self._tame)],
        }  # fmt: skip

    def final(self, v: Value) -> Value:
        """Return the final form of ``v``."""
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
        """Rewrite ``v``, whose operands are in final form."""
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
        """Multiply the factors of each space there, then cast the product to the finer one, narrow factors first."""
        nums, dens, c = factors(v)
        if nums == [v]:  # too many
            return None
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
            tame = [each for each in nums if self._tame.of(each)]
            if not tame or number(other) is not None:
                return None
            rest = quotient([each for each in nums if each not in tame], dens, 1.0, v.space)
            zeros = ir.cast(ir.constant(0), v.space)
            chosen = ir.where(condition, zeros, rest) if zero == 0 else ir.where(condition, rest, zeros)
            if zero == 1 and root(condition).op in ("greater", "equal") and number(rest) == 1:
                chosen = condition
            new = quotient([*tame, chosen], [], c, v.space)
            return new if new.shape == v.shape else None
        (nums, dens, c), (others, below, d) = factors(x), factors(y)
        if c * d != 0 and nums and Counter(nums) == Counter(others) and Counter(dens) == Counter(below):
            chosen = ir.where(condition, ir.cast(ir.constant(1), v.space), ir.cast(ir.constant(d / c), v.space))
            return quotient([chosen, *nums], dens, c, v.space)
        return None


def _unrepeated(nums: Sequence[Value], dens: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """Return ``nums`` without repetition along trailing axes, as long as other factors have these axes."""
    result = list(nums)
    for k, x in enumerate(nums):
        while (inner := root(result[k])).op == "repeat_axis" and inner["axis"] == len(inner.shape) - 1:
            less = [*result[:k], seen(inner.inputs[0], x.space), *result[k + 1 :]]
            if len(less) + len(dens) < 2 or ir.broadcast([each.shape for each in [*less, *dens]]) != shape:
                break
            result = less
    return result


# Rules for all operations.


def _fold(v: Value) -> Value | None:
    """Fold an operation on constants into a constant."""
    if v.op not in ROWWISE or v.shape != () or v.space is not P or any(x.op != "constant" for x in v.inputs):
        return None
    result = float(evaluate([v], _NOWHERE, {})[0])
    return ir.constant(result) if isfinite(result) else None


def _hoist(v: Value) -> Value | None:
    """Move an operation to the coarser space that all its operands come from."""
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
    return ir.cast(of(v, *inputs, space=space), v.space)


def _zero(v: Value) -> Value | None:
    """Replace linear operations on zeros by zeros."""
    operands = v.inputs[:1] if v.op == "divide" else v.inputs
    return zeros(v.space, v.shape) if v.op in LINEAR and any(number(x) == 0 for x in operands) else None


# Rules for single operations.


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
    return (
        ir.reshape(x.inputs[0] if x.op == "reshape" else x, v.shape)
        if x.op == "reshape" or x.shape == v.shape
        else None
    )


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
    """Drop factors of 1; replace arrays of one number, of any shape, by a scalar constant."""
    for k, known in enumerate(map(number, v.inputs)):
        x = v.inputs[1 - k]
        if known is None or x.shape != v.shape or (v.op == "divide" and (k == 0 or known == 0)):
            continue
        if known == 1:
            return x
        if v.inputs[k].shape != ():
            return of(v, x, ir.cast(ir.constant(known), v.space))
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
    return zeros(v.space, v.shape) if x is y and not plus else None


# Rewrites of whole programs.


def _rebuilt(outputs: Sequence[Value], change: Callable[[Value, Value], Value]) -> list[Value]:
    """Rebuild ``outputs`` with ``change(value, value on changed operands)`` in place of each value."""
    done: dict[Value, Value] = {}
    for value in ir.walk(outputs):
        inputs = tuple(done[operand] for operand in value.inputs)
        done[value] = change(value, value if inputs == value.inputs else replace(value, inputs=inputs))
    return [done[value] for value in outputs]


def _narrowed(outputs: Sequence[Value]) -> list[Value] | None:
    """Apply a matrix where its product is narrower, if nothing else needs the operand: A (X W) if W has at most as many
    columns as rows, otherwise (s A X) W, where ``s`` is a number per row. Return None if no matrix moves.
    """
    uses = Counter(operand for value in ir.walk(outputs) for operand in set(value.inputs))
    uses.update(outputs)
    for value in ir.walk(outputs):
        if value.space is not D:
            continue
        of_matrix = value.op == "matmul" and value.inputs[1].space is P and value.size <= value.inputs[0].size
        new = _inside(value, uses) if of_matrix else _scaled_first(value, uses)
        if new is not None:
            return _rebuilt(outputs, lambda old, now, value=value, new=new: new if old is value else now)  # type: ignore[misc]
    return None


def _inside(v: Value, uses: Counter[Value]) -> Value | None:
    """Move the matmul ``v`` into a sum over arcs, or into such a sum plus a multiple of its rows."""
    x, w = v.inputs
    parts, new, rows = (x.inputs if x.op in ("add", "subtract") else (x,)), {}, set()
    for part in parts:
        nums, dens, c = factors(part)
        for k, each in enumerate(nums):
            rest = nums[:k] + nums[k + 1 :]
            alone = uses[each] == 1 and (part is each or uses[part] == 1) and (part is x or uses[x] == 1)
            inside = _with_matrix(each, w) if alone and _no_columns(rest + dens, x) else None
            if inside is not None:
                new[part] = quotient([*rest, inside[0]], dens, c, D)
                rows.add(inside[1])
    for part in [part for part in parts if new and part not in new]:
        nums, dens, c = factors(part)
        for k, each in enumerate(nums):
            rest = nums[:k] + nums[k + 1 :]
            if each in rows and each.shape == x.shape and _no_columns(rest + dens, x):
                new[part] = quotient([*rest, ir.matmul(each, w)], dens, c, D)
    if any(part not in new for part in parts):
        return None
    return reduce(partial(ir.binary, x.op), (new[part] for part in parts))


def _no_columns(values: Sequence[Value], x: Value) -> bool:
    """Return whether each of ``values`` is the same in all columns of ``x``."""
    return lead([each for each in values if each.size > 1], len(x.shape) - 1)


def _scaled_first(v: Value, uses: Counter[Value]) -> Value | None:
    """Scale the operand of a matmul instead of its result, if the operand has fewer columns; scales are per row."""
    if v.op not in ("multiply", "divide"):
        return None
    for k, m in enumerate(v.inputs[: 1 if v.op == "divide" else 2]):
        wider = m.op == "matmul" and m.inputs[1].space is P and m.size > m.inputs[0].size
        if wider and uses[m] == 1 and v.inputs[1 - k].shape == () and root(v.inputs[1 - k]).space is D:
            return ir.matmul(ir.binary(v.op, m.inputs[0], v.inputs[1 - k]), m.inputs[1])
    return None


def _with_matrix(v: Value, w: Value) -> tuple[Value, Value] | None:
    """Apply ``w`` to the source rows summed in ``v``; return the new sum, and the value that the rows come from."""
    if v.op != "total" or v.inputs[0].space is not E or v.space is not D:
        return None
    nums, dens, c = factors(v.inputs[0])
    for k, each in enumerate(nums):
        rest = nums[:k] + nums[k + 1 :]
        if root(each).space is S and each.shape == v.shape and lead(rest + dens, len(v.shape) - 1):
            inside = ir.cast(ir.matmul(root(each), w), E)
            return ir.total(quotient([*rest, inside], dens, c, E), D), root(root(each))
    return None


def _products(outputs: Sequence[Value]) -> list[Value]:
    """Replace plain sums by named products, unless other sums gather the same rows."""
    gathered: set[Value] = set()
    for value in ir.walk(outputs):
        if value.op in ("total", "maximum_of", "minimum_of") and value.inputs[0].space is E and _plain(value) is None:
            for each in ir.walk([value.inputs[0]]):
                if each.space is E and each.op == "cast":
                    gathered.add(each)

    def change(old: Value, now: Value) -> Value:
        if old.op != "total" or old.space is not D:
            return now
        if _is_weight(old.inputs[0]):
            return ir.product(ir.cast(ir.constant(1), D), now.inputs[0], where=old.where)
        back = old.inputs[0].op == "total" and old.inputs[0].space is S
        plain = _plain(old.inputs[0] if back else old)
        if plain is None or plain[0] in gathered or (back and plain[0].inputs[0].space is not D):
            return now
        of_now = _plain(now.inputs[0] if back else now)
        assert of_now is not None
        rows = of_now[0].inputs[0] if back else of_now[0].inputs[0].inputs[0]
        return ir.product(rows, *of_now[1], back=back, where=old.where)

    return _rebuilt(outputs, change)


def _gathered_once(outputs: Sequence[Value]) -> list[Value]:
    """Compute elementwise functions of one source row on arcs if the arcs gather that row anyway."""
    order = list(ir.walk(outputs))
    place = {v: k for k, v in enumerate(order)}
    of_rows = {_core(v): v for v in order if v.op == "cast" and v.space is E and v.inputs[0].space is S}
    made: dict[Value, Value] = {}  # casts of functions, and the casts of their operands
    for core, v in of_rows.items():
        operands = {x for x in core.inputs if root(x).space is not P}
        if core.op in (*ir.UNARY, *ir.BINARY) and len(operands) == 1 and (x := _core(operands.pop())) in of_rows:
            made[v] = of_rows[x]
    done: dict[Value, Value] = {}
    first = sorted({*made.values()}, key=lambda v: place[_core(v)])
    for v in ir.walk([*first, *outputs]):
        if v in made:
            core = _core(v)
            done[v] = of(
                core, *(ir.cast(root(x), E) if root(x).space is P else done[made[v]] for x in core.inputs), space=E
            )
        else:
            inputs = tuple(done[x] for x in v.inputs)
            done[v] = v if inputs == v.inputs else replace(v, inputs=inputs)
    return [done[v] for v in outputs]


def _core(v: Value) -> Value:
    """Return the value behind all casts of ``v``."""
    while v.op == "cast":
        v = v.inputs[0]
    return v


def _plain(v: Value) -> tuple[Value, list[Value]] | None:
    """Return the rows, seen from arcs, and weights of a sum of rows at the arcs' other ends; None for other sums."""
    if v.op != "total" or v.inputs[0].space is not E or v.space not in (D, S):
        return None
    nums, dens, c = factors(v.inputs[0])
    rows = [x for x in nums if x.op == "cast" and (root(root(x)) if v.space is D else root(x)).space is D]
    rows = [x for x in rows if (root(x).space is S) is (v.space is D)]
    weight = [x for x in nums if _is_weight(x)]
    if dens or c != 1 or len(rows) != 1 or len(nums) != 1 + len(weight) or len(weight) > 1:
        return None
    return rows[0], weight


def _is_weight(x: Value) -> bool:
    return x.op == "input" and x["name"] == "weight" and (x.space, x.shape) == (E, ())
