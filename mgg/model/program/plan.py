"""A vertex program with its gradients, ready to run: the work of a layer in each kind of pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from mgg.vertex.cpu.loops import outside_of
from mgg.vertex.ir import D, E, P, S, Value, walk
from mgg.vertex.products import of_arcs, reads
from mgg.vertex.run import Work
from mgg.vertex.trace import BUILT_IN, Trace
from mgg.vertex.turned import Turned, turned
from mgg.vertex.units import Rows, Schedule, Unit, is_count

Method = TypeVar("Method", bound=Callable[..., Any])


def _once_each(method: Method) -> Method:
    """Cache the results of ``method`` for as long as its object lives."""

    @wraps(method)
    def known(self: Any, *arguments: Any) -> Any:
        found = vars(self).setdefault("_found", {})
        if (method, arguments) not in found:
            found[method, arguments] = method(self, *arguments)
        return found[method, arguments]

    return cast(Method, known)


@dataclass(frozen=True, eq=False)
class ProgramPlan:
    """A program with its gradients, ready to run.

    Attributes:
        trace: the traced program.
        output: the vertex output.
        arcs: the values that ``V.keep`` keeps.
        by: gradients by the inputs and the parameters, by name; empty for a program that only evaluates.
        seeds: the gradients by the output and by the kept values; empty likewise.
        schedule: steps of both passes.
        turns: whether the PE of a source computes its gradient (``mgg.vertex.turned``), so that none is sent back.
        once: cached values that are the same in every pass, by whether the input is constant.
    """

    trace: Trace
    output: Value
    arcs: tuple[Value, ...]
    by: dict[str, Value]
    seeds: tuple[Value, ...]
    schedule: Schedule
    turns: bool = False
    once: dict[bool, tuple[Any, Any, dict[Value, Any]]] = field(default_factory=dict)

    @cached_property
    def values(self) -> list[Value]:
        """All values, operands first."""
        return list(walk([self.output, *self.arcs, *self.by.values()]))

    @cached_property
    def leaves(self) -> set[Value]:
        """The leaves needed at the start; without the weights of arcs if only products need them."""
        read = {x for step in self.schedule.steps if isinstance(step, Unit) for x in outside_of(step)}
        rows = (v for step in self.schedule.steps if isinstance(step, Rows) for v in step.values)
        read.update(x for v in rows if of_arcs(v) for x in reads(v))
        leaves = {*self.trace.inputs.values(), *self.trace.parameters.values()}
        return {value for value in leaves if value.space is not E or value in read}

    @_once_each
    def fixed(self, constant: bool) -> list[Value]:
        """Return the values read in every pass but computed once: they depend on the graph alone, or, if the input is
        ``constant``, on the input through a sum over arcs.
        """
        rows = {v for step in self.schedule.steps if isinstance(step, Rows) for v in step.values}
        inputs = {v for name, v in self.trace.inputs.items() if name in BUILT_IN or (constant and name == "x")}
        fixed, of_x, summed = set[Value](), set[Value](), set[Value]()
        for v in self.values:
            made = v in rows or v.op == "constant" or (v.op == "cast" and v.inputs[0].space is P)
            if v in inputs or (made and (is_count(v) or fixed.issuperset(v.inputs))):
                fixed.add(v)
            if v is self.trace.inputs.get("x") or not of_x.isdisjoint(v.inputs):
                of_x.add(v)
            if v.op == "product" or crosses(v) or not summed.isdisjoint(v.inputs):
                summed.add(v)
        read = {
            self.output,
            *self.arcs,
            *self.by.values(),
            *(x for v in self.values if v not in fixed for x in v.inputs),
        }
        return [
            v for v in self.values
            if v.op == "constant" or (v in fixed & read and v.inputs and v.space is not P and v.inputs[0].space is not P
                                      and (v in summed or v not in of_x))
        ]  # fmt: skip

    @_once_each
    def takes_dense(self, constant: bool) -> bool:
        """Return whether every pass needs the input as a dense array."""
        trains = bool(self.seeds)
        works = [self.forward(constant, trains), *([self.backward(constant, not constant)] if trains else [])]
        return any(self.trace.inputs.get("x") in work.taken_dense for work in works)

    @_once_each
    def making(self, constant: bool) -> Work:
        """Return the work that computes the ``fixed`` values."""
        return Work(self.schedule.steps, self.leaves, self.fixed(constant))

    @_once_each
    def forward(self, constant: bool, training: bool) -> Work:
        """Return the work that computes the output, and in training the values that ``backward`` reads."""
        known = {*self.leaves, *self.fixed(constant)}
        reads = self.reads(constant) - known - {*self.seeds} if training else set()
        # Turned passes send fetched values row by row, so these need contiguous rows.
        kept = set() if self.turns else reads - {self.output, *self.arcs}
        return Work(self.schedule.forward, known, [self.output, *self.arcs, *reads], kept)

    @_once_each
    def backward(self, constant: bool, inputs: bool) -> Work | Turned:
        """Return the work that computes the gradients, with that by the input if ``inputs``."""
        return (self.turned(constant, inputs) if self.turns else None) or self.returned(constant, inputs)

    @_once_each
    def reads(self, constant: bool) -> set[Value]:
        """Return what backward reads, with the gradient by the input or without: both may differ if turned."""
        return self.backward(constant, not constant).reads | self.backward(constant, False).reads

    @_once_each
    def returned(self, constant: bool, inputs: bool) -> Work:
        """Return ``backward`` in the *return* schedule."""
        return Work(*self._backward(constant, inputs), spent=True)

    @_once_each
    def turned(self, constant: bool, inputs: bool) -> Turned | None:
        """Return ``backward`` in the *turned* schedule; None if only plain products make gradients of sources."""
        return turned(*self._backward(constant, inputs), self.seeds)

    def _backward(self, constant: bool, inputs: bool) -> tuple[list[Rows | Unit], set[Value], list[Value]]:
        kept = {*self.leaves, *self.fixed(constant), *self.schedule.kept, *self.schedule.carried, *self.seeds}
        steps = [Rows(self.schedule.again), *self.schedule.backward]
        return steps, kept, [v for name, v in self.by.items() if inputs or name != "x"]

    @property
    def fetched(self) -> int:
        """Columns of the widest rows exchanged between PEs without plans; at least 1, for the ids at arcs' ends."""
        crossing = (v for v in self.values if crosses(v) or (v.op == "product" and not is_count(v)))
        return max([1, *(v.size for v in crossing)])


def crosses(value: Value) -> bool:
    """Return whether ``value`` fetches rows from other PEs or gives their gradients back; products do not count."""
    spaces = [value.space, *(x.space for x in value.inputs[:1])]
    return value.op in ("cast", "total") and set(spaces) == {D, S}
