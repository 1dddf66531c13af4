"""Works off a schedule on one PE: units over arcs, and between them what vertices, runs, types and parameters need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mgg.kernel.random import Draws, uniform
from mgg.vertex.arcs import ArcTables
from mgg.vertex.interpret import ELEMENTWISE, ROW_WISE, aligned
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.loops import outside_of, results_of
from mgg.vertex.units import Rows, Unit, is_count


@dataclass(frozen=True)
class Part:
    """What a PE has for its part of a program: its arcs, and the ways to other PEs.

    Attributes:
        tables: its arcs.
        dense: ``product`` and ``transposed_product`` of matrices, ``column_sums``: ``mgg.model.arrays.Arrays``.
        fetch: [rows, columns] to [rows + halo, columns] (collective).
        give_back: its adjoint (collective).
        product: A X (False) or A^T X (True) of X [rows, columns], and arc weights [arcs] or None before that: sums
            over the program's arcs (collective).
        work: runs a unit: the unit, ``tables``, its arrays from outside, ``real``, seed and epoch of masks.
        real: type of what is computed.
        place: which dropout of the model the program's first one is.
    """

    tables: ArcTables
    dense: Any
    fetch: Callable[[Any], Any]
    give_back: Callable[[Any], Any]
    product: Callable[[Any, Any, bool], Any]
    work: Callable[..., Sequence[Any]]
    real: Any
    place: int = 0


def run(
    steps: Sequence[Rows | Unit],
    found: dict[Value, Any],
    part: Part,
    *,
    draws: tuple[int, int] = (0, 0),
    wanted: Iterable[Value] = (),
) -> None:
    """Do ``steps`` in their order.

    Args:
        steps: of a schedule.
        found: arrays by value, [rows of the space, *shape], of P [1, *shape]: those of the leaves at first, in the end
            those of ``wanted``, too. Others go when nobody needs them any more.
        part: the PE's.
        draws: seed and epoch of masks.
        wanted: what stays.
    """
    wanted = list(wanted)
    single = _needed(steps, wanted)
    needs = [_needs(each) for each in single]
    last = {value: number for number, values in enumerate(needs) for value in values}
    stay = {*wanted, *(value for value in last if not value.inputs)}
    for number, step in enumerate(single):
        if isinstance(step, Unit):
            arrays = [_whole(_array(value, found, part, draws), value, part) for value in needs[number]]
            results = part.work(step, part.tables, arrays, part.real, draws, part.place)
            for value, array in zip(results_of(step), results, strict=True):
                exact = value.op == "winner"
                found[value] = (array[None] if value.space is P else array).astype(
                    array.dtype if exact else part.real, copy=False
                )
        else:
            operands = [_array(value, found, part, draws) for value in needs[number]]
            if step.op not in ("matmul", "gram"):
                operands = [x.toarray() if hasattr(x, "toarray") else x for x in operands]
            found[step] = _OPERATIONS["count" if is_count(step) else step.op](step, part, draws, *operands)
        for value in needs[number]:
            if last[value] == number and value not in stay:
                found.pop(value, None)
    for value in wanted:
        found[value] = _array(value, found, part, draws)


def _needed(steps: Sequence[Rows | Unit], wanted: Sequence[Value]) -> list[Value | Unit]:
    """The single steps of ``steps`` without which something ``wanted`` would be missing."""
    needed, found = set(wanted), []
    single = _singly(steps)
    for step in reversed(single):
        made = _made(step)
        if needed & set(made):
            found.append(step)
            needed |= set(_needs(step))
            needed |= {x for value in needed if value.op == "cast" and value.inputs[0].space is P for x in value.inputs}
    return found[::-1]


def live_columns(steps: Sequence[Rows | Unit], spaces: Collection[Space] = (D, S)) -> int:
    """The most numbers a vertex or a source, or of other ``spaces``, held at once during ``steps``, inputs apart."""
    single = _singly(steps)
    needs = [_needs(each) for each in single]
    last = {value: number for number, values in enumerate(needs) for value in values}
    held, most = 0, 0
    for number, step in enumerate(single):
        made = _made(step)
        held += sum(value.size for value in made if value.space in spaces)
        most = max(most, held)
        gone = {value for value in (*needs[number], *made) if last.get(value, number) == number and value.inputs}
        held -= sum(value.size for value in gone if value.space in spaces)
    return most


def _singly(steps: Sequence[Rows | Unit]) -> list[Value | Unit]:
    return [each for step in steps for each in (step.values if isinstance(step, Rows) else (step,))]


def _made(step: Value | Unit) -> list[Value]:
    return results_of(step) if isinstance(step, Unit) else [step]


def _needs(step: Value | Unit) -> list[Value]:
    if isinstance(step, Unit):
        return outside_of(step)
    return [] if is_count(step) else list(step.inputs)


def _array(value: Value, found: dict[Value, Any], part: Part, draws: tuple[int, int]) -> Any:
    """What was found of ``value``; numbers, masks and parameters seen from rows are made where they are asked for."""
    if value in found:
        return found[value]
    if value.op == "cast" and value.inputs[0].space is P:
        return _array(value.inputs[0], found, part, draws)
    return _OPERATIONS[value.op](value, part, draws)


def _count(value: Value, part: Part, draws: tuple[int, int]) -> Any:
    """How many arcs or runs each row has, times the number that is counted."""
    tables, (finer, space) = part.tables, (value.inputs[0].space, value.space)
    owned = {(E, D): tables.ptr, (E, R): tables.runs, (R, D): tables.row_runs, (E, S): tables.out_ptr}
    if (finer, space) in owned:
        counts = np.diff(owned[finer, space])
    elif space is T:
        kinds = tables.run_types if finer is R or tables.types is None else tables.types
        counts = np.bincount(kinds, minlength=tables.type_count)
    else:
        counts = np.array([tables.rows_of(finer) if finer is not T else tables.type_count])
    number = value.inputs[0].inputs[0]["value"]
    return (counts * number).astype(part.real)


def _whole(x: Any, value: Value, part: Part) -> Any:
    """``x`` without the row that stands for all: units index rows."""
    if value.space is P:
        return x[0]
    if hasattr(x, "toarray"):
        return x.toarray()
    rows = part.tables.rows_of(value.space) if value.space is not T else part.tables.type_count
    return np.broadcast_to(x, (rows, *value.shape)) if len(x) != rows else x


def _elementwise(value: Value, part: Part, draws: tuple[int, int], *operands: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # of what a where() after it does not choose
        return ELEMENTWISE[value.op](*aligned(value, operands)).astype(part.real, copy=False)


def _row_wise(value: Value, part: Part, draws: tuple[int, int], *operands: Any) -> Any:
    rows = next((len(x) for x in operands if len(x) != 1), 1)
    wide = [np.broadcast_to(x, (rows, *x.shape[1:])) if len(x) != rows else x for x in operands]
    return ROW_WISE[value.op](value, *wide).astype(part.real, copy=False)


def _dot(value: Value, part: Part, draws: tuple[int, int], x: Any, y: Any) -> Any:
    return np.einsum("...i,...i->...", x, y)


def _cast(value: Value, part: Part, draws: tuple[int, int], x: Any) -> Any:
    coarser, space = value.inputs[0].space, value.space
    if coarser is P:
        return x  # one row for all
    if (coarser, space) == (D, S):
        whole = _whole(x, value.inputs[0], part)
        return _shaped(part.fetch(np.ascontiguousarray(_flat(whole))), value)
    tables = part.tables
    assert space is R, value
    if len(x) == 1 and coarser is D:
        return x
    return x[tables.run_targets if coarser is D else tables.run_types]


def _total(value: Value, part: Part, draws: tuple[int, int], x: Any) -> Any:
    finer, space = value.inputs[0].space, value.space
    whole = _flat(_whole(x, value.inputs[0], part))
    if (finer, space) == (S, D):
        return _shaped(part.give_back(np.array(whole)), value)
    if space is P:
        return part.dense.column_sums(whole).astype(part.real).reshape(1, *value.shape)
    return _shaped(_summed(whole, space, part).astype(part.real), value)


def _summed(x: Any, space: Space, part: Part) -> Any:
    """float64 sums of the rows ``x`` of runs that belong to each row of D or T."""
    tables = part.tables
    owners, rows = (tables.run_targets, tables.rows) if space is D else (tables.run_types, tables.type_count)
    sums = np.zeros((rows, *x.shape[1:]))
    np.add.at(sums, owners, x)
    return sums


def _matmul(value: Value, part: Part, draws: tuple[int, int], x: Any, w: Any) -> Any:
    lead, inner, outer = x.shape[1:-1], x.shape[-1], w.shape[2:]
    if len(w) == 1:
        return part.dense.product(_matrix(x), w.reshape(inner, prod(outer))).reshape(x.shape[0], *lead, *outer)
    result = x.reshape(len(x), prod(lead), inner) @ w.reshape(len(w), inner, prod(outer))
    return _shaped(result, value)


def _gram(value: Value, part: Part, draws: tuple[int, int], x: Any, y: Any) -> Any:
    if not hasattr(x, "toarray"):  # else sparse features, [rows, columns]
        x = _whole(x, value.inputs[0], part)
    y = _whole(y, value.inputs[1], part)
    right = y.reshape(prod(x.shape[:-1]), prod(value.shape[1:]))
    if value.space is P:
        return part.dense.transposed_product(_matrix(x), right).astype(part.real).reshape(1, *value.shape)
    lead = prod(x.shape[1:-1])
    each = x.reshape(len(x), lead, x.shape[-1]).swapaxes(1, 2) @ y.reshape(len(y), lead, prod(value.shape[1:]))
    return _shaped(_summed(each, T, part).astype(part.real), value)


def _mask(value: Value, part: Part, draws: tuple[int, int]) -> Any:
    ids = part.tables.ids[: part.tables.rows_of(value.space)]
    kept = uniform(draws[0], Draws(*draws, part.place + value["place"]).stream, ids, value.size) >= value["rate"]
    return _shaped(np.multiply(kept, 1 / (1 - value["rate"]), dtype=part.real), value)


def _product(value: Value, part: Part, draws: tuple[int, int], x: Any, weights: Any = None) -> Any:
    rows = np.ascontiguousarray(_flat(_whole(x, value.inputs[0], part)))
    return _shaped(part.product(rows, weights, value["back"]), value)


def _shaped(x: Any, value: Value) -> Any:
    return x.reshape(len(x), *value.shape)


def _flat(x: Any) -> Any:
    return x.reshape(len(x), prod(x.shape[1:]))


def _matrix(x: Any) -> Any:
    """All axes but the last as one."""
    return x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(ROW_WISE, _row_wise),
    "constant": lambda value, part, draws: np.array([value["value"]], part.real),
    "dot": _dot,
    "cast": _cast,
    "count": _count,
    "total": _total,
    "matmul": _matmul,
    "gram": _gram,
    "mask": _mask,
    "product": _product,
    "by_type": lambda value, part, draws, x: x[0],
}
