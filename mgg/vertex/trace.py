"""Trace vertex programs: turn a Python function of one vertex into a graph of values (``mgg.vertex.ir``)."""

from __future__ import annotations

import inspect
import linecache
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, overload

from mgg.vertex import ir
from mgg.vertex.ir import D, E, P, Value
from mgg.vertex.symbols import (
    OURS,
    Kept,
    Symbol,
    Tracing,
    Vertex,
    VertexProgramError,
    mistake,
    named,
    place,
    running,
    tracing,
)

OURS.add((lambda: None).__code__.co_filename)


#: Inputs that every program has; they are not trained.
BUILT_IN = ("norm", "scaler", "weight")


@dataclass(frozen=True)
class Trace:
    """A traced program.

    Attributes:
        name: the program's name.
        file: the file that defines the program.
        line: the first line of its definition.
        loops: whether every vertex has an arc to itself, in addition to the arcs of the graph.
        types: number of arc types; 0 if the graph has no types.
        training: whether dropout is active.
        outputs: the vertex outputs (D), then the values passed to ``V.keep`` (E).
        inputs: leaves that the program reads, by name in the order of first use: features of vertices (D) and arcs (E),
            and the built-in inputs ``norm`` and ``scaler`` (D) and ``weight`` (E), which have shape ().
        parameters: leaves (P) by name, in the order of the signature, even if unread; numbers become constants.
        dropouts: the rate of each dropout, indexed by the dropout's place.
    """

    name: str
    file: str
    line: int
    loops: bool
    types: int
    training: bool
    outputs: tuple[Value, ...]
    inputs: dict[str, Value]
    parameters: dict[str, Value]
    dropouts: tuple[float, ...]


class Program:
    """A vertex program, made by the decorator ``program``.

    Attributes:
        name: the function's name.
        where: the place of its ``def``.
        names: its parameter names, without the vertex.
        loops: whether every vertex gets an arc to itself, of weight 1.
    """

    def __init__(self, function: Callable[..., object], loops: bool) -> None:
        if not isinstance(function, FunctionType):
            raise mistake("@V.program decorates a function of a vertex and parameters")
        code = function.__code__
        line = code.co_firstlineno
        while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
            line += 1
        self.where = place(code.co_filename, line)
        self.name, self.loops, self._function = function.__name__, loops, function
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters:
            raise mistake("a program takes the vertex first: def f(v, ...)", self.where)
        for parameter in parameters:
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
                raise mistake(
                    f"{parameter}: a program takes the vertex and plain named parameters, no *, / or default value;"
                    " trace() is given all of them",
                    self.where,
                )
        self.names = [parameter.name for parameter in parameters[1:]]

    def __call__(self, v: object, *arguments: object, **named: object) -> object:
        """Inline this program into the program that calls it."""
        run = tracing()
        if self in run.programs:
            raise mistake(f"{self.name} calls itself: nothing ends that, for a program has no conditions on data")
        if not isinstance(v, Vertex) or v.at:
            raise mistake(f"{self.name} takes the vertex itself first: a program sees one step")
        if self.loops != run.loops:
            raise mistake(
                f"{self.name} has loops={self.loops}, the program that calls it loops={run.loops}: they must agree"
            )
        run.programs.append(self)
        result = self._function(v, *arguments, **named)
        run.programs.pop()
        return result

    def trace(
        self,
        inputs: Mapping[str, Sequence[int]],
        parameters: Mapping[str, Any],
        *,
        arc_inputs: Mapping[str, Sequence[int]] | None = None,
        types: int = 0,
        training: bool = True,
    ) -> Trace:
        """Return the program as a graph of values.

        Args:
            inputs: shapes of the vertex features by name: ``{"x": (16,)}``.
            parameters: for each parameter of the function by name, a shape (a tuple), or a number, a string or None,
                which is passed to the function unchanged.
            arc_inputs: shapes of the arc features by name.
            types: number of arc types in the graph; 0 if arcs have no types.
            training: whether dropout is active.

        Raises:
            VertexProgramError: the program has a mistake, or the names and shapes do not fit it.
        """
        arc_inputs = arc_inputs or {}
        self._check(inputs, arc_inputs, parameters)
        run = Tracing(
            {name: ir.leaf(name, D, self._shape(name, shape)) for name, shape in inputs.items()},
            {name: ir.leaf(name, E, self._shape(name, shape)) for name, shape in arc_inputs.items()},
            self.loops,
            types,
            training,
        )
        arguments: list[object] = []
        for name in self.names:
            given = parameters[name]
            if isinstance(given, tuple | list):
                run.parameters[name] = run.build(ir.leaf, name, P, self._shape(name, given))
                given = Symbol(run.parameters[name])
            arguments.append(given)
        token = running.set(run)
        try:
            outputs = self._run(run, arguments)
            run.stand_ins, run.again = 3, True
            run.drawn.clear()
            if self._run(run, arguments) != outputs:
                raise mistake("its result changes when it is traced again: what does it depend on?", self.where)
        finally:
            running.reset(token)
        return Trace(
            name=self.name,
            file=self.where.file,
            line=self.where.line,
            loops=self.loops,
            types=types,
            training=training,
            outputs=outputs,
            inputs=run.inputs,
            parameters=run.parameters,
            dropouts=tuple(run.rates),
        )

    def _check(
        self, inputs: Mapping[str, object], arcs: Mapping[str, object], parameters: Mapping[str, object]
    ) -> None:
        for name in self.names:
            if name not in parameters:
                raise self._wrong(f"parameter {name} is not given: a shape, a number, a string or None")
            if not (parameters[name] is None or isinstance(parameters[name], tuple | list | numbers.Number | str)):
                raise self._wrong(f"parameter {name} is {named(parameters[name])}: give a shape or a number")
        for name in parameters:
            if name not in self.names:
                raise self._wrong(f"there is no parameter {name}: there are {', '.join(self.names) or 'none'}")
        reserved = {"innbs", "inedges", "types", "degree", "src", "dst", "weight", "type"}
        for name in [*inputs, *arcs]:
            if name in reserved:
                raise self._wrong(f"a feature named {name}: that is built in; rename the feature")
            if name in self.names or (name in inputs and name in arcs):
                raise self._wrong(f"{name} names two of: a feature of vertices, one of arcs, a parameter; rename one")

    def _shape(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        if not isinstance(shape, tuple | list) or any(not isinstance(n, numbers.Integral) or n < 1 for n in shape):
            lacks = isinstance(shape, tuple | list) and 0 in shape
            raise self._wrong(
                f"shape {shape!r} of {name}: it is a tuple of whole numbers from 1 on, () for one number"
                + "; 0 is what sizes has of what the graph lacks, types of arcs for example" * lacks
            )
        return tuple(map(int, shape))

    def _wrong(self, what: str) -> VertexProgramError:
        return mistake(f"program {self.name}: {what}", self.where)

    def _run(self, run: Tracing, arguments: list[object]) -> tuple[Value, ...]:
        run.programs, run.kept = [self], []
        try:
            result = self._function(run.vertex, *arguments)
        except VertexProgramError:
            raise
        except Exception as error:
            at = self.where
            trace = error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_filename not in OURS:
                    at = place(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
                trace = trace.tb_next
            hint = "; over an axis: V.sum_axis, V.mean_axis; of two values: V.maximum, V.minimum"
            told = isinstance(error, TypeError) and re.match(r"(sum|mean|max|min|std)\(\)", str(error))
            raise mistake(f"{type(error).__name__}: {error}" + hint * bool(told), at) from error
        results: tuple[object, ...] = result if isinstance(result, tuple) else (result,)
        kept = [each.value for each in results if isinstance(each, Kept)]
        of_vertices = [self._output(each) for each in results[: len(results) - len(kept)]]
        if not of_vertices:
            raise self._wrong("it returns no value of the vertex: return one, then what V.keep gives")
        for each in run.kept:
            if not any(each is one for one in results):
                raise mistake("what V.keep gives is not returned: return it behind the value of the vertex", each.where)
        return (*of_vertices, *kept)

    def _output(self, result: object) -> Value:
        if isinstance(result, Kept):
            raise self._wrong("it returns what V.keep gives before a value of the vertex: return that first")
        if not isinstance(result, Symbol):
            raise self._wrong(f"it returns {named(result)}: return a value of the vertex, such as V.sum(...)")
        if result.value.space is not D or result.at:
            raise mistake(
                f"program {self.name} returns this, a value {ir.per(result.value.space)}, where one a vertex is wanted:"
                " aggregate over the neighbours, or V.keep it as a second result",
                result.value.where or self.where,
            )
        return result.value


@overload
def program(function: Callable[..., object], /) -> Program: ...
@overload
def program(*, loops: bool = False) -> Callable[[Callable[..., object]], Program]: ...
def program(function: Any = None, /, *, loops: bool = False) -> Any:
    """Make a vertex program of a function ``f(v, *parameters)``; ``loops`` gives every vertex an arc to itself.

    Raises:
        VertexProgramError: the signature has other than plain named parameters.
    """
    return (lambda f: Program(f, loops)) if function is None else Program(function, loops)
