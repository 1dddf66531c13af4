"""From values to steps: which aggregations share a walk over the arcs, and what is done between walks.

Seastar (EuroSys'21, section 6.1) fuses what its automaton allows, a chain of arcs' values into one aggregation. Here a
unit takes all aggregations that are ready and go to the same rows, so that siblings share what they gather, and goes on
with those that are ready once the row's own aggregations are: all stages of a softmax are one loop over the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mgg.vertex.ir import D, E, P, R, S, Space, T, Value, walk
from mgg.vertex.loops import AGGREGATIONS, Stage, Unit

#: Operations on rows that a loop over rows does as well as one of their own.
_LOCAL = frozenset({"matmul", "gram", "cast", "total", "product", "mask", "input", "by_type", "all_types", "transpose"})


def steps_for(wanted: Sequence[Value], given: Iterable[Value] = ()) -> list[Value | Unit]:
    """What to do for ``wanted``, in order.

    Args:
        wanted: values of a program.
        given: values that are arrays already, beside the leaves that are inputs.
    """
    return _Scheduler(wanted, set(given)).steps


class _Scheduler:
    def __init__(self, wanted: Sequence[Value], given: set[Value]) -> None:
        self.done = set(given)
        self.wanted = list(wanted)
        self.order = list(walk(self.wanted, self.done.__contains__))
        self.done |= {value for value in self.order if value.op == "input"}
        self.arcs = {value: self._closure(value) for value in self.order if _walks(value, self.wanted)}
        self.readers = self._readers()
        self.steps: list[Value | Unit] = []
        left = dict.fromkeys(self.arcs)
        while True:
            self._rows_that_are_ready()
            ready = [value for value in left if self._ready(value, self.done)]
            if not ready:
                break
            unit = self._unit(ready, list(left))
            self.steps.append(unit)
            for stage in unit.stages:
                for value in (*stage.aggregations, *stage.kept):
                    del left[value]
            self.done |= set(unit.results)
        assert not left and all(value in self.done for value in self.wanted)

    def _closure(self, value: Value) -> tuple[list[Value], set[Value]]:
        """Values of arcs that an aggregation is made of, and what these read."""
        starts = [value] if value.space is E else list(value.inputs)

        def known(x: Value) -> bool:
            return x.space is not E or x in self.done

        found = list(walk(starts, known))
        return [x for x in found if not known(x)], {x for x in found if known(x)}

    def _readers(self) -> dict[Value, set[Value]]:
        """Who reads a value that is no arc's: aggregations and other such values."""
        readers: dict[Value, set[Value]] = {}
        for value in self.order:
            if value in self.arcs:
                reads = self.arcs[value][1]
            elif value.space is E:
                continue
            else:
                reads = set(value.inputs)
            for x in reads:
                readers.setdefault(x, set()).add(value)
        return readers

    def _ready(self, value: Value, done: set[Value]) -> bool:
        return all(x in done or x.op == "constant" for x in self.arcs[value][1])

    def _rows_that_are_ready(self) -> None:
        for value in self.order:
            here = value.space is not E and value not in self.arcs and value not in self.done
            if here and all(x in self.done for x in value.inputs):
                self.steps.append(value)
                self.done.add(value)

    def _unit(self, ready: list[Value], left: list[Value]) -> Unit:
        rows = next(space for space in (D, R, S) if any(_goal(value) in (space, None) for value in ready))
        local: list[Value] = []
        stages: list[Stage] = []
        taken: set[Value] = set()
        while True:
            known = self.done | set(local)
            mine = [x for x in left if x not in taken and _goal(x) in (rows, None) and self._ready(x, known)]
            if not mine:
                break
            taken |= set(mine)
            local += [x for x in mine if x.space is rows]
            between = self._between(rows, local, [x for x in left if x not in taken and _goal(x) in (rows, None)])
            local += between
            kept = tuple(x for x in mine if x.space is E)
            stages.append(Stage(tuple(x for x in mine if x.space is not E), kept, tuple(between)))
        inside = set(local) | taken
        results = [
            value
            for value in dict.fromkeys([*taken_in_order(stages), *local])
            if value in self.wanted or any(reader not in inside for reader in self.readers.get(value, ()))
        ]
        outside = dict.fromkeys(
            _root(x)
            for stage in stages
            for value in (*stage.aggregations, *stage.kept, *stage.rows)
            for x in (_in_order(self.arcs[value][1], self.order) if value in self.arcs else value.inputs)
            if x not in inside and _root(x).op != "constant"
        )
        return Unit(rows, tuple(stages), tuple(outside), tuple(results))

    def _between(self, rows: Space, local: list[Value], later: list[Value]) -> list[Value]:
        """Values of the row at hand that make some of ``later`` ready."""
        known, found = self.done | set(local), []
        for value in self.order:
            if (
                value.space is rows
                and value not in known
                and value not in self.arcs
                and value.op not in _LOCAL
                and all(x in known for x in value.inputs)
            ):
                known.add(value)
                found.append(value)
        needed: set[Value] = set()
        for value in later:
            if self._ready(value, known):
                needed |= self.arcs[value][1]
        for value in reversed(found):
            if value in needed:
                needed |= set(value.inputs)
        return [value for value in found if value in needed]


def taken_in_order(stages: Sequence[Stage]) -> list[Value]:
    """What the stages make of arcs."""
    return [value for stage in stages for value in (*stage.aggregations, *stage.kept)]


def _root(x: Value) -> Value:
    """What a loop reads for ``x``: where it is the same for many rows, the row of P or T."""
    while x.op == "cast" and x.inputs[0].space in (P, T):
        x = x.inputs[0]
    return x


def _goal(value: Value) -> Space | None:
    """The rows over whose arcs an aggregation goes; None where any do."""
    return None if value.space in (P, T, E) else value.space


def _walks(value: Value, wanted: Sequence[Value]) -> bool:
    """Whether it takes a walk over arcs: an aggregation of their values, or such a value that is wanted."""
    if value.space is E:
        return value in wanted and value.op != "input"
    return value.op in (*AGGREGATIONS, "gram") and any(x.space is E for x in value.inputs)


def _in_order(values: set[Value], order: Sequence[Value]) -> list[Value]:
    return [value for value in order if value in values]
