"""Passes over arcs: that nothing is missing when it is used, what shares a pass, and what is told of it."""

import re

import pytest
from support.vertex.models import MODELS, differentiated, gat, gcn, of_source, rgcn, softmax, times
from support.vertex.random_sums import program
from support.vertex.schedules import follow

from mgg import vertex as V
from mgg.vertex import ir, products
from mgg.vertex.explain import explain
from mgg.vertex.ir import D, E, P, R, S, T, binary, cast, leaf, total, unary
from mgg.vertex.rewrites.passes import optimized
from mgg.vertex.units import Rows, Unit, is_count, schedule

F, Q, X, H = leaf("f", E, (3,)), leaf("q", E, (2,)), leaf("x", D, (3,)), leaf("h", D, (2, 3))


def units(steps):
    return [step for step in steps if isinstance(step, Unit)]


def shapes(values):
    return sorted(v.shape for v in values)


def planned(*outputs):
    outputs = optimized(outputs)
    plan = schedule(outputs)
    follow(plan, outputs)
    return plan


def followed(values, fused):
    """Schedules of ``values`` alone and with their gradients, once nothing is missing in them."""
    outputs = optimized(values)
    forward, backward, seeds = differentiated(values)
    plans = [schedule(outputs, fused=fused), schedule(forward, backward, seeds, fused=fused)]
    follow(plans[0], outputs)
    follow(plans[1], forward, backward, seeds)
    return plans


@pytest.mark.parametrize("name", MODELS)
def test_units_of_models_match_the_interpreter(name):
    followed(MODELS[name], fused=True)


@pytest.mark.parametrize("seed", range(60))
def test_units_of_random_programs_match_the_interpreter(seed, monkeypatch):
    monkeypatch.setattr(products, "BALANCE", 4 * (seed % 2))  # 0: all products are of matrices that can be
    followed(program(seed, steps=20), fused=True)


@pytest.mark.parametrize("values", [*MODELS.values(), *(program(seed, steps=20) for seed in range(30))])
def test_unfused_pass_makes_one_value(values):
    """Of arcs all that is computed is stored; rows are made between the passes."""
    for plan in followed(values, fused=False):
        for unit in units(plan.steps):
            (stage,) = unit.stages
            assert len(stage.sums) + len(unit.stored) == 1 and not stage.rows
            known = {*unit.stored, *unit.reads.get(E, ()), *unit.reads.get(R, ())}
            assert all(v in known or v.op in ("cast", "by_type") or not v.inputs for v in stage.values)


def test_unfused_attention_stores_its_arcs():
    """Scores, what becomes of them, their exponentials, shares, messages; and their gradients, arc by arc."""
    fused, apart = (followed(gat(9, 2, 4), fused)[1] for fused in (True, False))
    assert not fused.stored and not fused.carried
    assert (2, 4) in shapes(apart.stored), "messages"
    assert {*apart.carried} < {*apart.stored}
    assert len(units(apart.steps)) > 3 * len(units(fused.steps))


def test_gat_forward_is_one_pass():
    """The largest, then the sums, in one pass that gathers scores and rows once; nothing of an arc is written."""
    forward, *_ = differentiated(gat(9, 2, 4))
    plan = schedule(optimized(forward))
    (unit,) = units(plan.steps)
    assert (unit.orientation, unit.over, unit.rows) == ("in", E, D)
    assert shapes(unit.gathers) == [(2,), (2, 4)]
    assert [[v.op for v in stage.sums] for stage in unit.stages] == [["maximum_of"], ["total", "total"]]
    assert not any(v.shape == (2, 4) for v in unit.stages[0].values)
    assert len(unit.softmaxes) == 1
    assert shapes(unit.results) == [(2, 4)], "the outputs alone leave the pass"
    assert not unit.stored


def test_gat_backward_is_one_pass_over_out_arcs():
    """One pass over out-arcs; what in-arcs are summed for was summed forward."""
    forward, backward, seeds = differentiated(gat(9, 2, 4))
    plan = schedule(forward, backward, seeds)
    (first,), (second,) = units(plan.forward), units(plan.backward)
    assert first.orientation == "in"
    assert shapes(first.stages[1].sums) == [(2,), (2,), (2, 4), (2, 4)]
    assert second.orientation == "out"
    assert shapes(second.gathers) == [(2,), (2,), (2,), (2, 4)]
    assert shapes(v for v in second.stages[0].sums) == [(2,), (2, 4), (2, 4)]
    # Score, maximum and whole are kept, of the products only the sums.
    assert not any(v.space is E for v in plan.kept)
    assert not plan.stored


def test_dependent_aggregation_is_the_next_stage():
    top = ir.maximum_of(F, D)
    plan = planned(total(unary("tanh", binary("subtract", F, unary("exp", top))), D))
    (unit,) = units(plan.steps)
    assert [[v.op for v in stage.sums] for stage in unit.stages] == [["maximum_of"], ["total"]]
    assert [v.op for v in unit.stages[0].rows] == ["exp"]
    assert len(unit.results) == 1


def test_dense_product_begins_another_unit():
    top = ir.maximum_of(F, D)
    matrix = ir.matmul(top, leaf("w", P, (3, 3)))
    for row in (cast(matrix, E), of_source(top)):
        plan = planned(total(unary("tanh", binary("subtract", F, row)), D))
        assert [len(unit.stages) for unit in units(plan.steps)] == [1, 1]


def test_sum_over_out_arcs_begins_another_unit():
    sums = cast(unary("exp", total(F, S)), E)
    plan = planned(total(unary("tanh", binary("subtract", F, sums)), D))
    assert [(unit.orientation, unit.rows) for unit in units(plan.steps)] == [("out", S), ("in", D)]
    plan = planned(total(total(unary("tanh", binary("subtract", F, sums)), S), D))
    assert [(unit.orientation, len(unit.stages)) for unit in units(plan.steps)] == [("out", 2)]


def test_siblings_share_a_pass():
    rows = of_source(X)
    plan = planned(total(rows, D), ir.maximum_of(rows, D), total(times(rows, rows, F), D))
    (unit,) = units(plan.steps)
    assert len(unit.stages) == 1
    assert len(unit.stages[0].sums) == 3
    assert shapes(unit.gathers) == [(3,)], "squares are made of what is gathered"


def test_runs_of_types_are_summed_first():
    plan = schedule(optimized(rgcn(3, 2)))
    assert [(unit.over, unit.rows) for unit in units(plan.steps)] == [(E, R), (R, D)]
    (dense,) = [v for step in plan.steps if isinstance(step, Rows) for v in step.values if v.op == "matmul"]
    assert dense.space is R
    assert dense.inputs[1].inputs[0].space is T


def test_products_take_no_unit():
    forward, backward, seeds = differentiated(gcn(5, 2))
    plan = schedule(forward, backward, seeds)
    assert not units(plan.steps)
    assert not plan.kept, "inputs are there anyway"


def test_degrees_take_no_pass():
    plan = schedule(optimized(MODELS["sage"]))
    assert not units(plan.steps)
    assert any(is_count(v) for step in plan.steps for v in step.values)


def test_kept_arc_values_are_read_not_recomputed():
    forward, backward, seeds = differentiated(MODELS["gated"])
    plan = schedule(forward, backward, seeds)
    z = forward[1]
    (first,) = units(plan.forward)
    assert first.stored == (z,)
    assert len(first.stages) == 1
    assert len(first.stages[0].sums) == 2
    for unit in units(plan.backward):
        assert z in unit.reads[E]
        assert not any(v.op == "matmul" and v.inputs[0].op == "input" for v in unit.stages[0].values)
    assert len(plan.stored) == 2, "and the gradient of f, which is as large as it"


def test_softmax_is_recognized_only_for_its_own_scores():
    (unit,) = units(planned(total(times(softmax(Q), of_source(H)), D)).steps)
    assert len(unit.softmaxes) == 1
    other = unary("exp", binary("subtract", Q, cast(ir.maximum_of(unary("tanh", Q), D), E)))
    (unit,) = units(planned(total(other, D)).steps)
    assert not unit.softmaxes


def test_kept_values_have_the_fewest_columns():
    """Of a wide row made of a narrow sum, the sum."""
    narrow = total(unary("tanh", binary("add", Q, cast(leaf("b", D, (2,)), E))), D)
    wide = ir.concat([narrow, unary("exp", narrow)])
    plan_of = differentiated([total(times(leaf("e", E, ()), of_source(wide)), D)])
    plan = schedule(*plan_of)
    assert narrow.shape in shapes(plan.kept)
    assert all(v.size <= 2 for v in plan.kept)


def test_explain_shows_the_units_of_gat():
    forward, backward, seeds = differentiated(gat(9, 2, 4))
    text = explain(forward, backward, seeds)
    names = {v: f"%{k}" for k, v in enumerate(ir.walk([*forward, *backward]))}
    lines = text.splitlines()
    listed = [line for line in lines[1:] if line.startswith("  %")]
    assert len(listed) == len(names)
    of_parameter = next(line for line in listed if "input name=W" in line)
    assert of_parameter.split() == [
        names[next(v for v in names if v.shape == (9, 8))],
        *["P", "[9,", "8]", "input", "name=W"],
    ]
    assert "  pass over in-arcs of each vertex:" in lines
    assert "  pass over out-arcs of each source:" in lines
    assert any(line.startswith("    gathered an arc: 10 columns: ") for line in lines)
    assert any(line.startswith("    softmax: largest %") for line in lines)
    assert any(line.startswith("fetched from other PEs, a halo row: 8 columns: ") for line in lines)
    assert any(line.startswith("kept for backward, a row: ") for line in lines)
    assert lines[-1] == "arrays of all arcs, inputs apart: none"


def test_explain_lists_arrays_of_arcs():
    forward, backward, seeds = differentiated(MODELS["gated"])
    text = explain(forward, backward, seeds)
    names = {v: f"%{k}" for k, v in enumerate(ir.walk([*forward, *backward]))}
    assert f"arrays of all arcs, inputs apart: {names[forward[1]]} [3]" in text
    assert re.search(r"stage 1: .*gram %\d+ \[3, 3\] of all", text)


def test_explain_shows_a_trace_with_gradients():
    """As users call it: forward and gradients, with their lines."""

    @V.program
    def gcn(v, W):
        return v.norm * V.sum(u.norm * (u.x @ W) for u in v.innbs)

    lines = explain(gcn.trace({"x": (9,)}, {"W": (9, 2)})).splitlines()
    line = gcn.where.line + 1
    assert any(
        re.fullmatch(rf"  %3 +D \[2\] +matmul %1 %2  # test_vertex_units.py, line {line}", each) for each in lines
    )
    assert [each.split(":")[0].strip() for each in lines if "product: " in each] == ["product", "transposed product"]
    assert "kept for backward, a row: 0 columns: nothing" in lines
    assert any(re.fullmatch(r"  gradients x %\d+, W %\d+", each) for each in lines)


def test_explain_shows_products():
    forward, backward, seeds = differentiated(gcn(5, 2))
    lines = explain(forward, backward, seeds).splitlines()
    assert len([line for line in lines if line.startswith("  product: ")]) == 1
    assert len([line for line in lines if line.startswith("  transposed product: ")]) == 1
    assert not any("pass over" in line for line in lines)
