"""Schedule passes over arcs: which sums share a pass, and what each reads, makes and keeps (Seastar, EuroSys'21,
section 6.2).

Executors run a ``Schedule`` step by step. Values of arcs live within a stage, in registers. Values passed between the
stages of a unit belong to one row and stay in registers as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mgg.vertex import ir, products
from mgg.vertex.crossing import ROWWISE, least_cut
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.rewrites.factors import number

AGGREGATIONS = frozenset({"total", "maximum_of", "minimum_of", "winner", "gram"})
#: Operations that a row does for itself between two loops over its arcs; matrix products are dense work instead.
LIGHT = ROWWISE - {"matmul", "transpose"} | {"cast"}
#: Operations by which an arc looks up rows; their results are never stored.
SEEN = ("cast", "by_type")


@dataclass(frozen=True)
class Stage:
    """One loop over the arcs of a row, and the row's work after it.

    Attributes:
        values: values to compute per arc, operands first. A ``cast`` reads the row of its operand that the arc belongs
            to; inputs and stored values are read at the arc's own row.
        sums: ``AGGREGATIONS`` of these values, to accumulate: per row of the unit, or over all rows, to P and T.
        rows: values to compute from sums of this unit, once per row, operands first.
    """

    values: tuple[Value, ...]
    sums: tuple[Value, ...]
    rows: tuple[Value, ...]


@dataclass(frozen=True)
class Unit:
    """A loop over rows and their in-arcs (``rows`` D or R) or out-arcs (S), or over vertices and their runs.

    Attributes:
        over: the items aggregated, E or R.
        rows: the space of its results.
        stages: the stages to run for each row, one after the other.
        reads: arrays that it reads, by space.
        stored: values of arcs to write.
        results: sums and rows of its stages that others need; the others may be dropped.
    """

    over: Space
    rows: Space
    stages: tuple[Stage, ...]
    reads: dict[Space, tuple[Value, ...]]
    stored: tuple[Value, ...]
    results: tuple[Value, ...]

    @property
    def orientation(self) -> str:
        """The direction of the arcs, ``in`` or ``out``."""
        return "out" if self.rows is S else "in"

    @property
    def gathers(self) -> tuple[Value, ...]:
        """The values that an arc reads at its other end."""
        return self.reads.get(D if self.rows is S else S, ()) if self.over is E else ()

    @cached_property
    def softmaxes(self) -> tuple[tuple[Value, Value], ...]:
        """Pairs of a maximum and the sum of exp(value - maximum): one loop computes both (online softmax)."""
        pairs = []
        for top in (each for stage in self.stages for each in stage.sums if each.op == "maximum_of"):
            for whole in (each for stage in self.stages for each in stage.sums if each.op == "total"):
                part = whole.inputs[0]
                if part.op == "exp" and part.inputs[0].op == "subtract":
                    x, shift = part.inputs[0].inputs
                    if x is top.inputs[0] and shift.op == "cast" and unstopped(shift.inputs[0]) is top:
                        pairs.append((top, whole))
        return tuple(pairs)


@dataclass(frozen=True)
class Rows:
    """Values that need no pass over arcs, operands first.

    These are dense work, also with a row per arc (``mgg.vertex.products``); halos fetched (``cast`` from D to S) and
    given back (``total`` of S to D); plain ``product``; and the numbers of arcs or runs per row (``is_count``). Casts
    of parameters and constants need no array.
    """

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Schedule:
    """The steps of a program, in order.

    Attributes:
        forward, backward: steps; the seeds of gradients are known before the first step of ``backward``.
        kept: values of forward steps, besides inputs, that ``backward`` needs, chosen for the fewest columns.
        again: values to recompute from those and from inputs before ``backward``, operands first.
        stored: values of arcs that are written, [arcs, ...], including matrix products.
    """

    forward: tuple[Rows | Unit, ...]
    backward: tuple[Rows | Unit, ...]
    kept: tuple[Value, ...]
    again: tuple[Value, ...]
    stored: tuple[Value, ...]

    @cached_property
    def carried(self) -> tuple[Value, ...]:
        """The values of ``stored`` that forward writes and backward reads."""
        made = {v for step in self.forward for v in (step.stored if isinstance(step, Unit) else step.values)}
        read: set[Value] = set()
        for step in self.backward:
            if isinstance(step, Unit):
                read.update(step.reads.get(E, ()))
            else:
                read.update(x for v in step.values for x in (products.reads(v) if products.of_arcs(v) else v.inputs))
        return tuple(v for v in self.stored if v in made & read)

    @property
    def steps(self) -> tuple[Rows | Unit, ...]:
        """All steps."""
        return self.forward + self.backward


@dataclass(frozen=True)
class _When:
    """Before ``level``; or, for values of a row, after ``stage`` stages of a unit over ``rows`` in ``level``."""

    level: int
    stage: int = 0
    rows: Space | None = None

    @property
    def after(self) -> int:
        """The level before which the value is known to all steps."""
        return self.level + (self.rows is not None)


def is_count(v: Value) -> bool:
    """Return whether ``v`` is how many rows belong to each row, which offsets give, or the sum of the arcs' weights."""
    across = (v.op != "total" or (v.inputs[0].space, v.space) == (S, D)) and not is_weight_sum(v)  # sums over PEs
    return not across and v.inputs[0].op == "cast" and v.inputs[0].inputs[0].op == "constant"


def is_returned(v: Value) -> bool:
    """Return whether ``v`` is the sum of what every PE summed for a row: halos go back to the rows' owners."""
    return v.op == "total" and v.space is D and v.inputs[0].space is S


def is_weight_sum(v: Value) -> bool:
    """Return whether ``v`` is the sum of the weights of each vertex's in-arcs, times a constant."""
    return v.op == "product" and len(v.inputs) > 1 and not v["back"] and number(v.inputs[0]) is not None


def schedule(
    outputs: Sequence[Value], gradients: Sequence[Value] = (), seeds: Iterable[Value] = (), *, fused: bool = True
) -> Schedule:
    """Return the units and other steps for values that ``optimized`` returned.

    Sums are made as early as possible; those of one level and orientation share a unit. A new unit begins where sums
    are needed across rows, after a matrix product, or at the other ends of arcs.

    Args:
        outputs: values of the program.
        gradients: gradients by its inputs.
        seeds: inputs of ``gradients`` that are known only after ``outputs``.
        fused: if False, a unit makes a single sum, or a single value of arcs, which is stored, and nothing per row.
            Seastar calls this no fusion; it shows what fusion gains.
    """
    return _Scheduler(outputs, gradients, frozenset(seeds), fused).schedule()


class _Scheduler:
    def __init__(
        self, outputs: Sequence[Value], gradients: Sequence[Value], seeds: frozenset[Value], fused: bool
    ) -> None:
        self.outputs, self.gradients, self.fused = list(outputs), list(gradients), fused
        self.order = list(ir.walk([*outputs, *gradients]))
        self.late: set[Value] = set()  # values that depend on seeds
        for value in self.order:
            if value in seeds or any(operand in self.late for operand in value.inputs):
                self.late.add(value)
        written = {value for value in [*outputs, *gradients] if value.space is E}
        whole = [v for v in self.order if v.space is not E and not _aggregates(v) and not is_count(v)]
        written |= {x for v in whole for x in v.inputs if x.space is E}  # for extremes over all arcs
        if not fused:
            written |= {value for value in self.order if value.space is E and value.inputs and value.op not in SEEN}
        #: Values computed as matrix products from values of arcs, or from sums of these; their operands are stored.
        self.matrices, operands = products.as_matrices(self.order, written)
        written |= operands | {v for v in self.matrices if v.space is E}
        self.stored = [value for value in self.order if value in written and value.op not in ("input", "mask")]
        self.when: dict[Value, _When] = {}
        self.over_runs: dict[Value, int] = {}  # sums over runs, and the level of their unit
        self.over_all: dict[Value, _When] = {}  # sums over arcs to P and T, and the time of their accumulation
        early = [value for value in self.order if value not in self.late]
        for value in early:
            self.when[value] = self._when(value, 0)
        self.turn = 1 + max((self.when[value].after for value in early), default=0)
        for value in self.order:
            if value in self.late:
                self.when[value] = self._when(value, self.turn)

    def _when(self, v: Value, first: int) -> _When:
        if is_count(v) or not v.inputs:
            return _When(first if v in self.late else 0)
        if v in self.matrices:
            return _When(max(first if v in self.late else 0, *map(self._known, products.reads(v))))
        if v.space is E:
            return self._pass([v], D) if v in self.stored else _When(first)
        if _aggregates(v):
            return self._when_summed(v)
        times = [self.when[operand] for operand in v.inputs]
        level = max(time.level for time in times)
        pending = [time for time in times if time.rows is not None and time.level == level]
        if self.fused and v.op in LIGHT and pending and all(time.rows is v.space for time in pending):
            return _When(level, max(time.stage for time in pending), v.space)
        return _When(max(first if v in self.late else 0, *(time.after for time in times)))

    def _when_summed(self, v: Value) -> _When:
        if v.space in (P, T):
            self.over_all[v] = self._pass(v.inputs, D)
            return _When(self.over_all[v].level + 1)
        found = self._pass(v.inputs, v.space)
        if v.inputs[0].space is E:
            return found
        level = self.over_runs[v] = max(found.level, self.when[v.inputs[0]].after)
        return _When(level + 1)

    def _pass(self, inputs: Sequence[Value], rows: Space) -> _When:
        """Return the time of a value computed from values of arcs, in a pass for ``rows``."""
        if not self.fused:
            operands = [x for v in inputs for x in ([v] if v in self.when else v.inputs)]
            return _When(max(map(self._known, operands), default=0), 1, rows)
        times: list[_When] = []
        # Passes of sources read what passes of targets store, so that these columns are not computed again.
        stops = {*self.stored, *self.matrices} if rows is S else self.matrices
        for leaf, space in self._leaves(inputs, stops):
            time = self.when[leaf]
            inside = time.rows is not None and time.rows is rows and space is rows
            times.append(time if inside else _When(time.after))
        level = max((time.level for time in times), default=0)
        stage = max((time.stage for time in times if time.level == level), default=0)
        return _When(level, stage + 1, rows)

    def _known(self, v: Value) -> int:
        """Return the level before which ``v`` is known; for values that arcs look up, that of their operands."""
        looked_up = v.space is E and v.op in SEEN
        return max(self._known(x) for x in v.inputs) if looked_up else self.when[v].after

    def _leaves(self, inputs: Sequence[Value], stops: Collection[Value]) -> Iterator[tuple[Value, Space]]:
        """Yield what values of arcs (or runs) are made of, each with its space; stop at ``stops``."""
        for value in _arcwise(inputs, stops):
            if not value.inputs or value.space is not E or value in stops:
                yield value, value.space
            else:
                yield from ((x, x.space) for x in value.inputs if x.space is not E)

    def _units(self, level: int, over: Space, rows: Space, needed: set[Value]) -> list[Unit]:
        here = [v for v in self.order if (w := self.when[v]).level == level and w.rows is rows and over is E]
        sums = (
            [v for v in here if self._aggregates(v)]
            if over is E
            else [v for v, at in self.over_runs.items() if at == level]
        )
        stored = [v for v in here if v.space is E]
        stage_of = {v: self.when[v].stage for v in here}
        if (over, rows) == (E, D):
            stage_of |= {v: at.stage for v, at in self.over_all.items() if at.level == level}
            sums += [v for v, at in self.over_all.items() if at.level == level]
        parts = [(sums, stored)] if self.fused else [*(([v], []) for v in sums), *(([], [v]) for v in stored)]
        return [self._unit(level, over, rows, here, stage_of, *part, needed) for part in parts if part[0] or part[1]]

    def _unit(
        self, level: int, over: Space, rows: Space, here: list[Value], stage_of: dict[Value, int], sums: list[Value],
        stored: list[Value], needed: set[Value],
    ) -> Unit:  # fmt: skip
        written = {v for v in self.stored if self.when[v].after <= level and v.op != "cast"}
        light = [v for v in here if v.space is not E and not self._aggregates(v) and (v in self.late or v in needed)]
        stages: list[Stage] = []
        mine: set[Value] = set()
        reads: dict[Space, list[Value]] = {}
        for stage in range(1, max(stage_of.values(), default=1) + 1):
            summed = [v for v in sums if over is R or stage_of[v] == stage]
            ends = [x for v in summed for x in v.inputs] + [v for v in stored if stage_of[v] == stage]
            values = list(_arcwise(ends, written))
            between = [v for v in light if self.when[v].stage == stage]
            between = list(dict.fromkeys(x for v in between for x in (*filter(_of_all, v.inputs), v)))
            stages.append(Stage(tuple(values), tuple(summed), tuple(between)))
            mine.update(summed, between)
            found = [x for v in between for x in v.inputs]
            for v in values:
                own = not v.inputs or v in written or v.space is not E
                found += [v] if own else [x for x in v.inputs if x.space is not E]
            for x in found:
                if x not in mine and x.op != "constant" and x not in reads.setdefault(x.space, []):
                    reads[x.space].append(x)
        kinds = {space: tuple(values) for space, values in reads.items() if values}
        results = tuple(v for v in self.order if v in mine and not _of_all(v))
        return Unit(over, rows, tuple(stages), kinds, tuple(stored), results)

    def schedule(self) -> Schedule:
        kept, again = self._kept()
        needed = {v for v in self.order if self._aggregates(v) or v in self.matrices}
        needed |= {*self.outputs, *self.gradients, *kept, *self.stored}
        needed = set(ir.walk([v for v in self.order if v in needed and v not in self.late]))
        phases: list[list[Rows | Unit]] = [[], []]
        for level in range(max((time.after for time in self.when.values()), default=0) + 1):
            phase = phases[bool(self.late) and level >= self.turn]
            here = [
                v
                for v in self.order
                if self.when[v] == _When(level) and v not in self.over_runs.keys() | self.over_all.keys()
            ]
            # Sums of values of arcs go first, because they free these; units that write values of arcs go last.
            rows = [v for v in here if v.space is not E or v in self.matrices]
            rows = [v for v in rows if v.inputs and (v in self.late or v in needed)]
            rows.sort(key=lambda v, here=frozenset(rows): not self._sums_known(v, here))  # type: ignore[misc]
            phase += [Rows(tuple(rows))] if rows else []
            units = [unit for kind in ((E, R), (E, D), (E, S), (R, D)) for unit in self._units(level, *kind, needed)]
            phase += [unit for unit in units if not unit.stored] + [unit for unit in units if unit.stored]
        ends = (
            (*self.outputs, *kept, *(v for v in self.gradients if v not in self.late)),
            (*self.gradients, *self.outputs),
        )
        forward, backward = (_with_results(*each) for each in zip(phases, ends, strict=True))
        return Schedule(forward, backward, tuple(kept), tuple(again), tuple(self.stored))

    def _sums_known(self, v: Value, here: frozenset[Value]) -> bool:
        """Return whether ``v`` sums outer products of values of arcs made before those ``here``."""
        return v.op == "gram" and v in self.matrices and here.isdisjoint(products.reads(v))

    def _aggregates(self, v: Value) -> bool:
        return _aggregates(v) and v not in self.matrices

    def _kept(self) -> tuple[list[Value], list[Value]]:
        """Return the forward values kept for backward, with the fewest columns, and the values recomputed from them."""
        early = [v for v in self.order if v not in self.late and v.space is not E and v.inputs and not is_count(v)]
        wanted = {x for v in self.order if v in self.late for x in v.inputs if x not in self.late}
        written = {v for v in self.stored if v not in self.late and v.op != "cast"}
        arcwise = _arcwise([v for v in wanted if v.space is E], written)
        wanted |= {x for v in arcwise if v not in written for x in v.inputs}
        wanted = {x for x in wanted if x.space is not E}
        fixed = {v for v in early if _summed(v) or (v.op == "cast" and v.space is S and v.inputs[0].space is D)}
        fixed |= {v for v in early if v.op == "matmul" and v.space not in (P, T)}
        costs = {v: 0 if v.space in (P, T) else v.size for v in early}
        kept = least_cut([v for v in wanted if v in costs], costs, fixed)
        again: set[Value] = set()
        stack = [v for v in wanted if v not in kept]
        while stack:
            v = stack.pop()
            if v not in again and v.inputs and v not in kept:
                again.add(v)
                stack += [x for x in v.inputs if x not in kept and x.space is not E]
        return kept, [v for v in self.order if v in again]


def _summed(v: Value) -> bool:
    """Return whether each row of ``v`` depends on several rows."""
    return v.op in AGGREGATIONS or v.op in ("product", "gram")


def _aggregates(v: Value) -> bool:
    """Return whether ``v`` needs a pass over arcs or runs."""
    if v.op not in AGGREGATIONS or is_count(v):
        return False
    finer = E if any(x.space is E for x in v.inputs) else v.inputs[0].space
    if v.space in (P, T):
        return finer is E and v.op in ("total", "gram")
    return finer is E or (finer, v.space) == (R, D)


def _arcwise(of: Sequence[Value], written: Collection[Value] = ()) -> Iterator[Value]:
    """Yield ``of`` and the values of arcs they are made of, operands first; stop at casts and ``written`` values."""
    done: set[Value] = set()
    stack = [(v, False) for v in reversed(of)]
    while stack:
        v, ready = stack.pop()
        if v in done:
            continue
        if ready or v in written or v.op == "cast" or v.space is not E or not v.inputs:
            done.add(v)
            yield v
        else:
            stack.append((v, True))
            stack += [(x, False) for x in reversed(v.inputs) if x.space is E]


def _of_all(v: Value) -> bool:
    """Return whether ``v`` is a parameter or constant cast to rows, which is never stored."""
    return v.op == "cast" and v.inputs[0].space is P


def _with_results(steps: Sequence[Rows | Unit], ends: Collection[Value]) -> tuple[Rows | Unit, ...]:
    """Restrict the results of units in ``steps`` to values that other steps read or that are among ``ends``."""
    wanted = set(ends)
    for step in steps:
        if isinstance(step, Rows):
            wanted.update(x for v in step.values for x in v.inputs)
        else:
            wanted.update(x for values in step.reads.values() for x in values)
    return tuple(
        replace(step, results=tuple(v for v in step.results if v in wanted)) if isinstance(step, Unit) else step
        for step in steps
    )


def unstopped(x: Value) -> Value:
    """Return ``x`` without ``stop``."""
    return x.inputs[0] if x.op == "stop" else x
