"""Symbols that a vertex program computes with: values, vertices, arcs, types and loops.

A program is a Python function that runs on symbols. A loop over ``v.innbs``, ``v.inedges``, ``v.inedges[t]`` or
``v.types`` yields two stand-ins for all elements, and every symbol records the stand-ins it depends on. Both must give
the same result, and only aggregations may combine them. This detects everything that depends on the order or number of
neighbours, or on single neighbours (Python's own sum and max, enumerate, a running sum, an index). The function then
runs a second time with three stand-ins and must build nothing new, which detects programs that only count them (len).
Equal values are built once, so both checks compare objects.
"""

from __future__ import annotations

import difflib
import linecache
import numbers
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Never

from mgg.errors import InputError
from mgg.vertex import ir
from mgg.vertex.ir import D, E, P, R, S, Space, Value, Where


class VertexProgramError(InputError):
    """A mistake in a vertex program or its arguments; the message is one line with file, line and what to do."""


@dataclass(frozen=True)
class Loop:
    """A loop that a program may run; an aggregation over it goes from the space ``fine`` to ``coarse``."""

    name: str
    fine: Space
    coarse: Space


ARCS = Loop("v.innbs or v.inedges", E, D)
ARCS_OF_TYPE = Loop("v.inedges[t]", E, R)
TYPES = Loop("v.types", R, D)

#: The stand-in of each loop that something depends on.
At = Mapping[Loop, int]

#: Files whose frames are not the user's code.
OURS = {(lambda: None).__code__.co_filename}


class Tracing:
    """The state of one ``Program.trace``."""

    def __init__(
        self, features: Mapping[str, Value], arc_features: Mapping[str, Value], loops: bool, types: int, training: bool
    ) -> None:
        self.features, self.arc_features = features, arc_features
        self.loops, self.types, self.training = loops, types, training
        self.vertex = Vertex()
        self.programs: list[object] = []
        self.inputs: dict[str, Value] = {}
        self.parameters: dict[str, Value] = {}
        self.rates: list[float] = []
        self._places: dict[tuple[object, ...], int] = {}
        self.drawn: Counter[tuple[object, ...]] = Counter()
        self.kept: list[Kept] = []
        self.stand_ins = 2
        self.again = False
        self._built: dict[tuple[object, ...], Value] = {}
        self._known: set[Value] = set()

    def build(self, constructor: Callable[..., Value], *arguments: Any, **attributes: Any) -> Value:
        """Return the result of a constructor of ``ir``, built once; report its mistakes at the user's line."""
        try:
            value = constructor(*arguments, **attributes)
        except ir.ProgramError as error:
            raise mistake(str(error)) from error
        return self._once(value)

    def _once(self, value: Value) -> Value:
        if value in self._known:
            return value
        inputs = tuple(map(self._once, value.inputs))
        key = (value.op, inputs, value.space, value.shape, value.attributes)
        if key not in self._built:
            if self.again:
                raise mistake(
                    f"this depends on how often a loop of Python's ran, or changes when it is done again{_builtin()}:"
                    " a program sees stand-ins of its neighbours; use V.sum and its like, and v.degree"
                )
            self._built[key] = replace(value, inputs=inputs)
            self._known.add(self._built[key])
        return self._built[key]

    def read(self, name: str, leaf: Value) -> Value:
        """Record and return a leaf that the program reads."""
        if name in self.parameters:
            raise mistake(f"{name} is the built-in .{name} and a parameter: rename the parameter")
        self.inputs[name] = self._once(leaf)
        return self.inputs[name]

    def dropout(self, x: Symbol, rate: float) -> int:
        """Return the place of a dropout: the same for all stand-ins of a loop, another one for every other call."""
        call = (x.value, rate, frozenset(x.at.items()))
        self.drawn[call] += 1
        key = (x.value, rate, frozenset(x.at), self.drawn[call])
        if key not in self._places:
            self._places[key] = len(self.rates)
            self.rates.append(rate)
        return self._places[key]


running: ContextVar[Tracing | None] = ContextVar("tracing", default=None)


def tracing() -> Tracing:
    """Return the current trace."""
    current = running.get()
    if current is None:
        raise mistake("functions of V work inside a vertex program: decorate it with @V.program and call its trace()")
    return current


def here() -> Where:
    """Return the line of the user's code that is running."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in OURS and frame.f_back is not None:
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno)


def place(file: str, line: int) -> Where:
    """Return a line of a file, with its text."""
    return Where(file, line, linecache.getline(file, line).strip())


def mistake(what: str, where: Where | None = None) -> VertexProgramError:
    """Return an error about the user's line, or about ``where``."""
    where = where or here()
    text = f" (in: {where.text})" if where.text else ""
    return VertexProgramError(f"{where.file}, line {where.line}: {' '.join(what.split())}{text}")


class Symbol:
    """A value of a program: one array of shape ``shape`` per vertex, source, arc or type, or one for all."""

    __slots__ = ("at", "value")

    def __init__(self, value: Value, at: At | None = None) -> None:
        self.value = value
        self.at = at or {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each array."""
        return self.value.shape

    def __repr__(self) -> str:
        return f"<{self.value.op} {list(self.shape)} {ir.per(self.value.space)}>"

    # fmt: off
    def __add__(self, y: Any) -> Symbol: return binary("add", self, y)
    def __radd__(self, y: Any) -> Symbol: return binary("add", y, self)
    def __sub__(self, y: Any) -> Symbol: return binary("subtract", self, y)
    def __rsub__(self, y: Any) -> Symbol: return binary("subtract", y, self)
    def __mul__(self, y: Any) -> Symbol: return binary("multiply", self, y)
    def __rmul__(self, y: Any) -> Symbol: return binary("multiply", y, self)
    def __truediv__(self, y: Any) -> Symbol: return binary("divide", self, y)
    def __rtruediv__(self, y: Any) -> Symbol: return binary("divide", y, self)
    def __matmul__(self, y: Any) -> Symbol: return apply(ir.matmul, self, lift(y))
    def __rmatmul__(self, y: Any) -> Symbol: return apply(ir.matmul, lift(y), self)
    def __neg__(self) -> Symbol: return unary("negative", self)
    def __pos__(self) -> Symbol: return self
    def __abs__(self) -> Symbol: return unary("abs", self)
    def __gt__(self, y: Any) -> Symbol: return binary("greater", self, y)
    def __lt__(self, y: Any) -> Symbol: return binary("greater", y, self)
    def __ge__(self, y: Any) -> Symbol: return binary("add", self > y, binary("equal", self, y))
    def __le__(self, y: Any) -> Symbol: return binary("add", self < y, binary("equal", self, y))
    def __eq__(self, y: object) -> Any: return NotImplemented if _no_value(y) else binary("equal", self, y)
    def __ne__(self, y: object) -> Any: return NotImplemented if _no_value(y) else 1 - (self == y)
    __hash__ = None  # type: ignore[assignment]
    # fmt: on

    def __pow__(self, y: Any) -> Symbol:
        if not isinstance(y, numbers.Real):
            raise mistake("an exponent is a number: write V.exp(y * V.log(x)) for x ** y")
        return unary("power", self, exponent=float(y))

    def __rpow__(self, y: Any) -> Symbol:
        raise mistake("an exponent is a number: write V.exp(x * V.log(y)) for y ** x")

    def __getitem__(self, index: object) -> Symbol:
        if isinstance(index, numbers.Integral | slice) and self.value.space is P and self.shape:
            return self._part(index)
        if not isinstance(index, Type):
            raise mistake(
                "the arrays of a program have no index but a type of arcs: W[t] for t in v.types, W[e.type]; no data;"
                " parameters take numbers and slices, W[0], W[1:]"
            )
        types = tracing().types
        if self.value.space is P and self.shape[:1] != (types,):
            raise mistake(
                f"{list(self.shape)} by type of arcs: the first axis must have the {types} types of the graph"
            )
        return Symbol(apply(ir.by_type, self).value, meeting([self, index]))

    def _part(self, index: Any) -> Symbol:
        """Take one entry along the first axis of a parameter, [other axes], or consecutive ones, [entries, others]."""
        count, *rest = self.shape
        if isinstance(index, slice):
            first, last, step = index.indices(count)
            shape = (last - first, *rest)
        else:
            first, last, step, shape = index % count, index % count + 1, 1, tuple(rest)
            if not -count <= index < count:
                raise mistake(f"entry {index} of {list(self.shape)}: the first axis has {count}")
        if step != 1 or first >= last:
            raise mistake(f"entries {first}:{last}:{step} of {list(self.shape)}: some of {count} in a row can be taken")
        flat = apply(ir.reshape, self, (count * prod(rest),))
        return apply(ir.reshape, apply(ir.columns, flat, first * prod(rest), last * prod(rest)), shape)

    def __bool__(self) -> Never:
        raise mistake(
            "if, while, and, or, not, a < x < b, max() and min() need a truth, and a value has one for each vertex or"
            f" arc{_builtin()}: choose by V.where(x > 0, a, b), combine conditions by * and V.maximum"
        )

    def _number(self, *_: object) -> Never:
        raise mistake("int(), float(), range() and the module math need a number, and a value has many" + _instead())

    __int__ = __float__ = __index__ = __complex__ = __round__ = _number

    def _many(self, *_: object) -> Never:
        raise mistake("a value is no sequence to iterate, unpack, count or search: loop over v.innbs or v.inedges")

    __iter__ = __len__ = __contains__ = _many

    def __array__(self, *_: object, **__: object) -> Never:
        raise mistake("NumPy takes no values of a program" + _instead())

    def __array_function__(self, *_: object) -> Never:
        self.__array__()

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **_: object) -> Any:
        # NumPy numbers on the left pass on their operator; in comparisons they come as arrays without axes.
        name = _NUMPY.get(function.__name__)
        left = operands[0]
        number = not isinstance(left, Symbol) and getattr(left, "ndim", 0) == 0
        if name is None or method != "__call__" or len(operands) != 2 or not number:
            self.__array__()
        return getattr(lift(float(left)), str(name))(operands[1])

    def __getattr__(self, name: str) -> Never:
        if name.startswith("__"):
            raise AttributeError(name)
        raise mistake(f"a value has no .{name}, only .shape: use the functions of V and operators")


_NUMPY = {
    "add": "__add__", "subtract": "__sub__", "multiply": "__mul__", "divide": "__truediv__", "greater": "__gt__",
    "less": "__lt__", "greater_equal": "__ge__", "less_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
    "power": "__pow__",
}  # fmt: skip


def _instead() -> str:
    found = re.search(r"\b(?:math|np|numpy)\.(\w+)\s*\(", here().text)
    known = found is not None and found[1] in vars(sys.modules["mgg.vertex"]).get("__all__", ())
    return f": use V.{found[1]}" if found and known else ": use the functions of V, such as V.exp and V.where"


def _builtin() -> str:
    """Return a hint what to use instead of the built-in function that the user's line calls."""
    found = re.search(r"(?<![\w.])(sum|max|min|any|all|sorted|len|enumerate)\s*\(", here().text)
    instead = {"sum": "V.sum", "max": "V.max or V.maximum", "min": "V.min or V.minimum", "len": "v.degree"}
    return "" if found is None else f", by Python's {found[1]}() (use {instead.get(found[1], 'V.sum and its like')})"


def _no_value(y: object) -> bool:
    return y is None or isinstance(y, str)


def named(x: object) -> str:
    """Return the name of the type of ``x``, with its article."""
    name = type(x).__name__
    return "None" if x is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


def lift(x: object) -> Symbol:
    """Return a number or symbol as a symbol.

    Raises:
        VertexProgramError: ``x`` is neither.
    """
    if isinstance(x, Symbol):
        return x
    if isinstance(x, numbers.Real):
        return Symbol(tracing().build(ir.constant, float(x), here()))
    if isinstance(x, Vertex | Arc | Type | Neighbours | Types):
        raise mistake("a vertex, arc, type or loop is no value: name a feature of it, such as u.x")
    if isinstance(x, Iterable) and not hasattr(x, "__array__") and not isinstance(x, str | bytes):
        raise mistake("a list is no value: write [f(x) for x in list], or aggregate it by V.sum and its like")
    raise mistake(f"{named(x)} is no value of a program: arrays come in as features and parameters")


def meeting(symbols: Iterable[Symbol | Type]) -> At:
    """Return the stand-ins that a result of ``symbols`` depends on.

    Raises:
        VertexProgramError: they depend on several stand-ins of one loop, or on loops that cannot be combined.
    """
    at: dict[Loop, int] = {}
    for symbol in symbols:
        for loop, number in symbol.at.items():
            if at.setdefault(loop, number) != number:
                raise mistake(
                    f"values of two elements of {loop.name} meet{_builtin()}: V.sum, V.mean, V.max, V.min, V.std and"
                    " V.softmax alone see several; no index, no second loop"
                )
    if ARCS in at and len(at) > 1:
        raise mistake(
            "values of different neighbourhoods meet: one of v.innbs or v.inedges, one of v.types or v.inedges[t];"
            " aggregate one of them first"
        )
    return at


def apply(constructor: Callable[..., Value], *operands: Any, **attributes: Any) -> Symbol:
    """Apply a constructor of ``ir`` to symbols and other arguments, at the user's line."""
    at = meeting(x for x in operands if isinstance(x, Symbol))
    arguments = [x.value if isinstance(x, Symbol) else x for x in operands]
    return Symbol(tracing().build(constructor, *arguments, here(), **attributes), at)


def unary(op: str, x: object, **attributes: float) -> Symbol:
    """Apply an elementwise operation of one operand."""
    return apply(lambda value, where: ir.unary(op, value, where, **attributes), lift(x))


def binary(op: str, x: object, y: object) -> Symbol:
    """Apply an elementwise operation of two operands."""
    return apply(ir.binary, op, lift(x), lift(y))


class Type:
    """A type of arcs, which indexes parameters with a row per type."""

    def __init__(self, at: At) -> None:
        self.at = at


class Vertex:
    """The vertex itself, or the source of an arc (if ``at`` is not empty)."""

    def __init__(self, at: At | None = None) -> None:
        self.at = at or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        run = tracing()
        if name in ("innbs", "inedges", "types"):
            if self.at:
                raise mistake(f".{name} of a neighbour: a program sees one step; a second layer makes a second step")
            return Types() if name == "types" else Neighbours(name)
        if name == "degree":
            value = run.build(ir.total, run.build(ir.cast, run.build(ir.constant, 1), E), D, here())
        elif name in run.features:
            value = run.read(name, run.features[name])
        elif name in ("norm", "scaler"):
            value = run.read(name, ir.leaf(name, D, (), here()))
        else:
            raise _unknown(name, "vertices", [*run.features, "degree", "norm", "scaler", "innbs", "inedges", "types"])
        return Symbol(run.build(ir.cast, value, S) if self.at else value, self.at)


class Arc:
    """An arc that ends at the vertex."""

    def __init__(self, at: At, of: Type | None) -> None:
        self.at, self._of = at, of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        run = tracing()
        if name == "src":
            return Vertex(self.at)
        if name == "dst":
            return run.vertex
        if name == "type":
            _typed()
            return self._of or Type(self.at)
        if name == "weight":
            return Symbol(run.read(name, ir.leaf("weight", E, (), here())), self.at)
        if name not in run.arc_features and name in run.features:
            raise mistake(f"arcs have no {name}: of their ends it is e.src.{name} and e.dst.{name}")
        if name not in run.arc_features:
            raise _unknown(name, "arcs", [*run.arc_features, "src", "dst", "weight", "type"])
        if run.loops:
            raise mistake(
                f"with loops=True, the arc of a vertex to itself has no {name}: leave loops out and add its term"
            )
        return Symbol(run.read(name, run.arc_features[name]), self.at)


def _unknown(name: str, of: str, names: Sequence[str]) -> VertexProgramError:
    near = difflib.get_close_matches(name, names, 3, 0.5)
    hint = f"do you mean {' or '.join(near)}? " if near else ""
    return mistake(f"{of} have no {name}: {hint}there are {', '.join(names)}")


def _typed() -> None:
    if not tracing().types:
        raise mistake("the graph has no types of arcs: use v.innbs or v.inedges, or a graph that has")
    if tracing().loops:
        raise mistake("with loops=True, the arc of a vertex to itself has no type: leave loops out and add its term")


class Neighbours:
    """In-neighbours or in-arcs, all of them or those of one type."""

    def __init__(self, name: str, of: Type | None = None) -> None:
        self._name, self._of = name, of

    def __iter__(self) -> Iterator[Any]:
        for number in range(tracing().stand_ins):
            at: At = {ARCS: number} if self._of is None else {**self._of.at, ARCS_OF_TYPE: number}
            yield Vertex(at) if self._name == "innbs" else Arc(at, self._of)

    def __getitem__(self, of: object) -> Neighbours:
        if self._name != "inedges" or self._of is not None or not isinstance(of, Type) or TYPES not in of.at:
            raise mistake(
                "neighbours have no numbers: loop over v.innbs or v.inedges; v.inedges[t] takes a t of v.types"
            )
        return Neighbours(self._name, of)

    def __len__(self) -> Never:
        raise mistake("len() and truth of the neighbours: how many there are is v.degree, a value")


class Types:
    """The types of the arcs that end at the vertex."""

    def __iter__(self) -> Iterator[Type]:
        _typed()
        yield from (Type({TYPES: number}) for number in range(tracing().stand_ins))

    def __len__(self) -> Never:
        raise mistake("len() and truth of the types: they differ from vertex to vertex; loop over v.types")


@dataclass(frozen=True)
class Kept:
    """The result of ``V.keep``: an output per arc."""

    value: Value
    where: Where
