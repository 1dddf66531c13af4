"""Checks a schedule: every operand must exist when a step uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mgg.vertex.ir import D, E, P, R, S, T, Value, walk
from mgg.vertex.products import of_arcs, reads
from mgg.vertex.units import Rows, Schedule, Unit, is_count


def follow(
    plan: Schedule, outputs: Sequence[Value], gradients: Sequence[Value] = (), seeds: Iterable[Value] = ()
) -> None:
    """Assert that every operand exists when it is used: in its row, its stage, and among the reads of its unit."""
    leaves = {v for v in walk([*outputs, *gradients]) if not v.inputs}
    known = leaves - {*seeds}
    _follow(plan.forward, known)
    assert known >= {*outputs, *plan.kept}, {*outputs, *plan.kept} - known
    assert not any(v.space is E for v in plan.kept)
    of_forward, known = known, leaves | {*plan.kept} | {v for v in plan.stored if v in known}
    for v in plan.again:
        assert v.op not in ("total", "product", "gram", "maximum_of", "minimum_of", "winner") or is_count(v)
        assert v.op != "matmul" or v.space in (P, T)
        _compute(v, known)
    _follow(plan.backward, known)
    assert of_forward | known >= {*gradients}, [v for v in gradients if v not in of_forward | known]


def _compute(v: Value, known: set[Value]) -> None:
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
                _compute(v, known)
        else:
            _run_unit(step, known)


def _run_unit(unit: Unit, known: set[Value]) -> None:
    read = {v for values in unit.reads.values() for v in values}
    assert all(space is v.space for space, values in unit.reads.items() for v in values)
    assert read <= known, [v.op for v in read - known]
    used: set[Value] = set()
    results: set[Value] = set()
    written: set[Value] = set()

    def use(x: Value) -> None:
        if x.op != "constant" and x not in results:
            assert x in read, x
            used.add(x)

    for stage in unit.stages:
        arc: set[Value] = set()
        for v in stage.values:
            assert v.space is unit.over
            if v.op == "cast" and unit.over is E:
                assert v.inputs[0] not in results or v.inputs[0].space is unit.rows
                use(v.inputs[0])
            elif v in read:
                used.add(v)
            else:
                assert v.inputs
                assert all(x in arc for x in v.inputs if x.space is E)
                for x in v.inputs:
                    if x.space is not E:
                        use(x)
            arc.add(v)
        written |= arc & {*unit.stored}
        for v in stage.sums:
            assert v.space is unit.rows or (v.space in (P, T) and unit.rows is D)
            assert arc >= {*v.inputs}
        results |= {*stage.sums}
        for v in stage.rows:
            assert v.space is unit.rows
            if v.op != "cast":
                for x in v.inputs:
                    use(x)
            else:
                assert v.inputs[0].space is P
                use(v.inputs[0])
            results.add(v)
    assert used == read
    assert written == {*unit.stored}
    assert results >= {*unit.results}
    known |= results & {*unit.results} | written
    assert unit.rows in (D, R, S)
