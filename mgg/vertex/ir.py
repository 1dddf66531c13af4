"""The graph-aware intermediate representation of vertex programs (Seastar, EuroSys'21, section 5.2).

A program becomes a graph of values. A value has one array of shape ``shape`` per row of its ``space``:

    P  a single row (parameters)               T  one row per arc type
    D  one row per vertex of this PE           S  one row per source of this PE's arcs, halo included
    E  one row per arc                         R  one row per run: the arcs of one type that end at one vertex

Maps between the spaces order them. Every arc has a source (E to S), a run (E to R), a target (E to D) and a type
(E to T). Every run has a target and a type, every source is a vertex of some PE (S to D), and every row belongs to the
one row of P. ``cast`` follows a map backwards, to the finer space: S to E reads the row of an arc's source; D to S
fetches a halo. ``total`` sums along a map, to the coarser space: E to D aggregates over in-arcs, E to S over out-arcs,
and S to D returns the gradients of halo rows. The two are adjoint, which is all that autodiff has to know about graphs.
Seastar's types S, D, E and P are these spaces. Its rule that an input's type decides where the gradient goes follows.

The operands of all other operations share one space. The constructors here cast them to the coarsest space that is
finer than all of theirs; where a vertex meets a source, the vertex is the target of the arc between them (``joined``).
Shapes are aligned at their first axis, so that per-head numbers meet per-head rows: [heads] and [heads, columns].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any


class Space(Enum):
    """A set of rows; a value has one array per row of its space."""

    P = "all"
    T = "type of arcs"
    D = "vertex"
    S = "source"
    R = "run"
    E = "arc"

    def __repr__(self) -> str:
        return self.name

    def over(self, finer: Space) -> bool:
        """Return whether ``finer`` is this space, or each of its rows belongs to a row of this space."""
        return finer is self or finer in _FINER[self]


P, T, D, S, R, E = Space.P, Space.T, Space.D, Space.S, Space.R, Space.E
#: The spaces that map to each space. D over E means the target of an arc; the arc's source is reached through S.
_FINER = {P: (T, D, S, R, E), T: (R, E), D: (S, R, E), S: (E,), R: (E,), E: ()}
#: The spaces in which operands can meet. D and S do not meet in S: a vertex combined with a source is the arc's target.
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
        op: the operation, a key of ``OPERATIONS``.
        inputs: the operands, as described in ``OPERATIONS``.
        space: the space whose rows have an array each.
        shape: the shape of these arrays.
        attributes: further arguments of the operation by name; hashable.
        where: the place in the user's program; does not affect the value.
    """

    op: str
    inputs: tuple[Value, ...]
    space: Space
    shape: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    where: Where | None = field(default=None, repr=False)

    def __getitem__(self, name: str) -> Any:
        """Return the attribute ``name``."""
        return dict(self.attributes)[name]

    @property
    def size(self) -> int:
        """Entries per row."""
        return prod(self.shape)


#: Elementwise operations of one operand; further numbers are attributes.
UNARY = ("negative", "reciprocal", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "leaky_relu", "elu", "abs", "power")
#: Elementwise operations of two operands; the comparisons give 1 or 0 and have no gradient.
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "greater", "equal")

#: All operations and what they compute.
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
    """An invalid value; the message says why, in terms of shapes and spaces, but does not name a place."""


# Constructors. Each infers the space and shape, or raises ProgramError.


def leaf(name: str, space: Space, shape: Sequence[int], where: Where | None = None) -> Value:
    """Return an input."""
    return Value("input", (), space, tuple(shape), (("name", name),), where)


def constant(value: float, where: Where | None = None) -> Value:
    """Return a constant number."""
    return Value("constant", (), P, (), (("value", float(value)),), where)


def mask(
    space: Space, shape: Sequence[int], rate: float, place: int, where: Where | None = None, *, flipped: bool = False
) -> Value:
    """Return the factors of a dropout; a vertex and its copies as a source share one mask.

    ``flipped`` masks of arcs are those that unflipped masks give on the graph with all arcs reversed.
    """
    if space not in (D, S, E):
        raise ProgramError(f"dropout of a value {per(space)}: it takes values of vertices, sources or arcs")
    return Value(
        "mask", (), space, tuple(shape), (("rate", float(rate)), ("place", place), ("flipped", flipped)), where
    )


def cast(x: Value, space: Space) -> Value:
    """Return ``x`` repeated over the finer ``space``."""
    if x.space is space:
        return x
    if not x.space.over(space):
        raise ProgramError(f"a value {per(x.space)} is none of each {space.value}")
    return Value("cast", (x,), space, x.shape, (), x.where)


def total(x: Value, space: Space, where: Where | None = None) -> Value:
    """Return the sums of the rows of ``x`` that belong to each row of the coarser ``space``."""
    return x if x.space is space else _coarser("total", x, space, where)


def product(x: Value, weight: Value | None = None, *, back: bool = False, where: Where | None = None) -> Value:
    """Multiply ``x`` (D) by the adjacency with weights ``weight`` (E, shape ()); None: all 1; ``back``: transposed."""
    if x.space is not D or (weight is not None and (weight.space, weight.shape) != (E, ())):
        raise ProgramError(f"product with {_shaped(x)}: it takes rows of vertices, and a number an arc")
    return Value("product", (x,) if weight is None else (x, weight), D, x.shape, (("back", back),), where)


def maximum_of(x: Value, space: Space, where: Where | None = None) -> Value:
    """Return the maximum of the rows of ``x`` that belong to each row of ``space``, 0 if there are none."""
    return _coarser("maximum_of", x, space, where)


def minimum_of(x: Value, space: Space, where: Where | None = None) -> Value:
    """Return the minimum of the rows of ``x`` that belong to each row of ``space``, 0 if there are none."""
    return _coarser("minimum_of", x, space, where)


def winner(extreme: Value) -> Value:
    """Return which row the ``maximum_of`` or ``minimum_of`` ``extreme`` took."""
    return Value("winner", extreme.inputs, extreme.space, extreme.shape, (("of", extreme.op),), extreme.where)


def won(winner: Value) -> Value:
    """Return 1 at the rows that ``winner`` took, else 0."""
    x = winner.inputs[0]
    return Value("won", (cast(winner, x.space),), x.space, x.shape, (), winner.where)


def unary(op: str, x: Value, where: Where | None = None, **attributes: float) -> Value:
    """Apply ``op`` of ``UNARY``; leaky_relu takes ``slope``, power takes ``exponent``."""
    assert op in UNARY
    return Value(op, (x,), x.space, x.shape, tuple(sorted(attributes.items())), where)


def binary(op: str, x: Value, y: Value, where: Where | None = None) -> Value:
    """Apply ``op`` of ``BINARY``."""
    assert op in BINARY
    return _elementwise(op, (x, y), where)


def where(condition: Value, x: Value, y: Value, at: Where | None = None) -> Value:
    """Return ``x`` where ``condition`` is not 0, else ``y``."""
    return _elementwise("where", (condition, x, y), at)


def stop(x: Value, where: Where | None = None) -> Value:
    """Return ``x`` as a constant to autodiff."""
    return Value("stop", (x,), x.space, x.shape, (), where)


def matmul(x: Value, w: Value, where: Where | None = None) -> Value:
    """Contract the last axis of ``x`` with the first of ``w``."""
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
    """Return the sum of x^T y over the rows that belong to each row of ``space``.

    ``y`` begins with the axes of ``x`` but its last one; these are contracted in pairs. The shape is [last axis of x,
    other axes of y].
    """
    common = joined([x, y])
    lead = x.shape[:-1]
    if y.shape[: len(lead)] != lead:
        raise ProgramError(f"gram of {_shaped(x)} and {_shaped(y)}")
    shape = x.shape[-1:] + y.shape[len(lead) :]
    return Value("gram", (cast(x, common), cast(y, common)), space, shape)


def dot(x: Value, y: Value, where: Where | None = None) -> Value:
    """Return the inner products over the last axis of both operands, which have the same number of axes."""
    if not x.shape or len(x.shape) != len(y.shape) or x.shape[-1] != y.shape[-1]:
        raise ProgramError(f"dot of {_shaped(x)} and {_shaped(y)}: their last axes differ")
    space = joined([x, y])
    return Value("dot", (cast(x, space), cast(y, space)), space, broadcast([x.shape, y.shape])[:-1], (), where)


def sum_axis(x: Value, axis: int, where: Where | None = None) -> Value:
    """Sum over one axis, counted from 0."""
    if not 0 <= axis < len(x.shape):
        raise ProgramError(f"axis {axis} of {_shaped(x)}: there is none")
    return Value("sum_axis", (x,), x.space, x.shape[:axis] + x.shape[axis + 1 :], (("axis", axis),), where)


def repeat_axis(x: Value, axis: int, count: int) -> Value:
    """Repeat ``x`` ``count`` times along a new axis."""
    shape = (*x.shape[:axis], count, *x.shape[axis:])
    return Value("repeat_axis", (x,), x.space, shape, (("axis", axis), ("count", count)), x.where)


def reshape(x: Value, shape: Sequence[int], where: Where | None = None) -> Value:
    """Return the same entries in another shape, in C order."""
    if tuple(shape) == x.shape:
        return x
    if prod(shape) != x.size:
        raise ProgramError(f"{_shaped(x)} as {list(shape)}: {x.size} entries are not {prod(shape)}")
    return Value("reshape", (x,), x.space, tuple(shape), (), where)


def transpose(x: Value) -> Value:
    """Transpose a matrix that is a parameter or one per arc type."""
    assert x.space in (P, T) and len(x.shape) == 2
    return Value("transpose", (x,), x.space, x.shape[::-1])


def concat(parts: Sequence[Value], where: Where | None = None) -> Value:
    """Concatenate along the last axis."""
    if not parts or any(part.shape[:-1] != parts[0].shape[:-1] or not part.shape for part in parts):
        raise ProgramError(f"concat of {', '.join(map(_shaped, parts))}: all axes but the last must agree")
    space = joined(parts)
    shape = (*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))
    return Value("concat", tuple(cast(part, space) for part in parts), space, shape, (), where)


def columns(x: Value, first: int, last: int, where: Where | None = None) -> Value:
    """Return entries ``first`` to ``last`` of the last axis."""
    if not x.shape or not 0 <= first <= last <= x.shape[-1]:
        raise ProgramError(f"columns {first} to {last} of {_shaped(x)}: there are none")
    return Value("slice", (x,), x.space, (*x.shape[:-1], last - first), (("first", first), ("last", last)), where)


def pad(x: Value, first: int, count: int) -> Value:
    """Return ``count`` columns: ``x`` from column ``first`` on, and zeros."""
    return Value("pad", (x,), x.space, (*x.shape[:-1], count), (("first", first), ("count", count)))


def by_type(w: Value, where: Where | None = None) -> Value:
    """Turn the first axis of a parameter into the arc types (P to T)."""
    if w.space is not P or not w.shape:
        raise ProgramError(f"{_shaped(w)} by type: only a parameter with a row for each type can be indexed by a type")
    return Value("by_type", (w,), T, w.shape[1:], (("types", w.shape[0]),), where)


def all_types(x: Value, types: int) -> Value:
    """Turn a value per arc type into a parameter with a row per type (T to P)."""
    return Value("all_types", (x,), P, (types, *x.shape))


def joined(values: Iterable[Value]) -> Space:
    """Return the coarsest space common to ``values``: types and targets meet in R, sources and others in E."""
    spaces = {value.space for value in values}
    for space in (P, T, D, S, R, E):
        if all(each is space or space in _MEET[each] for each in spaces):
            return space
    raise AssertionError("everything is over E")


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common shape of ``shapes``, aligned at their first axes; an axis of length 1 takes any length.

    Raises:
        ProgramError: the shapes have no common shape.
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
    """Yield ``values`` and all they are made of, each once, operands first; stop below values for which ``ends``."""
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
    """Return in words the rows of ``space``."""
    return "for all (a parameter)" if space is P else "an arc" if space is E else f"a {space.value}"
