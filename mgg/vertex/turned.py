"""The *turned* schedule of gradients: the PE of a source processes its out-arcs, and no gradient is sent back.

A backward pass sums over the out-arcs of vertices, linearly in the gradients. So the result is the same if each PE sums
over its own arcs, by its rows and its halo, and gives the halo's sums back (``return``), or if the PE of the source
sums over all arcs that begin there. The latter fetches what these arcs need from their targets, and values that belong
to the arcs themselves. The pass has three parts: up to what out-arcs need (``before``), the work over out-arcs
(``own``), and the rest (``after``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mgg.vertex.cpu.loops import results_of
from mgg.vertex.crossing import ROWWISE, least_cut
from mgg.vertex.ir import D, E, P, R, S, Value, walk
from mgg.vertex.run import Work, made_by, needs
from mgg.vertex.trace import BUILT_IN
from mgg.vertex.units import Rows, Unit, is_count


@dataclass(frozen=True, eq=False)
class Turned:
    """A backward pass in three parts.

    In ``own``, S is this PE's vertices; D is these, followed by the ends of their out-arcs; E and R are those of this
    PE, followed by those of its other out-arcs.

    Attributes:
        before, own, after: the parts.
        fetched: values of D that ``own`` reads and every pass fetches, chosen for the fewest columns.
        steady: values of D that ``own`` reads and that depend on the graph alone; they are fetched once.
        crossing: values of E and R that ``own`` reads, sent along the arcs; the weights of arcs are known already.
        home: gradients of vertices that *return* would give back, and the sums over out-arcs that equal them.
        results: other results of ``own``, of T and P.
    """

    before: Work
    own: Work
    after: Work
    fetched: tuple[Value, ...]
    steady: tuple[Value, ...]
    crossing: tuple[Value, ...]
    home: dict[Value, Value]
    results: tuple[Value, ...]

    @property
    def reads(self) -> set[Value]:
        """The known values that it reads."""
        return self.before.reads

    @property
    def taken_dense(self) -> set[Value]:
        """Values read by steps that accept no sparse features."""
        return self.before.taken_dense | self.own.taken_dense | self.after.taken_dense

    @property
    def columns(self) -> int:
        """Entries per row that every pass fetches; a winner is sent as two."""
        return sum(v.size * (1 + (v.op == "winner")) for v in self.fetched)

    @property
    def columns_of_arcs(self) -> int:
        """Entries per arc sent in every pass."""
        return sum(v.size for v in self.crossing)


def turned(
    steps: Sequence[Rows | Unit], known: Collection[Value], wanted: Sequence[Value], seeds: Iterable[Value]
) -> Turned | None:
    """Turn ``Work`` with the same arguments; return None if only plain products sum over out-arcs.

    Args:
        steps: steps of the backward pass.
        known: values available at the start.
        wanted: gradients.
        seeds: the gradients by the outputs, which all sums over out-arcs depend on.
    """
    whole = Work(steps, known, wanted).steps
    if not any(isinstance(step, Unit) and step.rows is S for step in whole):
        return None
    # Units also read values that are not wanted.
    order = list(walk([*wanted, *(x for step in whole for x in (*needs(step), *made_by(step)))]))
    late = _made_of(order, seeds)
    at_sources = {v for v in order if v in late and (v.space is S or any(x.space is S and x in late for x in v.inputs))}
    home = {v: v.inputs[0] for v in order if v in at_sources and (v.op, v.space) == ("total", D)}
    at_sources -= home.keys()
    # Sources see only features, so no arc reads a gradient that came home.
    assert at_sources.isdisjoint(_made_of(order, home)), "a gradient of sources is made of what came home"
    apart = at_sources | home.keys()
    read = {*wanted, *(x for v in order if v not in apart for x in v.inputs)}
    results = [v for v in order if v in at_sources and v.space is not S and v in read]
    goals = [*home.values(), *results]
    # Values recomputed from what forward kept are computed on both sides.
    again = {v for step in steps if isinstance(step, Rows) for v in step.values if v.space is S and v not in late}
    mine = [part for step in steps if (part := _part(step, at_sources | again, sources=True))]
    rest = [part for step in steps if (part := _part(step, {*order} - apart, sources=False))]
    anywhere = {v for v in order if v not in known and (v.op in ("mask", "constant") or _of_all(v))}
    there = {*order} - at_sources - again - anywhere
    reads = Work(mine, there, goals).reads
    made = _cut([v for v in order if v in reads and v.space is D], order, steps, known, anywhere)
    mine = [Rows(tuple(made)), *mine]
    own = Work(mine, Work(mine, there.difference(made), goals).reads, goals)
    given = [v for v in order if v in own.reads]
    of_graph = _of_graph(order)
    ends = {*home, *results}
    later = [v for v in wanted if v in _made_of(order, ends) and v not in ends]
    first = [*given, *(v for v in wanted if v not in ends and v not in later)]
    made_before = {v for step in Work(rest, known, first).steps for v in made_by(step)}
    reads = Work(rest, {*known, *ends, *made_before}, later).reads - ends
    stays = [v for v in order if v in reads]
    return Turned(
        before=Work(rest, known, list(dict.fromkeys([*first, *stays]))),
        own=own,
        after=Work(rest, {*known, *ends, *stays}, later),
        fetched=tuple(v for v in given if v.space is D and v not in of_graph),
        steady=tuple(v for v in given if v.space is D and v in of_graph),
        crossing=tuple(v for v in given if v.space in (E, R) and not _is_weight(v)),
        home=home,
        results=tuple(results),
    )


def _made_of(order: Sequence[Value], of: Iterable[Value]) -> set[Value]:
    """Return ``of`` and the values of ``order`` that depend on them."""
    found = {*of}
    for v in order:
        if not found.isdisjoint(v.inputs):
            found.add(v)
    return found


def _part(step: Rows | Unit, values: Collection[Value], *, sources: bool) -> Rows | Unit | None:
    """Return the part of ``step`` done at the sources, or the other part; of rows only those in ``values``."""
    if isinstance(step, Unit):
        return step if (step.rows is S) == sources else None
    mine = tuple(v for v in step.values if v in values)
    return Rows(mine) if mine else None


def _cut(
    wanted: Sequence[Value], order: Sequence[Value], steps: Sequence[Rows | Unit], known: Collection[Value],
    anywhere: Collection[Value],
) -> list[Value]:  # fmt: skip
    """Choose the values of D to fetch, with the fewest columns, and return the values to compute from them."""
    there = {v for step in steps for v in (step.values if isinstance(step, Rows) else results_of(step))}
    there |= {*known, *anywhere}
    rows = [v for v in order if v.space is D and v not in anywhere]
    given = {v for v in rows if v in known or v.op not in ROWWISE or not there.issuperset(v.inputs)}
    steady = _of_graph(order)
    costs = {v: 0 if v in steady else v.size * (1 + (v.op == "winner")) for v in rows}
    cut = least_cut(wanted, costs, given)
    made: set[Value] = set()
    stack = [v for v in wanted if v not in cut]
    while stack:
        v = stack.pop()
        if v not in made:
            made.add(v)
            stack += [x for x in v.inputs if x.space is D and x not in cut and x not in anywhere]
    return [v for v in order if v in made]


def _of_graph(order: Sequence[Value]) -> set[Value]:
    """Return the values of vertices that depend on the graph alone."""
    found = {v for v in order if v.space is D and ((v.op == "input" and v["name"] in BUILT_IN) or is_count(v))}
    numbers = {v for v in order if v.op == "constant"}
    for v in order:
        if v.space in (D, P) and v.inputs and (v.op in ROWWISE or _of_all(v)):
            if numbers.issuperset(v.inputs):
                numbers.add(v)
            elif (numbers | found).issuperset(v.inputs):
                found.add(v)
    return found


def _of_all(v: Value) -> bool:
    return v.op == "cast" and v.inputs[0].space is P


def _is_weight(v: Value) -> bool:
    return v.op == "input" and v["name"] == "weight"
