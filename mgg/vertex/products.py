"""Products of values of arcs with matrices: which are products of matrices with a row an arc, and which stay in passes.

In a pass a lane works out each entry of ``x @ W`` by itself: its terms are read from caches, and every pass that needs
the product makes it again. As a product of matrices it takes memory: the result, and its operand, are arrays with a row
an arc. Both ways give the same value, and so do the sums ``gram`` of x^T y over arcs, which are the gradients by W.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from mgg.vertex.ir import E, P, R, Space, T, Value

#: Multiply-adds within a pass that take as long as it takes to write a number an arc to memory, or to read it there.
#: Each reads its terms from caches or from other lanes, so it is far from what a GPU can do at most.
BALANCE = 4


def as_matrices(order: Sequence[Value], stored: Collection[Value]) -> tuple[set[Value], set[Value]]:
    """Which values of ``order`` are worked off as products of matrices, and which they need stored beside ``stored``.

    A product goes this way if its multiply-adds, ``BALANCE`` of which count as a number moved, take at least as long
    as to write and to read what is stored for it alone: its result, unless that is stored anyway, and operands that are
    neither inputs nor stored. Of k terms an entry and m columns that is k >= 2 BALANCE where the operand is there,
    k m >= 2 BALANCE (k + m) where it is not. What one product has stored is there for the others.

    Args:
        order: values, operands first.
        stored: values of arcs that are written in any case.
    """
    found: set[Value] = set()
    operands: set[Value] = set()
    candidates = [v for v in order if _is_candidate(v)]
    while True:
        chosen = [v for v in candidates if v not in found and _pays(v, {*stored, *operands, *found})]
        if not chosen:
            return found, operands - found
        found.add(chosen[0])
        operands.update(_lacking(chosen[0], {*stored, *operands, *found}))


def of_arcs(v: Value) -> bool:
    """Whether ``v`` multiplies values of arcs, or runs, with a matrix of all or of each type, or with each other."""
    return v.op in ("matmul", "gram") and bool(v.inputs) and v.inputs[0].space in (E, R) and _matrices(v) is not None


def by_type(v: Value) -> bool:
    """Whether ``v``, one ``of_arcs``, has a matrix for each type of arcs, and rows of one axis; none is empty."""
    return of_arcs(v) and _matrices(v) is T and len(v.inputs[0].shape) == 1 and bool(v.size and v.inputs[0].size)


def base(x: Value) -> Value:
    """What ``x`` is a reshape of."""
    while x.op == "reshape":
        x = x.inputs[0]
    return x


def reads(v: Value) -> list[Value]:
    """Values of which a product of matrices reads arrays, one an operand: arcs look up what they are cast from."""
    return [y.inputs[0] if y.op == "cast" and y.space in (E, R) else y for y in map(base, v.inputs)]


def _matrices(v: Value) -> Space | None:
    """Whose matrices ``v`` multiplies with or sums up to, P or T; None: those of others."""
    space = _root(v.inputs[1]).space if v.op == "matmul" else v.space
    return space if space in (P, T) else None


def _root(x: Value) -> Value:
    while x.op in ("cast", "reshape"):
        x = x.inputs[0]
    return x


def _is_candidate(v: Value) -> bool:
    if not of_arcs(v) or v.inputs[0].space is not E or not v.size or not v.inputs[0].size:
        return False
    rows = [base(x) for x in v.inputs[: 1 if v.op == "matmul" else 2]]
    if any(x.op == "mask" or _root(x).space is P for x in rows):
        return False
    # What arcs of all types look up was multiplied before they did.
    return by_type(v) or (_matrices(v) is P and not any(x.op == "cast" for x in rows))


def _lacking(v: Value, there: Collection[Value]) -> list[Value]:
    """Operands that have to be stored for ``v``."""
    rows = dict.fromkeys(base(x) for x in v.inputs if base(x).space is E)
    return [x for x in rows if x.inputs and x.op != "cast" and x not in there]


def _pays(v: Value, there: Collection[Value]) -> bool:
    x = v.inputs[0]
    terms = v.size * (x.shape[-1] if v.op == "matmul" else prod(x.shape[:-1]))
    moved = sum(each.size for each in _lacking(v, there)) + v.size * (v.op == "matmul" and v not in there)
    return terms >= 2 * BALANCE * max(moved, 1)
