"""NumPy interpreter of vertex programs: every operation as defined, in float64, on a whole graph.

It is the reference for all executors: clear, not fast. Values of arcs are always arrays [arcs, ...].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from scipy.special import expit

from mgg.kernel.random import Draws, drop_arcs, uniform
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value, walk


@dataclass(frozen=True, eq=False)
class ArcGraph:
    """A whole graph: every source is one of its vertices, so S has the rows of D.

    A PE's part is a subset: the rows of D and S with its ``ids``, and the rows of E and R of its targets.

    Attributes:
        vertices: number of vertices.
        type_count: number of arc types.
        targets, sources: int64 [arcs], the ends of each arc, ordered by (target, type, id of the source).
        types: int64 [arcs], the type of each arc.
        ids: int64 [vertices], which select dropout draws and break ties between equal rows: the lowest id wins.
        order: int64 [arcs], the position of each arc in the input of ``of``.
    """

    vertices: int
    type_count: int
    targets: np.ndarray
    sources: np.ndarray
    types: np.ndarray
    ids: np.ndarray
    order: np.ndarray

    @classmethod
    def of(
        cls, vertices: int, targets: np.ndarray, sources: np.ndarray, types: np.ndarray | None = None,
        type_count: int | None = None, ids: np.ndarray | None = None,
    ) -> ArcGraph:  # fmt: skip
        """Build a graph of arcs in any order (a stable sort). Arc features ``f`` become ``f[graph.order]``.

        Args:
            vertices: number of vertices.
            targets, sources: integers [arcs], below ``vertices``.
            types: integers [arcs], below ``type_count``; None: all 0.
            type_count: number of arc types; None: one more than the highest type, at least 1.
            ids: integers [vertices]; None: 0, 1, ...

        Raises:
            ValueError: an end or a type is out of range, or the number of ids is wrong.
        """
        targets, sources = np.asarray(targets, np.int64), np.asarray(sources, np.int64)
        types = np.zeros(len(targets), np.int64) if types is None else np.asarray(types, np.int64)
        ids = np.arange(vertices) if ids is None else np.asarray(ids, np.int64)
        count = max(types.max(initial=0) + 1, 1) if type_count is None else type_count
        for name, array, end in ("target", targets, vertices), ("source", sources, vertices), ("type", types, count):
            if array.shape != targets.shape or array.min(initial=0) < 0 or array.max(initial=-1) >= end:
                raise ValueError(f"each arc needs a {name} from 0 to {end - 1}")
        if len(ids) != vertices:
            raise ValueError(f"{len(ids)} ids of {vertices} vertices")
        order = np.lexsort((ids[sources], types, targets))
        return cls(vertices, int(count), targets[order], sources[order], types[order], ids, order)

    @cached_property
    def firsts(self) -> np.ndarray:
        """int64 [runs], the first arc of each run."""
        new = np.ones(len(self.targets), bool)
        new[1:] = (np.diff(self.targets) != 0) | (np.diff(self.types) != 0)
        return np.flatnonzero(new)

    @cached_property
    def runs(self) -> np.ndarray:
        """int64 [arcs], the run of each arc."""
        return np.repeat(np.arange(len(self.firsts)), np.diff(self.firsts, append=len(self.targets)))

    def rows(self, space: Space) -> int:
        """Return the number of rows of ``space``."""
        n = self.vertices
        return {P: 1, T: self.type_count, D: n, S: n, R: len(self.firsts), E: len(self.targets)}[space]

    def owners(self, finer: Space, coarser: Space) -> np.ndarray:
        """Return int64 [rows of ``finer``], the row of ``coarser`` to which each belongs."""
        if coarser is finer or (coarser, finer) == (D, S):
            return np.arange(self.rows(finer))
        if coarser is P:
            return np.zeros(self.rows(finer), np.int64)
        of_arcs = {T: self.types, D: self.targets, S: self.sources, R: self.runs}[coarser]
        assert finer is E or (finer is R and coarser in (T, D)), f"{finer} to {coarser}"
        return of_arcs if finer is E else of_arcs[self.firsts]

    def before(self, space: Space) -> np.ndarray:
        """Return int64 [rows of ``space``], the rank of each row among equal ones: the lowest source id comes first."""
        rows = self.rows(space)
        keys = self.ids[self.sources] if space is E else self.ids if space in (D, S) else np.zeros(rows)
        return np.argsort(np.argsort(keys, kind="stable"))


def evaluate(
    values: Sequence[Value], graph: ArcGraph, leaves: Mapping[str, np.ndarray], masks: tuple[int, int] | None = None
) -> list[np.ndarray]:
    """Evaluate ``values``.

    Args:
        values: values of a program.
        graph: a whole graph.
        leaves: an array per input, by name: [rows of its space, *shape], but [*shape] for P.
        masks: seed and epoch of the training, from which dropout draws; None: every mask is 1.

    Returns:
        One float64 array [rows, *shape] per value, but [*shape] for P; int64 for winners.

    Raises:
        ValueError: a leaf is missing or has another shape.
    """
    found: dict[Value, np.ndarray] = {}
    with np.errstate(all="ignore"):  # where() may discard infinite and undefined entries
        for value in walk(values):
            if value.op == "input":
                result = _leaf(value, graph, leaves)
            elif value.op == "mask":
                result = _mask(value, graph, masks)
            elif value.op in ELEMENTWISE:
                operands = aligned(value, [found[operand] for operand in value.inputs])
                result = ELEMENTWISE[value.op](*operands).astype(np.float64)
            else:
                result = _OPERATIONS[value.op](value, graph, *(found[operand] for operand in value.inputs))
            found[value] = result
            assert result.shape == (graph.rows(value.space), *value.shape), value
    return [found[value][0] if value.space is P else found[value] for value in values]


# Within this module, P has a row axis too: an operation takes its value, the graph and one [rows, *shape] per operand.


def _leaf(value: Value, graph: ArcGraph, leaves: Mapping[str, np.ndarray]) -> np.ndarray:
    name, rows = value["name"], () if value.space is P else (graph.rows(value.space),)
    if name not in leaves:
        raise ValueError(f"no array for the input {name!r}")
    array = np.asarray(leaves[name], np.float64)
    if array.shape != (*rows, *value.shape):
        raise ValueError(f"input {name!r} is {list(array.shape)}, not {[*rows, *value.shape]}")
    return array[None] if value.space is P else array


def _mask(value: Value, graph: ArcGraph, masks: tuple[int, int] | None) -> np.ndarray:
    shape = (graph.rows(value.space), *value.shape)
    if masks is None:
        return np.ones(shape)
    seed, stream, rate = masks[0], Draws(*masks, value["place"]).stream, value["rate"]
    if value.space is E:
        result = np.ones((shape[0], value.size))
        ptr = np.searchsorted(graph.targets, np.arange(graph.vertices + 1))
        drop_arcs(seed, stream, graph.ids, ptr, graph.sources, result, rate, turned=value["flipped"])
    else:
        result = (uniform(seed, stream, graph.ids, value.size) >= rate) / (1 - rate)
    return result.reshape(shape)


def aligned(value: Value, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Give elementwise operands the result's number of axes; shapes are aligned at their first axes."""
    return [x.reshape(x.shape + (1,) * (len(value.shape) + 1 - x.ndim)) for x in operands]


def _total(graph: ArcGraph, x: np.ndarray, finer: Space, coarser: Space) -> np.ndarray:
    result = np.zeros((graph.rows(coarser), *x.shape[1:]))
    np.add.at(result, graph.owners(finer, coarser), x)
    return result


def _product(value: Value, graph: ArcGraph, x: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    ends = (graph.targets, graph.sources) if value["back"] else (graph.sources, graph.targets)
    rows = x[ends[0]] if weight is None else (x[ends[0]].T * weight).T
    result = np.zeros((graph.vertices, *x.shape[1:]))
    np.add.at(result, ends[1], rows)
    return result


def _extreme(value: Value, graph: ArcGraph, x: np.ndarray, op: str) -> np.ndarray:
    owners, rows = graph.owners(value.inputs[0].space, value.space), graph.rows(value.space)
    largest = op == "maximum_of"
    result = np.full((rows, *value.shape), -np.inf if largest else np.inf)
    (np.maximum if largest else np.minimum).at(result, owners, x)
    result[np.bincount(owners, minlength=rows) == 0] = 0
    return result


def _winner(value: Value, graph: ArcGraph, x: np.ndarray) -> np.ndarray:
    space, none = value.inputs[0].space, len(x)
    owners, before = graph.owners(space, value.space), graph.before(space)
    taken = x == _extreme(value, graph, x, value["of"])[owners]
    first = np.full((graph.rows(value.space), *value.shape), none)
    np.minimum.at(first, owners, np.where(taken.T, before, none).T)
    return np.asarray(np.append(np.argsort(before), -1)[first])


def _matmul(value: Value, graph: ArcGraph, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    lead, inner = prod(x.shape[1:-1]), x.shape[-1]
    result: np.ndarray = x.reshape(len(x), lead, inner) @ w.reshape(len(w), inner, prod(w.shape[2:]))
    return result.reshape(graph.rows(value.space), *value.shape)


def _gram(value: Value, graph: ArcGraph, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    lead, inner = prod(x.shape[1:-1]), x.shape[-1]
    each = x.reshape(len(x), lead, inner).swapaxes(1, 2) @ y.reshape(len(y), lead, prod(y.shape[x.ndim - 1 :]))
    return _total(graph, each, value.inputs[0].space, value.space).reshape(graph.rows(value.space), *value.shape)


def _pad(value: Value, x: np.ndarray) -> np.ndarray:
    after = value["count"] - value["first"] - x.shape[-1]
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(value["first"], after)])


def _each_row(work: Callable[..., Any], value: Value, graph: ArcGraph, *operands: np.ndarray) -> Any:
    return work(value, *operands)


def _by_type(value: Value, graph: ArcGraph, w: np.ndarray) -> np.ndarray:
    if value["types"] != graph.type_count:
        raise ValueError(f"a parameter has rows for {value['types']} types of arcs, the graph has {graph.type_count}")
    return np.asarray(w[0])


#: Functions of operands of one shape.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "negative": np.negative, "reciprocal": np.reciprocal, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "tanh": np.tanh, "sigmoid": expit, "abs": np.abs, "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)), "stop": np.copy,
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "greater": np.greater, "equal": np.equal,
    "where": lambda condition, x, y: np.where(condition != 0, x, y),
}  # fmt: skip
#: Functions of each row by itself.
ROW_WISE: dict[str, Callable[..., Any]] = {
    "leaky_relu": lambda v, x: np.where(x > 0, x, v["slope"] * x),
    "power": lambda v, x: x ** v["exponent"],
    "dot": lambda v, x, y: (x * y).sum(axis=-1),
    "sum_axis": lambda v, x: x.sum(axis=v["axis"] + 1),
    "repeat_axis": lambda v, x: np.expand_dims(x, v["axis"] + 1).repeat(v["count"], v["axis"] + 1),
    "reshape": lambda v, x: x.reshape(len(x), *v.shape),
    "transpose": lambda v, x: x.swapaxes(1, 2),
    "concat": lambda v, *parts: np.concatenate(parts, axis=-1),
    "slice": lambda v, x: x[..., v["first"] : v["last"]],
    "pad": _pad,
    "all_types": lambda v, x: x[None],
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{op: partial(_each_row, work) for op, work in ROW_WISE.items()},
    "constant": lambda v, graph: np.array([v["value"]]),
    "cast": lambda v, graph, x: x[graph.owners(v.space, v.inputs[0].space)],
    "total": lambda v, graph, x: _total(graph, x, v.inputs[0].space, v.space),
    "product": _product,
    **dict.fromkeys(("maximum_of", "minimum_of"), lambda v, graph, x: _extreme(v, graph, x, v.op)),
    "winner": _winner,
    "won": lambda v, graph, x: (np.arange(len(x)) == x.T).T.astype(np.float64),
    "matmul": _matmul,
    "gram": _gram,
    "by_type": _by_type,
}
