"""Products of arcs with matrices: which are worked off as products of matrices, and those of each type on GPUs."""

import numpy as np
import pytest
from support.graphs.arc_graphs import drawn
from support.vertex.work import worked_off

from mgg.model import build, settings_of
from mgg.model.program import programs_of
from mgg.vertex import ir, products
from mgg.vertex.autodiff import differentiated
from mgg.vertex.cuda.grouped import cut
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, P, R, S, T
from mgg.vertex.units import Rows, Unit, schedule

#: Types of arcs, of which the fourth has none.
TYPES = 5


def typed(vertices=40, arcs=400):
    rng = np.random.default_rng(3)
    types = rng.choice([0, 1, 2, 4], arcs, p=[0.7, 0.2, 0.08, 0.02])
    targets, sources = rng.integers(0, vertices - 2, (2, arcs))
    return ArcGraph.of(vertices, targets, sources, types, TYPES, rng.permutation(vertices))


def chosen(*outputs, stored=()):
    matrices, operands = products.as_matrices(list(ir.walk(outputs)), set(stored))
    return matrices, operands


def product(x, columns):
    return ir.matmul(x, ir.leaf(f"W {columns}", P, (*x.shape[-1:], columns)))


def test_dense_product_is_chosen_where_it_outweighs_moving_rows():
    """Of what is there k >= 8 terms an entry; of 16 by 16 where rows are stored for it, of no fewer."""
    for inner, pays in ((7, False), (8, True)):
        v = product(ir.leaf("f", E, (inner,)), 5)
        assert chosen(v) == ({v} if pays else set(), set())
    for width, pays in ((15, False), (16, True)):
        x = ir.unary("tanh", ir.leaf("f", E, (width,)))
        v = product(x, width)
        assert chosen(v) == (({v}, {x}) if pays else (set(), set()))
        assert chosen(v, stored=[x]) == ({v}, set())


def test_stored_rows_serve_several_products():
    """The sum of outer products alone pays for its rows at 12 columns; then so does the product, which is first."""
    f, g = ir.leaf("f", E, (12,)), ir.unary("exp", ir.leaf("g", E, (12,)))
    v, sums = product(g, 12), ir.gram(f, g, P)
    assert chosen(v) == (set(), set())
    assert chosen(v, sums) == ({v, sums}, {g})


def test_source_rows_are_not_stored():
    x = ir.cast(ir.leaf("x", S, (16,)), E)
    by_type = ir.matmul(x, ir.by_type(ir.leaf("W", P, (TYPES, 16, 8))))
    assert chosen(by_type) == ({by_type}, set())
    assert products.reads(by_type)[0].space is S


def test_pass_over_sources_reads_rows_stored_by_targets():
    """dz is written for its matrix; the sum over out-arcs need not make it of both ends again."""
    x, f = ir.leaf("x", D, (16,)), ir.leaf("f", E, (16,))
    dz = ir.binary("multiply", ir.unary("tanh", ir.binary("add", f, ir.cast(x, E))), f)
    plan = schedule([product(dz, 16), ir.total(dz, S)])
    assert plan.stored == (dz, product_of(plan, dz))
    [over_sources] = [step for step in plan.forward if isinstance(step, Unit) and step.rows is S]
    assert over_sources.reads == {E: (dz,)}


def product_of(plan, x):
    [found] = [v for step in plan.forward if isinstance(step, Rows) for v in step.values if v.op == "matmul"]
    assert found.inputs[0] is x
    return found


def test_type_segments_cover_all_arcs():
    types, begin, firsts = cut(np.array([0, 70, 70, 71, 135]), 32)
    assert types.tolist() == [0, 0, 0, 2, 3, 3]
    assert begin.tolist() == [0, 32, 64, 70, 71, 103, 135]
    assert firsts.tolist() == [0, 3, 3, 4, 6]


def test_types_without_arcs_are_empty_segments():
    assert [part.tolist() for part in cut(np.zeros(4, np.int64), 32)] == [[], [0], [0, 0, 0, 0]]


# 37 terms and 70 columns: several tiles of each, none whole. Every type has another number of arcs, one has none.
@pytest.mark.parametrize(("inner", "outer"), [(37, 70), pytest.param(9, 3, marks=pytest.mark.slow)])
def test_grouped_kernel_takes_all_types_at_once(inner, outer, kernels):
    graph = typed()
    x, y = ir.leaf("x", D, (inner,)), ir.leaf("y", D, (outer,))
    f, w = ir.leaf("f", E, (inner,)), ir.by_type(ir.leaf("W", P, (TYPES, inner, outer)))
    of_sources, of_targets = ir.cast(ir.cast(x, S), E), ir.cast(y, E)
    wanted = [
        ir.matmul(of_sources, w), ir.matmul(f, w), ir.gram(of_sources, of_targets, T), ir.gram(f, of_targets, T),
        ir.total(ir.matmul(ir.cast(x, R), w), D), ir.gram(ir.cast(x, R), ir.cast(y, R), T),
    ]  # fmt: skip
    leaves = drawn(wanted, graph, 1)
    kernels.launched.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "BALANCE", 1)
        found = worked_off(wanted, graph, leaves, kernels=kernels)
    names = [name for _, name in kernels.launched if "by_type" in name]
    assert len(names) == 3 + 2 * 3
    matrices, targets, sources = leaves["W"], graph.targets, graph.sources
    each = {"u": leaves["x"][sources], "f": leaves["f"], "y": leaves["y"][targets]}
    by_arc = [np.einsum("ak,akm->am", each[k], matrices[graph.types]) for k in "uf"]
    sums = [
        np.array([each[k][graph.types == t].T @ each["y"][graph.types == t] for t in range(TYPES)]) for k in "uf"
    ]  # fmt: skip
    runs = graph.targets[graph.firsts], graph.types[graph.firsts]
    of_runs = np.zeros_like(leaves["y"])
    np.add.at(of_runs, runs[0], np.einsum("rk,rkm->rm", leaves["x"][runs[0]], matrices[runs[1]]))
    outer_sums = [
        leaves["x"][runs[0]][runs[1] == t].T @ leaves["y"][runs[0]][runs[1] == t] for t in range(TYPES)
    ]  # fmt: skip
    for value, array, right in zip(wanted, found, [*by_arc, *sums, of_runs, np.array(outer_sums)], strict=True):
        assert np.abs(array - right).max() <= 2e-6 * np.abs(right).max(), value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("gatedgcn", {"layers": 2, "hidden": 16, "dropout": 0.3}),
        ("rgat", {"hidden": 5, "bases": 2, "attention_dropout": 0.3}),
        ("rgat", {"heads": 2, "hidden": 8, "softmax": "within"}),
    ],
)  # fmt: skip
def test_typed_layers_match_their_gradients(model, given, kernels):
    graph = typed(20, 150)
    relations = TYPES if model == "rgat" else 0
    for layer in programs_of(build(model, settings_of(model, given), 11, 3, relations=relations)):
        trace = layer._trained.trace
        outputs, by, seeds = differentiated(trace)
        wanted = [*outputs, *by.values()]
        leaves = drawn([*wanted, *seeds], graph, 2)
        found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, draws=(3, 5), kernels=kernels)
        plan = schedule(outputs, list(by.values()), seeds)
        assert any(v.op == "matmul" for v in plan.stored) == (given.get("hidden") != 5 or layer.columns > 8)
        for value, array, right in zip(wanted, found, evaluate(wanted, graph, leaves, masks=(3, 5)), strict=True):
            assert np.abs(array - right).max() <= 1e-4 * max(1, np.abs(right).max()), value
