"""Products of arc values with matrices: decide which become matrix products, and which stay in passes over arcs.

In a pass, a lane computes each entry of ``x @ W`` by itself: it reads the terms from caches, and every pass that needs
the product computes it again. A matrix product takes memory instead: its result and its operand are arrays with a row
per arc. Both give the same value, and so do the sums ``gram`` of x^T y over arcs, which are the gradients by W.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from mgg.vertex.ir import E, P, R, Space, T, Value

#: Multiply-adds within a pass that take as long as writing or reading one number per arc in memory. Each reads its
#: terms from caches or from other lanes, so this is far below a GPU's peak.
BALANCE = 4


def as_matrices(order: Sequence[Value], stored: Collection[Value]) -> tuple[set[Value], set[Value]]:
    """Return the values of ``order`` to compute as matrix products, and the further values to store for them.

    A product is chosen if its multiply-adds, ``BALANCE`` of which count as one number moved, take at least as long as
    writing and reading what is stored for it alone: its result, unless that is stored anyway, and operands that are
    neither inputs nor stored. With k terms per entry and m columns, the condition is k >= 2 BALANCE if the operand is
    stored, else k m >= 2 BALANCE (k + m). What is stored for one product serves the others.

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
    """Return whether ``v`` multiplies values of arcs or runs by a matrix (for all, or per type), or by each other."""
    return v.op in ("matmul", "gram") and bool(v.inputs) and v.inputs[0].space in (E, R) and _matrices(v) is not None


def by_type(v: Value) -> bool:
    """Return whether ``v`` is ``of_arcs``, with a matrix per arc type and rows of one axis, and is not empty."""
    return of_arcs(v) and _matrices(v) is T and len(v.inputs[0].shape) == 1 and bool(v.size and v.inputs[0].size)


def base(x: Value) -> Value:
    """Return the value behind the reshapes ``x``."""
    while x.op == "reshape":
        x = x.inputs[0]
    return x


def reads(v: Value) -> list[Value]:
    """Return the values whose arrays a matrix product reads, one per operand: arcs look casts up in their operand."""
    return [y.inputs[0] if y.op == "cast" and y.space in (E, R) else y for y in map(base, v.inputs)]


def _matrices(v: Value) -> Space | None:
    """Return the space of the matrices that ``v`` multiplies by or sums up to, P or T; None: another space."""
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
    # If a single matrix serves all types, rows that arcs look up were multiplied before the lookup.
    return by_type(v) or (_matrices(v) is P and not any(x.op == "cast" for x in rows))


def _lacking(v: Value, there: Collection[Value]) -> list[Value]:
    """Return the operands that must be stored for ``v``."""
    rows = dict.fromkeys(base(x) for x in v.inputs if base(x).space is E)
    return [x for x in rows if x.inputs and x.op != "cast" and x not in there]


def _pays(v: Value, there: Collection[Value]) -> bool:
    x = v.inputs[0]
    terms = v.size * (x.shape[-1] if v.op == "matmul" else prod(x.shape[:-1]))
    moved = sum(each.size for each in _lacking(v, there)) + v.size * (v.op == "matmul" and v not in there)
    return terms >= 2 * BALANCE * max(moved, 1)
