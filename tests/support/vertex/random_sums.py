"""Random vertex programs: any operation on any values that it accepts."""

from __future__ import annotations

import random

from mgg.vertex import ir
from mgg.vertex.ir import D, E, P, ProgramError, R, S, T, Value, cast, constant, leaf, unary
from support.graphs.arc_graphs import TYPES

SHAPES = ((), (2,), (2, 3), (3,), (1, 3))
COARSER = {E: (D, D, S, R, P, T), R: (D, T, P), S: (D, P), D: (P,), T: (P,), P: ()}
FINER = {P: (T, D, S, R, E), T: (R, E), D: (S, R, E, E), S: (E, E), R: (E,), E: ()}
#: Operations whose values stay bounded, so that sums can be compared.
UNARY = ("negative", "tanh", "sigmoid", "relu", "leaky_relu", "elu", "abs", "negative")
BINARY = ("add", "subtract", "multiply", "multiply", "multiply", "divide", "maximum", "minimum", "greater", "equal")


def program(seed: int, steps: int = 14) -> list[Value]:
    """One to three values, after ``steps`` operations."""
    rng = random.Random(seed)
    values = [leaf(f"{space.name}{k}", space, shape) for space in ir.Space for k, shape in enumerate(SHAPES)]
    values = [*rng.sample(values, 8), constant(1), constant(-0.5), constant(0)]
    values += [
        leaf("weight", E, ()),
        leaf("matrix", P, (3, 2)),
        leaf("types", P, (TYPES, 3, 2)),
        ir.mask(S, (2,), 0.4, 1),
    ]
    values += [leaf("x", D, (2, 3)), leaf("y", D, (3,))]
    results: list[Value] = []
    while len(results) < steps:
        pool = values + 3 * results[-5:]
        try:
            results.append(_step(rng, pool))
        except (ProgramError, AssertionError, IndexError):
            continue
    return rng.sample(results[-4:], rng.randint(1, 3))


def _step(rng: random.Random, pool: list[Value]) -> Value:  # noqa: PLR0911
    x, y, z = (rng.choice(pool) for _ in range(3))
    kind = rng.randrange(16)
    if kind <= 2:
        return ir.total(x, rng.choice(COARSER[x.space]))
    if kind <= 5:
        return cast(x, rng.choice(FINER[x.space]))
    if kind <= 8:
        op = rng.choice(BINARY)
        if op == "divide":  # by a value of at least 1, or by a sum of such values, which is 0 without arcs
            y = ir.binary("add", unary("abs", y), constant(1))
            y = ir.total(cast(y, E), D) if y.space is not E and y.space is not S and rng.random() < 0.5 else y
            return ir.total(ir.binary("divide", cast(x, E) if x.space.over(E) else x, cast(y, E)), D)
        return ir.binary(op, x, y)
    if kind == 9:
        op = rng.choice(UNARY)
        return unary(op, x, **({"slope": 0.2} if op == "leaky_relu" else {}))
    if kind == 10:
        return ir.where(
            ir.binary("greater", x, y), z, rng.choice([constant(0), ir.binary("multiply", z, constant(0.2)), y])
        )
    if kind == 11:
        return ir.dot(x, y)
    if kind == 12:
        w = rng.choice([v for v in pool if v.op == "input" and v["name"] in ("matrix", "types")])
        return ir.matmul(x, ir.by_type(w) if w.shape[0] == TYPES else w)
    if kind == 13:
        axis = rng.randrange(max(len(x.shape), 1))
        return ir.sum_axis(x, axis) if rng.random() < 0.5 else ir.repeat_axis(x, len(x.shape), 3)
    if kind == 14:
        return ir.concat([x, y]) if rng.random() < 0.5 else ir.columns(x, 0, 2)
    if rng.random() < 0.5 and x.shape:
        return ir.gram(x, y, T if rng.random() < 0.4 and ir.joined([x, y]) in (R, E) else P)
    return ir.maximum_of(x, rng.choice([D, D, R, S])) if rng.random() < 0.5 else ir.reshape(x, x.shape[::-1])
