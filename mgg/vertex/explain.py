"""Describe vertex programs to their users: values, passes over arcs, transfers and kept values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mgg.vertex import autodiff, ir
from mgg.vertex.crossing import mirrors
from mgg.vertex.ir import D, E, P, R, S, Space, T, Value
from mgg.vertex.products import by_type
from mgg.vertex.trace import Trace
from mgg.vertex.units import Rows, Schedule, Unit, is_count, schedule

_OF = {P: "of all", T: "of a type", D: "of a vertex", S: "of a source", R: "of a run", E: "of an arc"}


def explain(
    program: Trace | Sequence[Value], gradients: Sequence[Value] = (), seeds: Iterable[Value] = (),
    by: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a description of the work of a program, in lines.

    Args:
        program: a trace, described with all its gradients (the other arguments are ignored); or values returned by
            ``optimized``.
        gradients: values optimized together with these.
        seeds: inputs of ``gradients`` that are known only after ``program``.
        by: the name of the input that each of ``gradients`` belongs to; if empty, they are listed without names.
    """
    if isinstance(program, Trace):
        program, named, seeds = autodiff.differentiated(program)
        gradients, by = list(named.values()), list(named)
    outputs = list(program)
    plan = schedule(outputs, gradients, seeds)
    names = {value: f"%{k}" for k, value in enumerate(ir.walk([*outputs, *gradients]))}
    lines = ["values:"]
    for value, name in names.items():
        parts = [value.op, *(names[x] for x in value.inputs), *(f"{key}={of}" for key, of in value.attributes)]
        place = value.where and f"  # {Path(value.where.file).name}, line {value.where.line}"
        lines.append(f"  {name:<4} {value.space!r} {list(value.shape)}  {' '.join(parts)}{place or ''}")
    lines.append("  return " + " ".join(names[value] for value in outputs))
    if gradients:
        told = [f"{name} {names[value]}" for name, value in zip(by, gradients, strict=True)] if by else []
        lines.append("  gradients " + (", ".join(told) or " ".join(names[value] for value in gradients)))
    for title, steps in (("forward", plan.forward), ("backward", plan.backward)):
        lines += [f"{title}:"] if steps else []
        for step in steps:
            lines += _unit(step, names) if isinstance(step, Unit) else _rows(step, names)
    return "\n".join([*lines, *_ends(plan, names, bool(gradients))])


def _list(values: Iterable[Value], names: dict[Value, str]) -> str:
    return ", ".join(f"{names[value]} {list(value.shape)}" for value in values) or "nothing"


def _columns(values: Iterable[Value]) -> str:
    count = sum(value.size for value in values)
    return f"{count} column{'' if count == 1 else 's'}"


def _rows(step: Rows, names: dict[Value, str]) -> list[str]:
    lines = []
    dense = [v for v in step.values if v.op == "matmul"]
    if dense:
        told = (f"{names[v]} {_OF[v.space]}" + " (by type)" * by_type(v) for v in dense)
        lines.append(f"  dense products: {', '.join(told)}")
    for value in step.values:
        if value.op == "product" and not is_count(value):
            turned, weighted = "transposed " * value["back"], ", weighted" * (len(value.inputs) > 1)
            lines.append(f"  {turned}product{weighted}: {_list([value], names)} of {names[value.inputs[0]]}")
        elif _crosses(value):
            lines.append(f"  fetch for sources: {_list(value.inputs, names)}")
        elif value.op == "total" and (value.inputs[0].space, value.space) == (S, D):
            lines.append(f"  give back to vertices: {_list(value.inputs, names)}")
        elif value.inputs[0].space is E and value.op != "matmul" and not is_count(value):
            lines.append(f"  {value.op} over all arcs: {names[value]} of {_list(value.inputs, names)}")
    return lines


def _crosses(value: Value) -> bool:
    return value.op == "cast" and value.space is S and value.inputs[0].space is D


def _unit(unit: Unit, names: dict[Value, str]) -> list[str]:
    arcs = "runs of each vertex" if unit.over is R else f"{unit.orientation}-arcs of each {unit.rows.value}"
    lines = [f"  pass over {arcs}:"]
    if unit.over is E:
        lines.append(f"    gathered an arc: {_columns(unit.gathers)}: {_list(unit.gathers, names)}")
    other: tuple[Space, ...] = (D, R, E) if unit.rows is not S else (S, R, E)
    for space in other:
        if unit.reads.get(space):
            lines.append(f"    read, {_OF[space]}: {_list(unit.reads[space], names)}")
    for k, stage in enumerate(unit.stages):
        sums = ", ".join(
            f"{v.op} {names[v]} {list(v.shape)}" + f" {_OF[v.space]}" * (v.space in (P, T)) for v in stage.sums
        )
        rows = f"; then of the row: {_list(stage.rows, names)}" if stage.rows else ""
        lines.append(f"    stage {k + 1}: {sums or 'nothing is summed'}{rows}")
    for top, whole in unit.softmaxes:
        lines.append(f"    softmax: largest {names[top]}, sum of exp {names[whole]}")
    if unit.stored:
        lines.append(f"    written an arc: {_list(unit.stored, names)}")
    return lines


def _ends(plan: Schedule, names: dict[Value, str], backward: bool) -> list[str]:
    made = [value for step in plan.steps if isinstance(step, Rows) for value in step.values]
    products = [value for value in made if value.op == "product" and not is_count(value)]
    fetched = [value.inputs[0] for value in made if _crosses(value) or value in products]
    back = [v.inputs[0] for v in made if v.op == "total" and (v.inputs[0].space, v.space) == (S, D)]
    lines = [f"fetched from other PEs, a halo row: {_columns(fetched)}: {_list(fetched, names)}"]
    if back:
        lines.append(f"given back to other PEs, a halo row: {_columns(back)}: {_list(back, names)}")
    if backward:
        twins = mirrors(list(names))
        of = {v: "of a halo row" if v in twins else _OF[v.space] for v in plan.kept}
        kept = ", ".join(f"{names[v]} {list(v.shape)} {of[v]}" for v in plan.kept) or "nothing"
        lines.append(f"kept for backward, a row: {_columns(plan.kept)}: {kept}")
    if plan.stored:
        lines.append(f"arrays of all arcs, inputs apart: {_list(plan.stored, names)}")
    else:
        lines.append("arrays of all arcs, inputs apart: none")
    return lines
