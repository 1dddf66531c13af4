"""Functions for vertex programs: aggregations over neighbours, and functions of values.

Elementwise functions of one value also accept the values of a comprehension over neighbours.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite, prod
from typing import Any, Never

from mgg.vertex import ir
from mgg.vertex.ir import E, Value
from mgg.vertex.symbols import (
    ARCS,
    OURS,
    Kept,
    Loop,
    Neighbours,
    Symbol,
    Types,
    apply,
    binary,
    here,
    lift,
    meeting,
    mistake,
    tracing,
    unary,
)

OURS.add((lambda: None).__code__.co_filename)

#: PyTorch Geometric's StdAggregation treats variances up to this as 0.
LEAST_VARIANCE = 1e-5
#: Square of the lower bound of torch.nn.functional.normalize: shorter rows are divided by the bound.
LEAST_SQUARE = 1e-24


class Values:
    """Results of a function of a list: values of the same neighbours, to zip, iterate over and aggregate."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Symbol]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self._items)

    def _many(self, *_: object) -> Never:
        raise mistake("a list is no value: write [2 * x for x in list], or aggregate it by V.sum and its like")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _many
    __matmul__ = __neg__ = __getitem__ = _many


def _is_list(x: object) -> bool:
    return isinstance(x, list | tuple | Values | Iterator)


def _listwise(function: Callable[..., Symbol]) -> Callable[..., Any]:
    """Return ``function`` extended to lists, to which it applies value by value."""

    @functools.wraps(function)
    def of_any(x: Any, *arguments: Any, **named: Any) -> Any:
        if _is_list(x):
            return Values([function(lift(each), *arguments, **named) for each in x])
        return function(lift(x), *arguments, **named)

    return of_any


# Aggregations.


def _neighbours(name: str, values: object) -> tuple[list[Symbol], Loop]:
    """Return the values of a comprehension, and its loop."""
    example = f"write V.{name}(u.x for u in v.innbs)"
    if isinstance(values, Neighbours | Types):
        raise mistake(f"V.{name} of neighbours themselves: {example}")
    if isinstance(values, Symbol):
        raise mistake(
            f"V.{name} of one value {ir.per(values.value.space)}: it takes a list or generator over neighbours:"
            f" {example}; along an axis, use V.sum_axis or V.mean_axis"
        )
    if not _is_list(values):
        raise mistake(f"V.{name} of a {type(values).__name__}: it takes a list or generator over neighbours: {example}")
    given: list[object] = list(values)  # type: ignore[call-overload]
    if not given:
        raise mistake(f"V.{name} of an empty list: a generator gives its values once; a list [...] can be used again")
    symbols = [each for each in given if isinstance(each, Symbol)]
    if len(symbols) < len(given):
        if all(isinstance(each, numbers.Real) for each in given):
            raise mistake(f"V.{name} of numbers, which do not depend on the neighbour: how many there are is v.degree")
        for each in given:
            lift(each)
    return symbols, _loop(name, symbols)


def _loop(name: str, symbols: list[Symbol]) -> Loop:
    """Return the loop over whose elements ``symbols`` has one value each, all made in the same way."""
    loops = {loop for symbol in symbols for loop in symbol.at}
    if not loops:
        raise mistake(
            f"V.{name} of a value {ir.per(symbols[0].value.space)}, which does not depend on the neighbour: use one of"
            " u, or multiply by v.degree"
        )
    expected = list(range(tracing().stand_ins))
    for loop in loops:
        others = [{other: symbol.at[other] for other in symbol.at if other is not loop} for symbol in symbols]
        if [symbol.at.get(loop) for symbol in symbols] == expected and all(each == others[0] for each in others):
            break
    else:
        raise mistake(
            f"V.{name} takes one value of each element of one loop, in its order: this list is of two loops, a part or"
            " a multiple, or its values are of another loop; aggregate inner loops first"
        )
    if any(symbol.value is not symbols[0].value for symbol in symbols):
        raise mistake(
            f"V.{name} of values that are not made in the same way for each neighbour: a counter, enumerate, a running"
            " sum, or dropout of a value that does not depend on the neighbour, which belongs before the loop"
        )
    if any(loop.coarse.over(other.coarse) and loop is not other for other in others[0]):
        raise mistake(f"V.{name} over {loop.name} of a value of one arc: aggregate over v.inedges[t] first")
    return loop


def _reduced(constructor: Callable[..., Value], x: Symbol, loop: Loop) -> Symbol:
    value = tracing().build(ir.cast, x.value, loop.fine)
    at = {other: number for other, number in x.at.items() if other is not loop}
    return Symbol(apply(constructor, Symbol(value), loop.coarse).value, at)


def sum(values: Any) -> Symbol:
    """Sum over neighbours; 0 without neighbours."""
    symbols, loop = _neighbours("sum", values)
    return _reduced(ir.total, symbols[0], loop)


def _mean(x: Symbol, loop: Loop) -> Symbol:
    count = _reduced(ir.total, lift(1), loop)
    return _reduced(ir.total, x, loop) * unary("reciprocal", maximum(count, 1))


def mean(values: Any) -> Symbol:
    """Mean over neighbours; 0 without neighbours."""
    symbols, loop = _neighbours("mean", values)
    return _mean(symbols[0], loop)


def max(values: Any) -> Symbol:
    """Maximum over neighbours, per entry; 0 without any. Of equal values, the lowest source gets the gradient."""
    symbols, loop = _neighbours("max", values)
    return _reduced(ir.maximum_of, symbols[0], loop)


def min(values: Any) -> Symbol:
    """Minimum over neighbours, per entry; 0 without any. Of equal values, the lowest source gets the gradient."""
    symbols, loop = _neighbours("min", values)
    return _reduced(ir.minimum_of, symbols[0], loop)


def std(values: Any) -> Symbol:
    """Population standard deviation over neighbours; 0 where the variance is at most 1e-5, or without neighbours."""
    symbols, loop = _neighbours("std", values)
    middle = _mean(symbols[0], loop)
    variance = _mean(symbols[0] * symbols[0], loop) - middle * middle
    spread = variance > LEAST_VARIANCE
    # Where the result is 0, take the root of 1: the gradient of the root is undefined at 0.
    return where(spread, sqrt(where(spread, variance, 1)), 0)


def softmax(values: Any) -> Values:
    """Softmax over neighbours: exp(x) divided by its sum, one value per neighbour, to zip with them."""
    symbols, loop = _neighbours("softmax", values)
    # The result does not depend on the subtracted maximum, which only keeps exp finite: no gradient.
    top = apply(ir.stop, _reduced(ir.maximum_of, symbols[0], loop))
    parts: list[Symbol] = [exp(x - top) for x in symbols]
    whole = _reduced(ir.total, parts[0], loop)
    return Values([part / whole for part in parts])


def keep(values: Any) -> Kept:
    """Make the values of all arcs an output, to be returned after those of the vertex."""
    if isinstance(values, Symbol):
        raise mistake(
            f"V.keep of a value {ir.per(values.value.space)}: it keeps a list over v.inedges; return others as they are"
        )
    symbols, loop = _neighbours("keep", values)
    if loop is not ARCS:
        raise mistake("V.keep of arcs of one type: it takes a list over all of v.inedges; W[e.type] has its type")
    kept = Kept(tracing().build(ir.cast, symbols[0].value, E), here())
    tracing().kept.append(kept)
    return kept


# Elementwise functions.


def _elementwise(name: str, text: str) -> Callable[..., Any]:
    def function(x: Symbol) -> Symbol:
        return unary(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return _listwise(function)


exp = _elementwise("exp", "Exponential, elementwise.")
log = _elementwise("log", "Natural logarithm, elementwise.")
sqrt = _elementwise("sqrt", "Square root, elementwise; its gradient at 0 is infinite.")
tanh = _elementwise("tanh", "Hyperbolic tangent, elementwise.")
sigmoid = _elementwise("sigmoid", "Sigmoid 1 / (1 + exp(-x)), elementwise.")
relu = _elementwise("relu", "ReLU: x where it is positive, else 0.")
elu = _elementwise("elu", "ELU: x where it is positive, else exp(x) - 1.")
abs = _elementwise("abs", "Absolute value, elementwise.")


@_listwise
def leaky_relu(x: Symbol, slope: float = 0.01) -> Symbol:
    """Leaky ReLU: x where it is positive, else slope x."""
    return unary("leaky_relu", x, slope=_number("leaky_relu's slope", slope))


@_listwise
def dropout(x: Symbol, rate: float, *, flipped: bool = False) -> Symbol:
    """Dropout: 0 with probability ``rate``, else x / (1 - rate); x itself outside of training.

    Every call draws its own mask. The mask of a source is the same on all its arcs. ``flipped`` gives each arc the mask
    that it has when all arcs are reversed.
    """
    if not 0 <= _number("dropout's rate", rate) < 1:
        raise mistake(f"dropout's rate {rate}: it is at least 0 and less than 1")
    run = tracing()
    if rate == 0 or not run.training:
        return x
    drawn = apply(ir.mask, x.value.space, x.shape, float(rate), run.dropout(x, float(rate)), flipped=flipped)
    return x * Symbol(drawn.value, x.at)


def maximum(x: Any, y: Any) -> Symbol:
    """Maximum of two values, elementwise."""
    return binary("maximum", x, y)


def minimum(x: Any, y: Any) -> Symbol:
    """Minimum of two values, elementwise."""
    return binary("minimum", x, y)


def where(condition: Any, x: Any, y: Any) -> Symbol:
    """Return x where ``condition`` is not 0, else y."""
    return apply(ir.where, lift(condition), lift(x), lift(y))


# Functions of axes.


def dot(x: Any, y: Any) -> Symbol:
    """Inner products over the last axis: [heads, columns] and [heads, columns] give [heads]."""
    return apply(ir.dot, lift(x), lift(y))


def correlate(x: Any, z: Any) -> Symbol:
    """Circular correlation over the last axis; entry k is the sum over i of x_i z_(k + i), indices modulo the length.

    Computed as x times a matrix made of z [n]. If z is a parameter, or one per type, few matrices are needed.
    """
    x, z = lift(x), lift(z)
    if len(z.shape) != 1 or x.shape[-1:] != z.shape:
        raise mistake(
            f"correlate of {list(x.shape)} and {list(z.shape)}: the second is as long as the first's last axis"
        )
    n = z.shape[0]
    # Row i of the matrix begins with z_i: repeat z and cut the result into rows of n + 1.
    rows = apply(ir.reshape, repeat(z, n + 1, 0), (n, n + 1))
    return apply(ir.matmul, x, apply(ir.columns, rows, 0, n))


def concat(*parts: Any) -> Symbol:
    """Concatenate along the last axis: ``V.concat(x, y)`` or ``V.concat([x, y])``."""
    symbols = [lift(part) for part in (parts[0] if len(parts) == 1 and _is_list(parts[0]) else parts)]
    meeting(symbols)
    return apply(lambda *arguments: ir.concat(arguments[:-1], arguments[-1]), *symbols)


@_listwise
def reshape(x: Symbol, shape: Sequence[int]) -> Symbol:
    """Return the same entries in another shape, in C order."""
    if not isinstance(shape, list | tuple) or any(not isinstance(n, numbers.Integral) or n < 0 for n in shape):
        raise mistake(f"reshape to {shape!r}: a shape is a list of whole numbers")
    return apply(ir.reshape, x, tuple(map(int, shape)))


@_listwise
def flatten(x: Symbol) -> Symbol:
    """Merge all axes into one."""
    return apply(ir.reshape, x, (prod(x.shape),))


@_listwise
def heads(x: Symbol, n: int) -> Symbol:
    """Split the last axis into n heads: [n c] to [n, c]."""
    if not isinstance(n, numbers.Integral) or n < 1 or not x.shape or x.shape[-1] % n:
        raise mistake(f"{list(x.shape)} in {n} heads: its last axis must be a multiple of the number of heads")
    return apply(ir.reshape, x, (*x.shape[:-1], int(n), x.shape[-1] // int(n)))


@_listwise
def repeat(x: Symbol, count: int, axis: int = -1) -> Symbol:
    """Repeat x ``count`` times along a new axis, which becomes ``axis``; -1 is the last."""
    if not isinstance(count, numbers.Integral) or count < 1:
        raise mistake(f"repeat {count!r} times: it is a whole number from 1 on")
    if not isinstance(axis, numbers.Integral) or not -len(x.shape) - 1 <= axis <= len(x.shape):
        raise mistake(f"axis {axis} of {list(x.shape)} with one more: there is none")
    place = int(axis) % (len(x.shape) + 1)
    return apply(lambda value, where: replace(ir.repeat_axis(value, place, int(count)), where=where), x)


@_listwise
def mean_of_heads(x: Symbol) -> Symbol:
    """Mean over the first axis: [heads, c] to [c]."""
    return _mean_axis(x, 0)


@_listwise
def sum_axis(x: Symbol, axis: int = -1) -> Symbol:
    """Sum over an axis; -1 is the last."""
    return apply(ir.sum_axis, x, _axis(x, axis))


@_listwise
def mean_axis(x: Symbol, axis: int = -1) -> Symbol:
    """Mean over an axis; -1 is the last."""
    return _mean_axis(x, axis)


@_listwise
def normalize(x: Symbol) -> Symbol:
    """Divide x by its Euclidean length along the last axis, or by 1e-12 if it is shorter."""
    square = maximum(dot(x, x), LEAST_SQUARE)
    return x * unary("reciprocal", sqrt(square))


def _mean_axis(x: Symbol, axis: int) -> Symbol:
    axis = _axis(x, axis)
    return apply(ir.sum_axis, x, axis) * (1 / x.shape[axis])


def _axis(x: Symbol, axis: int) -> int:
    if not isinstance(axis, numbers.Integral) or not -len(x.shape) <= axis < len(x.shape):
        raise mistake(f"axis {axis} of {list(x.shape)}: there is none")
    return int(axis) % len(x.shape)


def _number(name: str, x: object) -> float:
    if not isinstance(x, numbers.Real) or not isfinite(x):
        raise mistake(f"{name} is a number, not {x!r}")
    return float(x)
