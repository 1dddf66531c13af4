"""The graph-aware intermediate representation of vertex programs (Seastar, EuroSys'21, section 5.2).

A program becomes a graph of values. A value has one array of ``shape`` for every row of its ``space``:

    P  one for all (parameters)                T  one a type of arcs
    D  one a vertex of this PE                 S  one a vertex at which arcs of this PE begin, halo included
    E  one an arc                              R  one a run: the arcs of one type that end at one vertex

Spaces are ordered by maps: every arc has a source (E to S), a run (E to R), a target (E to D) and a type (E to T),
every run a target and a type, every source is somebody's vertex (S to D), and everything belongs to the one row of P.
``cast`` takes a value along such a map backwards, to the finer space: S to E reads the row of an arc's source, D to S
fetches a halo. ``total`` adds up along it, to the coarser one: E to D is the aggregation over in-arcs, E to S the one
over out-arcs, S to D gives the gradients of halo rows back. Each is the other's adjoint, which is all that autodiff
has to know of graphs. Seastar's types S, D, E and P are these spaces; its rule that the type of an input decides
where its gradient goes follows.

Operands of other operations are of one space: the constructors here cast them to the coarsest one that is finer than
all, where a vertex met by a source is the target of the arc between them (``joined``). Shapes are aligned at their
first axis, so that a number a head meets a row a head: [heads] and [heads, columns].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any


class Space(Enum):
    """What a value has one array for each of."""

    P = "all"
    T = "type of arcs"
    D = "vertex"
    S = "source"
    R = "run"
    E = "arc"

    def __repr__(self) -> str:
        return self.name

    def over(self, finer: Space) -> bool:
        """Whether every row of ``finer`` belongs to a row of this space, or they are the same."""
        return finer is self or finer in _FINER[self]


P, T, D, S, R, E = Space.P, Space.T, Space.D, Space.S, Space.R, Space.E
#: By space, those that map to it. D over E is the target of an arc; its source goes by S.
_FINER = {P: (T, D, S, R, E), T: (R, E), D: (S, R, E), S: (E,), R: (E,), E: ()}
#: Where operands of several spaces meet: not that a source is somebody's vertex, for a vertex beside it is the target.
_MEET = _FINER | {D: (R, E)}


@dataclass(frozen=True)
class Where:
    """A place in a user's program."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, eq=False)
class Value:
    """A node of the graph; equal only to itself.

    Attributes:
        op: its operation, one of ``OPERATIONS``.
        inputs: operands, as ``OPERATIONS`` says.
        space: what it has an array for each of.
        shape: of these arrays.
        attributes: what else the operation takes, by name; hashable.
        where: of the user's program; not part of what the value is.
    """

    op: str
    inputs: tuple[Value, ...]
    space: Space
    shape: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    where: Where | None = field(default=None, repr=False)

    def __getitem__(self, name: str) -> Any:
        """The attribute ``name``."""
        return dict(self.attributes)[name]

    @property
    def size(self) -> int:
        """Numbers a row."""
        return prod(self.shape)


#: Elementwise operations of one operand; those with numbers of their own take them as attributes.
UNARY = ("negative", "reciprocal", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "leaky_relu", "elu", "abs", "power")
#: Elementwise operations of two; the comparisons give 1 or 0 and have no gradient.
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "greater", "equal")

#: Every operation and what it computes.
OPERATIONS = {
    "input": "a leaf: a feature of vertices (D) or arcs (E), a parameter (P), a gradient; ``name``",
    "constant": "a leaf: the number ``value``, P, shape ()",
    "mask": "a leaf: 0 with probability ``rate``, else 1 / (1 - rate), anew in every epoch; ``place`` is which dropout",
    **dict.fromkeys(UNARY, "elementwise"),
    **dict.fromkeys(BINARY, "elementwise"),
    "where": "the second operand where the first is not 0, else the third",
    "stop": "the operand; no gradient goes through it",
    "cast": "to a finer space: each row has its owner's",
    "total": "to a coarser space: the sum of the rows that belong to each, 0 of none",
    "product": "D: the sum over in-arcs of the rows of their sources, over out-arcs of those of their targets if"
    " ``back``; times the arc's entry of the second operand (E, shape ()), if any: A X and the transposed product",
    "maximum_of": "to a coarser space, element by element: the largest of the rows that belong to each; 0 of none",
    "minimum_of": "likewise, the smallest",
    "winner": "to a coarser space: which row ``maximum_of`` or ``minimum_of`` (``of``) took, of equal ones that with"
    " the lowest source id; an index, -1 of none",
    "won": "1 in the rows that were taken, else 0; the operand is a winner, cast to the space of these rows",
    "matmul": "the last axis of the first operand with the first axis of the second",
    "gram": "sum over the rows that belong to each row of ``space`` (P or T) of the outer product of both operands",
    "dot": "sum over the last axis of the product of both",
    "sum_axis": "sum over the axis ``axis``",
    "repeat_axis": "a new axis of length ``count`` at ``axis``",
    "reshape": "to ``shape``, which has as many entries",
    "transpose": "P or T, both axes of a matrix exchanged",
    "concat": "side by side along the last axis",
    "slice": "``first`` to ``last`` of the last axis",
    "pad": "adjoint of ``slice``: zeros around, so that the last axis has ``count``",
    "by_type": "P to T: the first axis of a parameter becomes the types",
    "all_types": "T to P: adjoint of ``by_type``",
}  # fmt: skip


class ProgramError(ValueError):
    """A value that cannot be; the message says why, in terms of shapes and spaces, and has no place yet."""


# Constructors. Each infers space and shape, or raises ProgramError.


def leaf(name: str, space: Space, shape: Sequence[int], where: Where | None = None) -> Value:
    """An input."""
    return Value("input", (), space, tuple(shape), (("name", name),), where)


def constant(value: float, where: Where | None = None) -> Value:
    """A number."""
    return Value("constant", (), P, (), (("value", float(value)),), where)


def mask(
    space: Space, shape: Sequence[int], rate: float, place: int, where: Where | None = None, *, flipped: bool = False
) -> Value:
    """What dropout multiplies with; masks of vertices are the same seen as sources.

    ``flipped`` ones of arcs are those that the graph with all arcs turned round has without.
    """
    if space not in (D, S, E):
        raise ProgramError(f"dropout of a value {per(space)}: it takes values of vertices, sources or arcs")
    return Value(
        "mask", (), space, tuple(shape), (("rate", float(rate)), ("place", place), ("flipped", flipped)), where
    )


def cast(x: Value, space: Space) -> Value:
    """``x`` seen from the finer ``space``."""
    if x.space is space:
        return x
    if not x.space.over(space):
        raise ProgramError(f"a value {per(x.space)} is none of each {space.value}")
    return Value("cast", (x,), space, x.shape, (), x.where)


def total(x: Value, space: Space, where: Where | None = None) -> Value:
    """The sum of ``x`` over the rows that belong to each of the coarser ``space``."""
    return x if x.space is space else _coarser("total", x, space, where)


def product(x: Value, weight: Value | None = None, *, back: bool = False, where: Where | None = None) -> Value:
    """``x`` (D) times the adjacency with arc weights ``weight`` (E, shape ()), all 1 if None; ``back``: transposed."""
    if x.space is not D or (weight is not None and (weight.space, weight.shape) != (E, ())):
        raise ProgramError(f"product with {_shaped(x)}: it takes rows of vertices, and a number an arc")
    return Value("product", (x,) if weight is None else (x, weight), D, x.shape, (("back", back),), where)


def maximum_of(x: Value, space: Space, where: Where | None = None) -> Value:
    """The largest of each, 0 of none."""
    return _coarser("maximum_of", x, space, where)


def minimum_of(x: Value, space: Space, where: Where | None = None) -> Value:
    """The smallest of each, 0 of none."""
    return _coarser("minimum_of", x, space, where)


def winner(extreme: Value) -> Value:
    """Which row the ``maximum_of`` or ``minimum_of`` ``extreme`` took."""
    return Value("winner", extreme.inputs, extreme.space, extreme.shape, (("of", extreme.op),), extreme.where)


def won(winner: Value) -> Value:
    """1 at the rows that a ``winner`` took."""
    x = winner.inputs[0]
    return Value("won", (cast(winner, x.space),), x.space, x.shape, (), winner.where)


def unary(op: str, x: Value, where: Where | None = None, **attributes: float) -> Value:
    """``op`` of ``UNARY``; leaky_relu takes ``slope``, power takes ``exponent``."""
    assert op in UNARY
    return Value(op, (x,), x.space, x.shape, tuple(sorted(attributes.items())), where)


def binary(op: str, x: Value, y: Value, where: Where | None = None) -> Value:
    """``op`` of ``BINARY``."""
    assert op in BINARY
    return _elementwise(op, (x, y), where)


def where(condition: Value, x: Value, y: Value, at: Where | None = None) -> Value:
    """``x`` where ``condition`` is not 0, else ``y``."""
    return _elementwise("where", (condition, x, y), at)


def stop(x: Value, where: Where | None = None) -> Value:
    """``x``, a constant to autodiff."""
    return Value("stop", (x,), x.space, x.shape, (), where)


def matmul(x: Value, w: Value, where: Where | None = None) -> Value:
    """Contracts the last axis of ``x`` with the first of ``w``."""
    if not x.shape or not w.shape or x.shape[-1] != w.shape[0]:
        turned = x.space in (P, T) and w.shape and w.shape[-1:] == x.shape[:1]
        raise ProgramError(
            f"{_shaped(x)} @ {_shaped(w)}: the last axis of the first and the first of the second differ"
            + "; rows stand on the left: x @ W" * bool(turned)
        )
    space = joined([x, w])
    return Value(
        "matmul", (cast(x, space), w if w.space is P else cast(w, space)), space, x.shape[:-1] + w.shape[1:], (), where
    )


def gram(x: Value, y: Value, space: Space) -> Value:
    """sum of x^T y, [last axis of x, axes of y after those of x's others]; other axes are contracted in pairs."""
    common = joined([x, y])
    lead = x.shape[:-1]
    if y.shape[: len(lead)] != lead:
        raise ProgramError(f"gram of {_shaped(x)} and {_shaped(y)}")
    shape = x.shape[-1:] + y.shape[len(lead) :]
    return Value("gram", (cast(x, common), cast(y, common)), space, shape)


def dot(x: Value, y: Value, where: Where | None = None) -> Value:
    """Inner products over the last axis of both, which have the same number of axes."""
    if not x.shape or len(x.shape) != len(y.shape) or x.shape[-1] != y.shape[-1]:
        raise ProgramError(f"dot of {_shaped(x)} and {_shaped(y)}: their last axes differ")
    space = joined([x, y])
    return Value("dot", (cast(x, space), cast(y, space)), space, broadcast([x.shape, y.shape])[:-1], (), where)


def sum_axis(x: Value, axis: int, where: Where | None = None) -> Value:
    """The sum over one axis, counted from 0."""
    if not 0 <= axis < len(x.shape):
        raise ProgramError(f"axis {axis} of {_shaped(x)}: there is none")
    return Value("sum_axis", (x,), x.space, x.shape[:axis] + x.shape[axis + 1 :], (("axis", axis),), where)


def repeat_axis(x: Value, axis: int, count: int) -> Value:
    """``x`` ``count`` times along a new axis."""
    shape = (*x.shape[:axis], count, *x.shape[axis:])
    return Value("repeat_axis", (x,), x.space, shape, (("axis", axis), ("count", count)), x.where)


def reshape(x: Value, shape: Sequence[int], where: Where | None = None) -> Value:
    """The same entries, in C order."""
    if tuple(shape) == x.shape:
        return x
    if prod(shape) != x.size:
        raise ProgramError(f"{_shaped(x)} as {list(shape)}: {x.size} entries are not {prod(shape)}")
    return Value("reshape", (x,), x.space, tuple(shape), (), where)


def transpose(x: Value) -> Value:
    """Of a matrix that is a parameter, or one of each type."""
    assert x.space in (P, T) and len(x.shape) == 2
    return Value("transpose", (x,), x.space, x.shape[::-1])


def concat(parts: Sequence[Value], where: Where | None = None) -> Value:
    """Side by side along the last axis."""
    if not parts or any(part.shape[:-1] != parts[0].shape[:-1] or not part.shape for part in parts):
        raise ProgramError(f"concat of {', '.join(map(_shaped, parts))}: all axes but the last must agree")
    space = joined(parts)
    shape = (*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))
    return Value("concat", tuple(cast(part, space) for part in parts), space, shape, (), where)


def columns(x: Value, first: int, last: int, where: Where | None = None) -> Value:
    """``first`` to ``last`` of the last axis."""
    if not x.shape or not 0 <= first <= last <= x.shape[-1]:
        raise ProgramError(f"columns {first} to {last} of {_shaped(x)}: there are none")
    return Value("slice", (x,), x.space, (*x.shape[:-1], last - first), (("first", first), ("last", last)), where)


def pad(x: Value, first: int, count: int) -> Value:
    """``x`` from column ``first`` on of ``count``, zeros elsewhere."""
    return Value("pad", (x,), x.space, (*x.shape[:-1], count), (("first", first), ("count", count)))


def by_type(w: Value, where: Where | None = None) -> Value:
    """The first axis of a parameter, a type of arcs each."""
    if w.space is not P or not w.shape:
        raise ProgramError(f"{_shaped(w)} by type: only a parameter with a row for each type can be indexed by a type")
    return Value("by_type", (w,), T, w.shape[1:], (("types", w.shape[0]),), where)


def all_types(x: Value, types: int) -> Value:
    """A parameter with a row for each type."""
    return Value("all_types", (x,), P, (types, *x.shape))


def joined(values: Iterable[Value]) -> Space:
    """The coarsest space in which all ``values`` can be seen: types and targets meet in R, sources and others in E."""
    spaces = {value.space for value in values}
    for space in (P, T, D, S, R, E):
        if all(each is space or space in _MEET[each] for each in spaces):
            return space
    raise AssertionError("everything is over E")


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of ``shapes``, aligned at their first axes; an axis of length 1 takes any length.

    Raises:
        ProgramError: they have none.
    """
    longest = max(shapes, key=len)
    result = list(longest)
    for shape in shapes:
        for axis, length in enumerate(shape):
            if length != result[axis] and 1 not in (length, result[axis]):
                told = " and ".join(str(list(each)) for each in shapes)
                raise ProgramError(f"shapes {told} do not fit: axes are aligned at the first, lengths equal or 1")
            result[axis] = max(length, result[axis]) if 0 not in (length, result[axis]) else 0
    return tuple(result)


def walk(values: Iterable[Value], ends: Callable[[Value], bool] = lambda _: False) -> Iterator[Value]:
    """``values`` and all that they are made of, operands first, each once; of one that ``ends``, no operands."""
    done: set[Value] = set()
    stack = [(value, False) for value in reversed(list(values))]
    while stack:
        value, ready = stack.pop()
        if value in done:
            continue
        if ready or ends(value):
            done.add(value)
            yield value
        else:
            stack.append((value, True))
            stack += [(operand, False) for operand in reversed(value.inputs)]


def _coarser(op: str, x: Value, space: Space, where: Where | None) -> Value:
    if x.space is space or not space.over(x.space):
        raise ProgramError(f"a value {per(x.space)} cannot be aggregated to one {per(space)}")
    return Value(op, (x,), space, x.shape, (), where)


def _elementwise(op: str, operands: tuple[Value, ...], where: Where | None) -> Value:
    space = joined(operands)
    return Value(op, tuple(cast(x, space) for x in operands), space, broadcast([x.shape for x in operands]), (), where)


def _shaped(x: Value) -> str:
    return f"{list(x.shape)} {per(x.space)}"


def per(space: Space) -> str:
    """What a value of ``space`` is one for, in words."""
    return "for all (a parameter)" if space is P else "an arc" if space is E else f"a {space.value}"
