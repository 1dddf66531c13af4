"""Run a schedule on one PE: units over arcs, and the dense steps of vertices, runs, types and parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from mgg.kernel.random import Draws
from mgg.vertex.arcs import ArcTables
from mgg.vertex.cpu.loops import outside_of, results_of
from mgg.vertex.interpret import ELEMENTWISE, ROW_WISE, aligned
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.products import base, of_arcs, reads
from mgg.vertex.units import Rows, Unit, is_count, is_weight_sum


@dataclass(frozen=True)
class Part:
    """A PE's part of a program: its arcs, and the exchanges with other PEs.

    Attributes:
        rows: number of rows of D.
        arcs: returns the PE's arcs (the first call is collective).
        dense: operations of the PE's device, ``mgg.model.arrays.Arrays``.
        ids: int64 [rows] on the device, which select the draws of masks.
        degrees: float64 [rows] on the host, the sum of each vertex's arc weights.
        fetch: maps [rows, columns] to [rows + halo, columns] (collective).
        start_return, finish_return: the adjoint of ``fetch``, in two steps (collective): the first takes [rows + halo,
            columns], of which it needs the halo's rows alone; the second takes its result and returns [rows, columns].
        product: computes a ``product`` from the value, its operand X [rows, columns], its weights [arcs] if known, and
            the factors of the rows before and after it, [rows, 1] or None each (collective).
        work: runs a unit, given the unit, ``tables``, its input arrays, ``real``, and the seed and epoch of masks.
        real: floating-point type of the results.
        place: index in the model of the program's first dropout.
    """

    rows: int
    arcs: Callable[[], ArcTables]
    dense: Any
    ids: Any
    degrees: np.ndarray
    fetch: Callable[[Any], Any]
    start_return: Callable[[Any], Any]
    finish_return: Callable[[Any], Any]
    product: Callable[[Value, Any, Any, Any, Any], Any]
    work: Callable[..., Sequence[Any]]
    real: Any
    place: int = 0

    @property
    def tables(self) -> ArcTables:
        """The PE's arcs."""
        return self.arcs()

    def rows_of(self, space: Space) -> int:
        """Return the number of rows of ``space``: D, S, R, E or T."""
        if space is D:
            return self.rows
        return self.tables.type_count if space is T else self.tables.rows_of(space)


@dataclass(frozen=True, eq=False)
class Scaled:
    """A ``product`` whose rows are multiplied by numbers per vertex (D, shape ()) before and after it.

    Attributes:
        product: the value.
        rows: the operand before any factor.
        before, after: the factors, or None.
        result: the value after all factors.
    """

    product: Value
    rows: Value
    before: Value | None
    after: Value | None
    result: Value


@dataclass(frozen=True, eq=False)
class Inner:
    """The sum ``result`` over all vertices of the inner products ``dot``, which are not rounded individually."""

    dot: Value
    result: Value


Step = Value | Unit | Scaled | Inner
#: Operations that may overwrite an operand that nothing else needs, and those whose result is always a new array.
IN_PLACE = ("add", "subtract", "multiply", "divide")
FRESH = (*IN_PLACE, "matmul", "product", "gram", "dot")
#: Rows that a host gathers at once for a product by type.
PIECE = 1024
#: Operations that accept sparse features.
SPARSE = ("matmul", "gram")


class Work:
    """The steps needed for some wanted values, one by one and in order.

    Args:
        steps: steps of a schedule.
        known: values available at the start.
        wanted: values to have at the end; every other array is released after its last use.
        kept: those of ``wanted`` that only other work of the program reads; their arrays may have padded rows.
        spent: whether known inputs of arcs are released as well.
    """

    def __init__(
        self, steps: Iterable[Rows | Unit], known: Collection[Value], wanted: Iterable[Value],
        kept: Collection[Value] = (), *, spent: bool = False,
    ) -> None:  # fmt: skip
        self.wanted, self.known, self.kept = list(wanted), {*known}, {*kept}
        known = self.known
        needed = {x for value in self.wanted for x in _behind(value)}
        found: list[Value | Unit] = []
        for step in reversed(_singly(steps)):
            if needed & ({*made_by(step)} - known):
                found.append(step)
                needed.update(x for value in needs(step) for x in _behind(value))
        self.steps = _scaled(found[::-1], self.wanted)
        #: The known values that the steps read.
        self.reads = needed & known
        # A product has the weights of its arcs already: it takes an array of arcs only if that is known.
        self._needed = [[x for x in needs(step) if not isinstance(step, Scaled) or x.space is not E or x in known]
                       for step in self.steps]  # fmt: skip
        last = {value: number for number, values in enumerate(self._needed) for value in values}
        #: Values that are never released.
        self.stay = {*self.wanted, *(v for v in known if not v.inputs and not (spent and v.space is E))}
        self._gone = [[x for x in {*values} if last[x] == number and x not in self.stay]
                      for number, values in enumerate(self._needed)]  # fmt: skip
        #: Per step, its operation and whether other steps read its result; otherwise sums over all rows stay float64.
        exact = {x for step in self.steps if not isinstance(step, Value) or step.op != "reshape" for x in needs(step)}
        self._done = [(_operation(step), exact.issuperset(made_by(step))) for step in self.steps]
        #: Values that overwrite the array of an operand, and that operand.
        self.in_place: dict[Value, Value] = {}
        seen = {x for step in self.steps if isinstance(step, Value) and step.op not in FRESH for x in step.inputs}
        for number, each in enumerate(self.steps):
            if isinstance(each, Value) and each.op in IN_PLACE:
                free = [x.op in FRESH and x in self._gone[number] and x not in known | seen for x in each.inputs]
                free = free[:1] if each.op == "divide" else free
                if any(free):
                    self.in_place[each] = each.inputs[free.index(True)]
                    self._done[number] = partial(_in_place, free.index(True)), True

    def run(self, found: dict[Value, Any], part: Part, draws: tuple[int, Any] = (0, 0)) -> None:
        """Run the steps.

        Args:
            found: arrays [rows of the space, *shape] by value, [1, *shape] for P: the known values at the start, and
                the wanted values at the end.
            part: the PE's part.
            draws: seed and epoch of masks.
        """
        for number, gone in enumerate(self._gone):
            self._run(number, found, part, draws)
            for value in gone:
                found.pop(value, None)
        for value in self.wanted:
            found[value] = array_of(value, found, part, draws)

    def _run(self, number: int, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> None:
        """Run one step and keep only its results in memory."""
        step, read, (operation, used) = self.steps[number], self._needed[number], self._done[number]
        operands = [found[x] if x in found else array_of(x, found, part, draws) for x in read]
        if isinstance(step, Unit):
            operands = [_whole(x, value, part) for x, value in zip(operands, read, strict=True)]
            results = part.dense.arc_work(part.work, step, part.tables, operands, part.real, draws, part.place)
            for value, array in zip(results_of(step), results, strict=True):
                exact = value.op == "winner"
                found[value] = (array[None] if value.space is P else array).astype(
                    array.dtype if exact else part.real, copy=False
                )
        else:
            result = operation(step, part, draws, *operands)
            found[step if isinstance(step, Value) else step.result] = (
                result.astype(part.real, copy=False) if used else result
            )

    @property
    def taken_dense(self) -> set[Value]:
        """Values read by steps that accept no sparse features."""
        return {x for step, read in zip(self.steps, self._needed, strict=True) for x in read
                if not isinstance(step, Value) or step.op not in SPARSE or of_arcs(step)}  # fmt: skip

    @property
    def lives(self) -> Iterator[tuple[list[Value], list[Value]]]:
        """Per step, the values it makes and the values released after it."""
        return zip(map(made_by, self.steps), self._gone, strict=True)


def _operation(step: Step) -> Callable[..., Any]:
    if not isinstance(step, Value):
        return _product if isinstance(step, Scaled) else _inner  # units run through Part.work
    if of_arcs(step):
        return _of_arcs
    operation = _OPERATIONS["count" if is_count(step) else step.op]
    return operation if step.op in SPARSE else partial(_of_dense, operation)


def _of_dense(operation: Callable[..., Any], value: Value, part: Part, draws: tuple[int, Any], *operands: Any) -> Any:
    return operation(value, part, draws, *map(dense, operands))


def dense(x: Any) -> Any:
    """Return ``x``, which may be sparse, as a dense array."""
    return x.toarray() if hasattr(x, "toarray") else x


def contiguous(x: Any) -> Any:
    """Return ``x`` in C order."""
    return x if x.flags.c_contiguous else x.copy()


def _behind(value: Value) -> list[Value]:
    """Return ``value``, and the parameter behind it if it is a cast of one, which ``array_of`` resolves."""
    return [value, *(_behind(value.inputs[0]) if _seen_by_all(value) else [])]


def _seen_by_all(value: Value) -> bool:
    return value.op == "cast" and value.inputs[0].space is P


def _scaled(steps: Sequence[Value | Unit], wanted: Sequence[Value]) -> list[Step]:
    """Fuse products with the multiplications around them, and dots with the sum over them."""
    uses = Counter([*wanted, *(x for step in steps for x in needs(step))])
    values = [step for step in steps if not isinstance(step, Unit)]
    user = {x: step for step in values for x in step.inputs}
    made, done, found = {*values}, set[Value](), dict[Value, Scaled | Inner]()
    for step in values:
        dot = step.inputs[0] if step.op == "total" and step.space is P else step
        if dot.op == "dot" and (dot.space, dot.shape) == (D, ()) and dot is not step and dot in made and uses[dot] == 1:
            done.add(dot)
            found[step] = Inner(dot, step)
        if step.op != "product" or is_count(step):
            continue
        (rows, before), (result, after) = (step.inputs[0], None), (step, None)
        if rows in made and rows not in found and uses[rows] == 1 and (parts := _by_number(rows)) is not None:
            done.add(rows)
            rows, before = parts
        if uses[step] == 1 and step in user and (parts := _by_number(user[step])) is not None and parts[0] is step:
            done.add(step)
            result, after = user[step], parts[1]
        found[result] = Scaled(step, rows, before, after, result)
    return [step if isinstance(step, Unit) else found.get(step, step) for step in steps
            if isinstance(step, Unit) or step not in done]  # fmt: skip


def _by_number(value: Value) -> tuple[Value, Value] | None:
    """Return the factors of ``value`` if it is a product of rows and a number per vertex."""
    if value.op == "multiply":
        for rows, by in (value.inputs, value.inputs[::-1]):
            if by.shape == () != rows.shape and by.space is D and not _seen_by_all(by) and rows.shape == value.shape:
                return rows, by
    return None


def _singly(steps: Iterable[Rows | Unit]) -> list[Value | Unit]:
    return [each for step in steps for each in (step.values if isinstance(step, Rows) else (step,))]


def made_by(step: Step) -> list[Value]:
    """Return the values that a step makes."""
    if isinstance(step, Scaled | Inner):
        return [step.result]
    return results_of(step) if isinstance(step, Unit) else [step]


def needs(step: Step) -> list[Value]:
    """Return the values that a step reads."""
    if isinstance(step, Unit):
        return outside_of(step)
    if isinstance(step, Inner):
        return list(step.dot.inputs)
    if isinstance(step, Scaled):
        return [x for x in (step.rows, *step.product.inputs[1:], step.before, step.after) if x is not None]
    if of_arcs(step):
        return reads(step)
    return [] if is_count(step) else list(step.inputs)


def do(step: Value | Scaled | Inner, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> Any:
    """Return the result of a step other than a unit; sums over all rows are float64."""
    # A product has the weights of its arcs already: it takes an array of arcs only if that is known.
    operands = [array_of(x, found, part, draws) for x in needs(step) if x.space is not E or x in found]
    return _operation(step)(step, part, draws, *operands)


def array_of(value: Value, found: dict[Value, Any], part: Part, draws: tuple[int, Any]) -> Any:
    """Return the array of ``value``; constants, what is made of them alone, and masks are made on demand."""
    if value in found:
        return found[value]
    if _seen_by_all(value):
        return array_of(value.inputs[0], found, part, draws)
    return _OPERATIONS[value.op](value, part, draws, *(array_of(x, found, part, draws) for x in value.inputs))


def _count(value: Value, part: Part, draws: tuple[int, Any]) -> Any:
    """Return the number of arcs or runs of each row, or the sum of their weights, times the counted constant."""
    finer, space = value.inputs[0].space, value.space
    if is_weight_sum(value):
        counts = part.degrees
    elif (finer, space) in (owned := {(E, D): "ptr", (E, R): "runs", (R, D): "row_runs", (E, S): "out_ptr"}):
        counts = np.diff(getattr(part.tables, owned[finer, space]))
    elif space is T:
        kinds = part.tables.run_types if finer is R or part.tables.types is None else part.tables.types
        counts = np.bincount(kinds, minlength=part.tables.type_count)
    else:
        counts = np.array([part.rows_of(finer)])
    return part.dense.upload((counts * value.inputs[0].inputs[0]["value"]).astype(part.real))


def _whole(x: Any, value: Value, part: Part) -> Any:
    """Return ``x`` with all its rows, or without the row axis for P: units index rows."""
    if value.space is P:
        return x[0]
    x, rows = dense(x), part.rows_of(value.space)
    return np.broadcast_to(x, (rows, *value.shape)) if len(x) != rows else x


def _elementwise(value: Value, part: Part, draws: tuple[int, Any], *operands: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a later where() may discard such entries
        return ELEMENTWISE[value.op](*aligned(value, operands)).astype(part.real, copy=False)


def _in_place(place: int, value: Value, part: Part, draws: tuple[int, Any], *operands: Any) -> Any:
    x = operands[place]
    if x.shape != (max(map(len, operands)), *value.shape) or x.dtype != part.real:
        return _of_dense(_elementwise, value, part, draws, *operands)
    with np.errstate(invalid="ignore", over="ignore"):
        return ELEMENTWISE[value.op](*aligned(value, [dense(each) for each in operands]), out=x)


def _row_wise(value: Value, part: Part, draws: tuple[int, Any], *operands: Any) -> Any:
    rows = next((len(x) for x in operands if len(x) != 1), 1)
    wide = [np.broadcast_to(x, (rows, *x.shape[1:])) if len(x) != rows else x for x in operands]
    result = ROW_WISE[value.op](value, *wide)
    return result if value.op == "reshape" else result.astype(part.real, copy=False)


def _dot(value: Value, part: Part, draws: tuple[int, Any], x: Any, y: Any) -> Any:
    return np.einsum("...i,...i->...", x, y)


def _cast(value: Value, part: Part, draws: tuple[int, Any], x: Any) -> Any:
    coarser, space = value.inputs[0].space, value.space
    if coarser is P:
        return x  # a single row broadcasts
    if (coarser, space) == (D, S):
        whole = _whole(x, value.inputs[0], part)
        return _shaped(part.fetch(contiguous(_flat(whole))), value)
    assert space is R, value
    return x if len(x) == 1 else _Seen(x, part.tables.owners(R, coarser))


@dataclass(frozen=True)
class _Seen:
    """Rows of another space as runs or arcs see them, [runs or arcs, ...]; expanded only when an array is needed."""

    rows: Any
    owners: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape [runs or arcs, ...]."""
        return len(self.owners), *self.rows.shape[1:]

    def __len__(self) -> int:
        return len(self.owners)

    def astype(self, kind: Any, *, copy: bool) -> _Seen:
        """Return the view with another data type."""
        return _Seen(self.rows.astype(kind, copy=copy), self.owners)

    def reshape(self, _: int, *shape: int) -> _Seen:
        """Return the view with other axes after the first."""
        return _Seen(self.rows.reshape(len(self.rows), *shape), self.owners)

    def toarray(self) -> Any:
        """Return the expanded array [runs or arcs, ...]."""
        return self.rows[self.owners]


def _of_arcs(value: Value, part: Part, draws: tuple[int, Any], *operands: Any) -> Any:
    """Compute a product of arcs or runs from the arrays that ``mgg.vertex.products.reads`` names."""
    seen = []
    for x, y, array in zip(value.inputs, map(base, value.inputs), map(dense, operands), strict=True):
        looks_up = y.op == "cast" and y.space is value.inputs[0].space and y.inputs[0].space is not P
        rows = array
        if looks_up and len(array) > 1:
            rows = _Seen(array, part.tables.owners(y.space, y.inputs[0].space))
        seen.append(rows if rows.shape[1:] == x.shape else rows.reshape(len(rows), *x.shape))
    return (_matmul if value.op == "matmul" else _gram)(value, part, draws, *seen)


def _total(value: Value, part: Part, draws: tuple[int, Any], x: Any) -> Any:
    finer, space = value.inputs[0].space, value.space
    whole = _flat(_whole(x, value.inputs[0], part))
    if (finer, space) == (S, D):
        return _shaped(part.finish_return(part.start_return(whole.copy())), value)
    if space is P:
        return part.dense.column_sums(whole).reshape(1, *value.shape)
    return _shaped(_summed(whole, space, part).astype(part.real), value)


def _summed(x: Any, space: Space, part: Part) -> Any:
    """Return float64 sums of the rows ``x`` of runs that belong to each row of D or T."""
    sums = np.zeros((part.rows_of(space), *x.shape[1:]))
    if space is D:
        np.add.at(sums, part.tables.run_targets, x)
    else:
        for kind, runs in part.tables.by_type[R]:
            sums[kind] = x[runs].sum(0, dtype=np.float64)
    return sums


def _matmul(value: Value, part: Part, draws: tuple[int, Any], x: Any, w: Any) -> Any:
    lead, inner, outer = x.shape[1:-1], x.shape[-1], w.shape[2:]
    if isinstance(w, _Seen) and w.owners is part.tables.owners(value.space, T):
        x = x if len(x) == len(w) else _whole(x, value.inputs[0], part)
        result = np.empty((len(w), *value.shape), part.real)
        for kind, rows in _pieces(value.space, part):
            matrix = w.rows[kind].reshape(inner, prod(outer))
            found = part.dense.product(_matrix(_picked(x, rows, part)), matrix)
            part.dense.put_rows(result, rows, found.reshape(len(rows), *value.shape))
        return result
    x, w = (each.toarray() if isinstance(each, _Seen) else each for each in (x, w))
    if len(w) == 1:
        return part.dense.product(_matrix(x), w.reshape(inner, prod(outer))).reshape(x.shape[0], *lead, *outer)
    result = x.reshape(len(x), prod(lead), inner) @ w.reshape(len(w), inner, prod(outer))
    return _shaped(result, value)


def _gram(value: Value, part: Part, draws: tuple[int, Any], x: Any, y: Any) -> Any:
    if hasattr(x, "strides"):  # otherwise a _Seen view, or features [rows, columns] that are no array
        x = _whole(x, value.inputs[0], part)
    y = y if isinstance(y, _Seen) else _whole(y, value.inputs[1], part)
    if value.space is P:
        x, y = (each.toarray() if isinstance(each, _Seen) else each for each in (x, y))
        right = y.reshape(prod(x.shape[:-1]), prod(value.shape[1:]))
        return part.dense.transposed_product(_matrix(x), right).reshape(1, *value.shape)
    if value.inputs[0].space is T:  # a row per type, so nothing is summed but the leading axes
        x, y = (each.toarray() if isinstance(each, _Seen) else each for each in (x, y))
        lead, inner = prod(x.shape[1:-1]), x.shape[-1]
        left = x.reshape(len(x), lead, inner).swapaxes(1, 2)
        return _shaped(left @ y.reshape(len(y), lead, prod(value.shape[1:])), value)
    result = np.zeros((part.tables.type_count, *value.shape))
    for kind, rows in _pieces(value.inputs[0].space, part):
        theirs = _picked(y, rows, part).reshape(len(rows) * prod(x.shape[1:-1]), prod(value.shape[1:]))
        mine = _matrix(_picked(x, rows, part))
        result[kind] += part.dense.transposed_product(mine, theirs).reshape(value.shape)
    return result.astype(part.real)


def _picked(x: Any, places: Any, part: Part) -> Any:
    """Return a copy of the rows of ``x`` at ``places``."""
    return part.dense.rows(*((x.rows, x.owners[places]) if isinstance(x, _Seen) else (x, places)))


def _pieces(space: Space, part: Part) -> Iterator[tuple[int, Any]]:
    """Yield the arcs or runs of each type; on a host in small pieces, so that gathered rows stay in cache."""
    for kind, rows in part.tables.by_type[space]:
        step = PIECE if part.dense.operators is None else len(rows)
        for first in range(0, len(rows), step):
            yield kind, rows[first : first + step]


def _mask(value: Value, part: Part, draws: tuple[int, Any]) -> Any:
    ids = part.ids if value.space is D else part.dense.upload(part.tables.ids[: part.rows_of(S)])
    ones = part.dense.zeros((len(ids), value.size), part.real)
    ones += 1
    return _shaped(part.dense.dropout(ones, ids, Draws(*draws, part.place + value["place"]), value["rate"])[0], value)


def _product(step: Scaled, part: Part, draws: tuple[int, Any], x: Any, *others: Any) -> Any:
    rows = contiguous(_flat(_whole(x, step.rows, part)))
    scales = [x is not None for x in (step.before, step.after)]
    weights, *numbers = others if len(others) > sum(scales) else (None, *others)
    columns = iter(numbers)
    before, after = (next(columns).reshape(-1, 1) if scale else None for scale in scales)
    return _shaped(part.product(step.product, rows, weights, before, after), step.result)


def _inner(step: Inner, part: Part, draws: tuple[int, Any], *operands: Any) -> Any:
    x, y = (contiguous(_whole(x, value, part)) for x, value in zip(operands, step.dot.inputs, strict=True))
    return part.dense.inner(x, y)


def _shaped(x: Any, value: Value) -> Any:
    return x.reshape(len(x), *value.shape)


def _flat(x: Any) -> Any:
    return x.reshape(len(x), prod(x.shape[1:]))


def _matrix(x: Any) -> Any:
    """Return ``x`` as a matrix, with all axes but the last merged."""
    return x if len(x.shape) == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(ROW_WISE, _row_wise),
    "constant": lambda value, part, draws: part.dense.upload(np.array([value["value"]], part.real)),
    "dot": _dot,
    "cast": _cast,
    "count": _count,
    "total": _total,
    "matmul": _matmul,
    "gram": _gram,
    "mask": _mask,
    "by_type": lambda value, part, draws, x: x[0],
}
