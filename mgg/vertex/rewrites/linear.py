"""Rewrites by linearity: move factors and matrices out of sums over rows and axes, or into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod

from mgg.vertex import ir
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.rewrites.factors import (
    Factors,
    Tameness,
    above,
    factors,
    if_any,
    lead,
    loose,
    of,
    outside,
    quotient,
    root,
    safe,
    seen,
    split,
    times,
)


def sum_axis(v: Value) -> Value | None:
    """Move factors without the axis out of the sum; make a sum of products over the last axis a dot."""
    (x,), axis = v.inputs, v["axis"]
    if x.op == "repeat_axis" and x["axis"] == axis:
        return quotient([x.inputs[0]], [], float(x["count"]), v.space)
    few, (many, below, _) = split(x, axis)
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


def dot(v: Value) -> Value | None:
    """Move factors without columns out of the dot; split the dot of a concatenation into dots of its parts."""
    for k, x in enumerate(v.inputs):
        y = v.inputs[1 - k]
        if x.op == "concat" and len({root(part).space for part in x.inputs}) > 1:
            return reduce(partial(ir.binary, "add"), (ir.dot(p, ir.columns(y, a, b)) for p, a, b in _parts(x)))
        if _of_ends(x):
            return reduce(partial(ir.binary, x.op), [ir.dot(part, y) for part in x.inputs])
        few, many = split(x, len(x.shape) - 1)
        rest = quotient(*many, v.space)
        if (few[0] or few[1] or few[2] != 1) and many[0] and rest.shape == x.shape:
            return quotient([*few[0], ir.dot(rest, y)], few[1], few[2], v.space)
    return None


def matmul(v: Value) -> Value | None:
    """Move factors without columns, and parts, out of the product if it gets narrower or takes coarser rows."""
    x, w = v.inputs
    if root(w).space is P and w.space is not P:
        return of(v, x, root(w))
    inner, outer = w.shape[0], prod(w.shape[1:])
    if x.op == "concat" and root(w).space in (P, T) and len({root(part).space for part in x.inputs}) > 1:
        turned = ir.transpose(ir.reshape(root(w), (inner, outer)))
        rows = [(p, ir.transpose(ir.columns(turned, a, b))) for p, a, b in _parts(x)]
        return reduce(
            partial(ir.binary, "add"),
            (ir.matmul(p, ir.reshape(m, (b, *w.shape[1:]))) for p, m in rows for b in m.shape[:1]),
        )
    if _of_ends(x) and w.space is P:
        return reduce(partial(ir.binary, x.op), [ir.matmul(part, w) for part in x.inputs])
    few, many = split(x, len(x.shape) - 1)
    rest = quotient(*many, x.space)
    if not (few[0] or few[1] or few[2] != 1) or not many[0] or rest.shape != x.shape:
        return None
    if v.space in (P, T, D, R) and (outer > inner or (outer == inner and rest.op == "total")):
        return None  # a sum over arcs is scaled where it is computed
    return quotient([*few[0], of(v, rest, w)], few[1], few[2], v.space)


def _of_ends(x: Value) -> bool:
    """Return whether ``x`` is the sum or difference of rows cast from coarser spaces."""
    return x.op in ("add", "subtract") and all(part.op == "cast" and part.shape == x.shape for part in x.inputs)


def _parts(x: Value) -> list[tuple[Value, int, int]]:
    """Return the parts of a concatenation, with their first and last columns."""
    ends = [sum(part.shape[-1] for part in x.inputs[:k]) for k in range(len(x.inputs) + 1)]
    return list(zip(x.inputs, ends, ends[1:], strict=False))


def gram(v: Value, tameness: Tameness) -> Value | None:
    """Sum first: replace the products of one coarser row with all its finer rows by one product with their sum.

    Where a row has none, its sum is 0, so a row that may be infinite there is replaced by 1.
    """
    fine = v.inputs[0].space
    for space in (P, T, D, R, S):
        if space is fine or not space.over(fine) or not above(v.space, space, fine):
            continue
        for k, x in enumerate(v.inputs):
            nums, dens, c = factors(x, space)
            out = [each for each in nums if outside(each, space)], [each for each in dens if outside(each, space)]
            rest = [each for each in nums if each not in out[0]], [each for each in dens if each not in out[1]]
            if not out[0] or not lead(rest[0] + rest[1], len(v.inputs[0].shape) - 1):
                continue
            other = quotient([*rest[0], v.inputs[1 - k]], rest[1], c, fine)
            coarse = tameness.guarded(quotient(*out, 1.0, space), space, fine)
            if coarse.shape == x.shape and other.shape == v.inputs[1 - k].shape:
                pair = coarse, ir.total(other, space)
                return ir.gram(*(pair if k == 0 else pair[::-1]), v.space)
    return None


def total(v: Value) -> Value | None:
    """Sum to parameters via vertices and to types via runs; otherwise merge two sums into one."""
    (x,) = v.inputs
    via = {(E, P): D, (R, P): D, (E, T): R}.get((x.space, v.space))
    if via is not None:
        return ir.total(ir.total(x, via), v.space)
    if x.op == "total" and (v.space, x.space) not in ((P, D), (T, R), (D, S)):
        return ir.total(x.inputs[0], v.space)
    return None


def total_of_cast(v: Value, tameness: Tameness) -> Value | None:
    """Replace the sum of a repeated row by the row times its number of repetitions."""
    (x,), space = v.inputs, v.space
    y = root(x)
    if x.op != "cast" or (x.space, space) == (S, D) or (y.op == "constant" and y["value"] == 1):
        return None
    ones = ir.cast(ir.constant(1), x.space)
    if above(y.space, space, x.space):
        return _outside(([y], [], 1.0), ir.total(ones, space), x.space, tameness)
    if above(space, y.space, x.space):
        return ir.total(times(y, ir.total(ones, y.space)), space)
    return None


def total_of_linear(v: Value) -> Value | None:
    """Move linear functions of single rows out of the sum; they have no weights."""
    (x,), space = v.inputs, v.space
    if x.op in ("negative", "reshape", "repeat_axis", "pad", "concat"):
        return of(x, *(ir.total(each, space) for each in x.inputs), space=space)
    if x.op in ("add", "subtract") and any(loose(each, space, alone=True) for each in x.inputs):
        return reduce(partial(ir.binary, x.op), [ir.total(each, space) for each in x.inputs])
    return None


def total_of_product(v: Value, tameness: Tameness) -> Value | None:
    """Move factors of coarser rows out of the sum, also through dots and matrices."""
    (x,), space = v.inputs, v.space
    fine = x.space
    nums, dens, c = factors(x, space)
    out = [each for each in nums if outside(each, space)], [each for each in dens if outside(each, space)]
    rest, below = [each for each in nums if each not in out[0]], [each for each in dens if each not in out[1]]
    if (fine, space) == (S, D):  # there is no count of the sources per vertex, which a guard would need
        out = [each for each in out[0] if tameness.of(each, overflow=True)], []
        rest, below = [each for each in nums if each not in out[0]], dens
    if (c != 1 or out[0] or out[1]) and rest + below:
        inside = ir.total(quotient(rest, below, 1.0, fine), space)
        new = _outside((*out, c), inside, fine, tameness)
        return new if new.shape == v.shape else None
    for k, each in enumerate(nums):
        others = nums[:k] + nums[k + 1 :]
        weighted = partial(_weighted, others, dens, fine)
        if each.op in ("add", "subtract") and any(loose(part, space) for part in each.inputs) and others + dens:
            parts = [weighted(part) for part in each.inputs]
            return reduce(partial(ir.binary, each.op), [ir.total(part, space) for part in parts])
        if not lead(others + dens, len(each.shape)) or each.shape != x.shape:
            continue
        moved = _through_matrix(each, weighted, others + dens, space)
        if each.op == "dot" and fine is not S:  # from S to D, dots send fewer columns
            moved = _inner(each, weighted, space, tameness)
        if moved is not None:
            return moved
    return None


def _outside(out: Factors, inside: Value, fine: Space, tameness: Tameness) -> Value:
    """Return the product of ``out`` and the sum ``inside`` of rows of ``fine``; 0 where there are no such rows."""
    space = inside.space
    opened = [factors(root(x)) for x in out[0]]
    nums = [tameness.guarded(x, space, fine) for f in opened for x in f[0]]
    dens = [*out[1], *(x for f in opened for x in f[1])]
    dens = [x if safe(x) else if_any(seen(x, space), fine) for x in dens]
    return quotient([*nums, inside], dens, out[2] * prod(f[2] for f in opened), space)


def _weighted(nums: Sequence[Value], dens: Sequence[Value], space: Space, x: Value) -> Value:
    return quotient([*nums, x], dens, 1.0, space)


def _inner(each: Value, weighted: Callable[[Value], Value], space: Space, tameness: Tameness) -> Value | None:
    """Rewrite the sum of w <g, y> as <g, sum of w y>."""
    all_factors = [factors(row, space) for row in each.inputs]
    nums, dens = [x for f in all_factors for x in f[0]], [x for f in all_factors for x in f[1]]
    out = [x for x in nums if outside(x, space)], [x for x in dens if outside(x, space)]
    rest = [x for x in nums if x not in out[0]], [x for x in dens if x not in out[1]]
    if not out[0] or not rest[0]:
        return None
    g = tameness.guarded(quotient(*out, prod(f[2] for f in all_factors), space), space, each.space)
    y = weighted(quotient(*rest, 1.0, each.space))
    if len({(len(x.shape), x.shape[-1:]) for x in (g, y, each.inputs[0])}) > 1:
        return None
    new = ir.dot(g, ir.total(y, space))
    return new if new.shape == each.shape else None


def _through_matrix(
    each: Value, weighted: Callable[[Value], Value], weights: Sequence[Value], space: Space
) -> Value | None:
    """Rewrite the sum of w y M as (sum of w y) M: per run if M is per type; for rows of sources if M adds columns."""
    fine = each.space
    chain, core = [fine], each
    while core.op == "cast":
        core = core.inputs[0]
        chain.append(core.space)
    nums, dens, c = factors(core)
    for k, m in enumerate(nums):
        if m.op != "matmul" or m.shape != each.shape or not lead(weights, len(m.inputs[0].shape) - 1):
            continue
        scales = nums[:k] + nums[k + 1 :]
        (y, w), axes = m.inputs, len(m.inputs[0].shape) - 1
        if not lead(scales + dens, axes) or (len(chain) > 1 and (w.space is not P or m.size <= y.size)):
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
