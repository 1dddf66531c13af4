"""Follows a schedule as an executor would, and fails where it needs what it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mgg.vertex.ir import D, E, P, R, S, T, Value, walk
from mgg.vertex.products import of_arcs, reads
from mgg.vertex.units import Rows, Schedule, Unit, is_count


def follow(
    plan: Schedule, outputs: Sequence[Value], gradients: Sequence[Value] = (), seeds: Iterable[Value] = ()
) -> None:
    """Every operand is there when it is used: in its row, in its stage, in the reads that a unit states."""
    leaves = {v for v in walk([*outputs, *gradients]) if not v.inputs}
    known = leaves - {*seeds}
    _follow(plan.forward, known)
    assert known >= {*outputs, *plan.kept}, {*outputs, *plan.kept} - known
    assert not any(v.space is E for v in plan.kept)
    first, known = known, leaves | {*plan.kept} | {v for v in plan.stored if v in known}
    for v in plan.again:
        assert v.op not in ("total", "product", "gram", "maximum_of", "minimum_of", "winner") or is_count(v)
        assert v.op != "matmul" or v.space in (P, T)
        _made(v, known)
    _follow(plan.backward, known)
    assert first | known >= {*gradients}, [v for v in gradients if v not in first | known]


def _made(v: Value, known: set[Value]) -> None:
    of_matrices = of_arcs(v) and v.inputs[0].space is E
    assert v.space is not E or v.op == "cast" or of_matrices
    assert all(x in known or is_count(v) for x in (reads(v) if of_matrices else v.inputs)), v
    known.add(v)


def _follow(steps: Sequence[Rows | Unit], known: set[Value]) -> None:
    for step in steps:
        if isinstance(step, Rows):
            for v in step.values:
                across = v.op in ("total", "maximum_of", "minimum_of", "winner") and v.space not in (P,)
                assert not across or is_count(v) or (v.inputs[0].space, v.space) not in ((E, D), (E, S), (E, R), (R, D))
                _made(v, known)
        else:
            _pass(step, known)


def _pass(unit: Unit, known: set[Value]) -> None:
    read = {v for values in unit.reads.values() for v in values}
    assert all(space is v.space for space, values in unit.reads.items() for v in values)
    assert read <= known, [v.op for v in read - known]
    used: set[Value] = set()
    mine: set[Value] = set()
    written: set[Value] = set()

    def needs(x: Value) -> None:
        if x.op != "constant" and x not in mine:
            assert x in read, x
            used.add(x)

    for stage in unit.stages:
        arc: set[Value] = set()
        for v in stage.values:
            assert v.space is unit.over
            if v.op == "cast" and unit.over is E:
                assert v.inputs[0] not in mine or v.inputs[0].space is unit.rows
                needs(v.inputs[0])
            elif v in read:
                used.add(v)
            else:
                assert v.inputs
                assert all(x in arc for x in v.inputs if x.space is E)
                for x in v.inputs:
                    if x.space is not E:
                        needs(x)
            arc.add(v)
        written |= arc & {*unit.stored}
        for v in stage.sums:
            assert v.space is unit.rows or (v.space in (P, T) and unit.rows is D)
            assert arc >= {*v.inputs}
        mine |= {*stage.sums}
        for v in stage.rows:
            assert v.space is unit.rows
            if v.op != "cast":
                for x in v.inputs:
                    needs(x)
            else:
                assert v.inputs[0].space is P
                needs(v.inputs[0])
            mine.add(v)
    assert used == read
    assert written == {*unit.stored}
    assert mine >= {*unit.results}
    known |= mine & {*unit.results} | written
    assert unit.rows in (D, R, S)
