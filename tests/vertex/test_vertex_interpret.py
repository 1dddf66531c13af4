"""The interpreter against loops over arcs and plain formulas."""

import math

import numpy as np
import pytest
from support.graphs.arc_graphs import ARCS, IDS, TYPES, VERTICES, awkward

from mgg.kernel.random import STREAMS, Draws, uniform
from mgg.model.arrays.host import HostArrays
from mgg.vertex import ir
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, P, R, S, T

GRAPH = awkward()
#: Arcs in the graph's order, and runs in theirs.
LISTED = sorted(ARCS, key=lambda arc: (arc[0], arc[2], IDS[arc[1]]))
RUNS = sorted({(v, t) for v, _, t in ARCS})
ROWS = {P: 1, T: TYPES, D: VERTICES, S: VERTICES, R: len(RUNS), E: len(ARCS)}
#: (finer, coarser) -> the row of the coarser space, by the row of the finer.
OWNER = {
    (E, S): lambda k: LISTED[k][1],
    (E, D): lambda k: LISTED[k][0],
    (E, T): lambda k: LISTED[k][2],
    (E, R): lambda k: RUNS.index((LISTED[k][0], LISTED[k][2])),
    (R, D): lambda k: RUNS[k][0],
    (R, T): lambda k: RUNS[k][1],
    (S, D): lambda k: k,
    **{(finer, P): lambda k: 0 for finer in (T, D, S, R, E)},
}


def rows(array, space):
    return array[None] if space is P else array


def run(value, **leaves):
    (result,) = evaluate([value], GRAPH, leaves)
    assert result.dtype == (np.int64 if value.op == "winner" else np.float64)
    return result


def numbers(space, *shape, seed=1):
    return np.random.default_rng(seed).standard_normal((*(() if space is P else (ROWS[space],)), *shape))


def test_arc_order_does_not_matter():
    assert [*zip(GRAPH.targets, GRAPH.sources, GRAPH.types, strict=True)] == LISTED
    assert [ARCS[k] for k in GRAPH.order] == LISTED
    assert list(GRAPH.order) == sorted(range(len(ARCS)), key=lambda k: (ARCS[k][0], ARCS[k][2], IDS[ARCS[k][1]]))
    for space, count in ROWS.items():
        assert GRAPH.rows(space) == count
    plain = ArcGraph.of(3, np.array([2, 0, 2]), np.array([1, 2, 0]))
    assert (plain.type_count, [*plain.ids], [*plain.sources], [*plain.runs]) == (1, [0, 1, 2], [2, 0, 1], [0, 1, 1])
    empty = ArcGraph.of(2, np.array([], int), np.array([], int))
    assert [empty.rows(space) for space in (T, D, R, E)] == [1, 2, 0, 0]


@pytest.mark.parametrize("wrong", [{"targets": [3]}, {"sources": [-1]}, {"types": [2]}, {"ids": [1, 2]}])
def test_arcs_out_of_range_are_refused(wrong):
    arcs = {"targets": [0], "sources": [1], "types": [0], "type_count": 2} | wrong
    with pytest.raises(ValueError, match=f"{next(iter(wrong)).rstrip('s')} from 0 to|2 ids of 3"):
        ArcGraph.of(3, **arcs)


def test_inputs_are_checked():
    x = ir.leaf("x", D, (2,))
    with pytest.raises(ValueError, match="no array for the input 'x'"):
        run(x)
    with pytest.raises(ValueError, match=r"'x' is \[5, 2\], not \[6, 2\]"):
        run(x, x=np.zeros((5, 2)))
    with pytest.raises(ValueError, match="3 types of arcs, the graph has 4"):
        run(ir.by_type(ir.leaf("w", P, (3, 2))), w=np.zeros((3, 2)))


@pytest.mark.parametrize(("finer", "coarser"), OWNER)
def test_casts_and_totals(finer, coarser):
    owner = OWNER[finer, coarser]
    x = numbers(coarser, 2, 3)
    expected = np.stack([rows(x, coarser)[owner(k)] for k in range(ROWS[finer])])
    assert np.array_equal(run(ir.cast(ir.leaf("x", coarser, (2, 3)), finer), x=x), expected)
    y = numbers(finer, 2, 3)
    sums = np.zeros((ROWS[coarser], 2, 3))
    for k in range(ROWS[finer]):
        sums[owner(k)] += y[k]
    found = run(ir.total(ir.leaf("y", finer, (2, 3)), coarser), y=y)
    assert np.allclose(rows(found, coarser), sums, rtol=0, atol=1e-14)


@pytest.mark.parametrize("op", ["maximum_of", "minimum_of"])
@pytest.mark.parametrize(("finer", "coarser"), OWNER)
def test_extremes(finer, coarser, op):
    """Of -2, -1 and 0, so that there are many ties, and 0 of none is no matter of course."""
    owner, pick = OWNER[finer, coarser], {"maximum_of": max, "minimum_of": min}[op]
    x = np.random.default_rng(2).integers(-2, 1, (ROWS[finer], 3)) - 1.0
    best, winners = np.zeros((ROWS[coarser], 3)), np.full((ROWS[coarser], 3), -1)
    won = np.zeros((ROWS[finer], 3))
    key = {E: lambda k: (IDS[LISTED[k][1]], k), S: lambda k: IDS[k], D: lambda k: IDS[k], R: int, T: int}[finer]
    for row in range(ROWS[coarser]):
        owned = [k for k in range(ROWS[finer]) if owner(k) == row]
        for column in range(3 if owned else 0):
            best[row, column] = pick(x[k, column] for k in owned)
            winners[row, column] = min((k for k in owned if x[k, column] == best[row, column]), key=key)
            won[winners[row, column], column] = 1
    extreme = getattr(ir, op)(ir.leaf("x", finer, (3,)), coarser)
    assert np.array_equal(rows(run(extreme, x=x), coarser), best)
    assert np.array_equal(rows(run(ir.winner(extreme), x=x), coarser), winners)
    assert np.array_equal(run(ir.won(ir.winner(extreme)), x=x), won)
    if (finer, coarser) == (E, D):
        lowest = next(k for k, arc in enumerate(LISTED) if arc == (0, 3, 1))
        assert run(ir.winner(extreme), x=np.zeros((len(ARCS), 3)))[0, 0] == lowest != 0


UNARY = {
    "negative": lambda x: -x,
    "reciprocal": lambda x: 1 / x,
    "exp": math.exp,
    "log": lambda x: math.log(x) if x > 0 else math.nan,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "tanh": math.tanh,
    "sigmoid": lambda x: math.exp(x) / (1 + math.exp(x)),
    "relu": lambda x: x if x > 0 else 0,
    "leaky_relu": lambda x: x if x > 0 else 0.3 * x,
    "elu": lambda x: x if x > 0 else math.exp(x) - 1,
    "abs": lambda x: x if x > 0 else -x,
    "power": lambda x: x * x * x,
    "stop": lambda x: x,
}


@pytest.mark.parametrize("op", UNARY)
def test_unary_operations_match_numpy(op):
    assert set(UNARY) == {*ir.UNARY, "stop"}
    x = numbers(D, 4)
    leaf, attributes = ir.leaf("x", D, (4,)), {"leaky_relu": {"slope": 0.3}, "power": {"exponent": 3.0}}.get(op, {})
    value = ir.stop(leaf) if op == "stop" else ir.unary(op, leaf, **attributes)
    assert np.allclose(run(value, x=x), np.vectorize(UNARY[op], [float])(x), rtol=1e-14, equal_nan=True)
    if op not in ("reciprocal", "log"):
        assert np.array_equal(run(value, x=0 * x), np.full_like(x, UNARY[op](0.0)))


BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "maximum": lambda x, y: x if x > y else y,
    "minimum": lambda x, y: x if x < y else y,
    "greater": lambda x, y: float(x > y),
    "equal": lambda x, y: float(x == y),
}


@pytest.mark.parametrize("op", BINARY)
def test_binary_operations_match_numpy(op):
    """A number a head of each target meets a row a head of each source."""
    assert set(BINARY) == set(ir.BINARY)
    x, y = np.round(numbers(D, 2)) + 0.5, np.round(numbers(S, 2, 3, seed=2)) + 0.5
    found = run(ir.binary(op, ir.leaf("x", D, (2,)), ir.leaf("y", S, (2, 3))), x=x, y=y)
    expected = [[[BINARY[op](x[v, h], y[u, h, c]) for c in range(3)] for h in range(2)] for v, u, _ in LISTED]
    assert np.array_equal(found, expected)


def test_where_matches_numpy():
    condition, x = np.array([0.0, 1, -1, 0, 0.5, 0]), numbers(P, 3)
    value = ir.where(ir.leaf("c", D, ()), ir.leaf("x", P, (3,)), ir.constant(7))
    assert np.array_equal(run(value, c=condition, x=x), [x if c else [7, 7, 7] for c in condition])


def test_arc_types_select_parameters():
    w, leaf = numbers(P, TYPES, 2), ir.leaf("w", P, (TYPES, 2))
    assert np.array_equal(run(ir.cast(ir.by_type(leaf), R), w=w), [w[t] for _, t in RUNS])
    assert np.array_equal(run(ir.all_types(ir.leaf("t", T, (2,)), TYPES), t=w), w)


def test_common_subexpressions_are_computed_once():
    x = numbers(D, 2)
    leaf = ir.leaf("x", D, (2,))
    twice = ir.binary("add", leaf, leaf)
    first, second, third = evaluate([twice, leaf, ir.constant(3)], GRAPH, {"x": x})
    assert np.array_equal(first, 2 * x)
    assert np.array_equal(second, x)
    assert (third.shape, float(third)) == ((), 3)


SEED, EPOCH, PLACE, RATE = 11, 3, 2, 0.4


@pytest.mark.parametrize("space", [D, S])
def test_vertex_dropout_has_the_masks_of_models(space):
    """The masks of models' dropout."""
    x = np.ones((VERTICES, 6))
    _, expected = HostArrays().dropout(x, np.array(IDS), Draws(SEED, EPOCH, PLACE), RATE)
    mask = ir.mask(space, (2, 3), RATE, PLACE)
    (found,) = evaluate([mask], GRAPH, {}, masks=(SEED, EPOCH))
    assert np.array_equal(found.reshape(x.shape), expected)
    assert 0 < np.count_nonzero(found) < found.size
    (later,) = evaluate([mask], GRAPH, {}, masks=(SEED, EPOCH + 1))
    assert not np.array_equal(found, later)
    assert np.array_equal(run(mask), np.ones((VERTICES, 2, 3)))


def test_arc_dropout_has_the_masks_of_attention():
    """The masks of attention: a row of numbers a target, in it as many a source as an arc has."""
    heads = 3
    (found,) = evaluate([ir.mask(E, (heads,), RATE, PLACE)], GRAPH, {}, masks=(SEED, EPOCH))
    drawn_of = uniform(SEED, EPOCH * STREAMS + PLACE, np.array(IDS), (max(IDS) + 1) * heads).reshape(6, -1, heads)
    assert np.array_equal(found, [(drawn_of[v, IDS[u]] >= RATE) / (1 - RATE) for v, u, _ in LISTED])
    assert 0 < np.count_nonzero(found) < found.size
