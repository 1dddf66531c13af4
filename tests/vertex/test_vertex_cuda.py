"""Generated kernels of vertex programs, run on the host, against the interpreter."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from support import vertex_models
from support.arc_graphs import awkward, drawn
from support.random_programs import programs, random_graph, values
from support.vertex_work import supported, worked_off

from mgg.vertex import ir, products
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, S
from mgg.vertex.passes import optimized

SETTINGS = {
    "derandomize": True, "deadline": None, "phases": [Phase.generate], "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def compare(wanted, found, expected, tolerance):
    for value, array, right in zip(wanted, found, expected, strict=True):
        if right.size:
            assert np.abs(array - right).max() <= tolerance * max(1, np.abs(right).max()), value


MODELS = {
    **vertex_models.MODELS, "gat, eight heads of eight": vertex_models.gat(16, 8, 8),
    "gat, odd columns": vertex_models.gat(5, 2, 37), "gated, odd columns": vertex_models.gated(41),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models(name, kernels):
    graph = awkward()
    outputs, late, seeds = vertex_models.differentiated(MODELS[name])
    wanted = [*outputs, *late]
    leaves = drawn([*wanted, *seeds], graph, 1)
    found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, draws=(3, 5), kernels=kernels)
    compare(wanted, found, evaluate(wanted, graph, leaves, masks=(3, 5)), 5e-5)


def crowded():
    """Twelve vertices; 200 arcs and more lead to vertex 3, more than six times 32, and some 20 to each of the others.

    Often several lead from one source. Those of the first types, and so the first of a row, have the sources of the
    highest ids.
    """
    n, rng = 12, np.random.default_rng(4)
    targets, sources = np.append(np.full(200, 3), rng.integers(0, n, 250)), rng.integers(0, n, 450)
    ids = rng.permutation(3 * n)[:n]
    return ArcGraph.of(n, targets, sources, 3 - np.argsort(np.argsort(ids))[sources] // 3, 4, ids)


def made(wanted, graph, leaves, kernels, **how):
    """What kernels make of ``wanted``, the names of those that ran, and their text."""
    kernels.launched.clear()
    found = worked_off(wanted, graph, leaves, kernels=kernels, **how)
    sources = {source for source, _ in kernels.launched}
    text = "".join(Path(source).read_text(encoding="utf-8") for source in sources)
    return found, [name for _, name in kernels.launched], text


def test_rows_that_are_cut_are_combined(kernels):
    graph = crowded()
    x = ir.leaf("x", D, (3,))
    arcs = vertex_models.of_source(x)
    wanted = [ir.total(arcs, D), ir.maximum_of(arcs, D), ir.minimum_of(arcs, D)]
    leaves = drawn(wanted, graph)
    found, launched, _ = made(wanted, graph, leaves, kernels)
    assert any(name.endswith("_combine") for name in launched)
    each = [leaves["x"][graph.sources[graph.targets == v]] for v in range(graph.vertices)]
    compare(wanted, found, [np.array([f(of_row, 0) for of_row in each]) for f in (np.sum, np.max, np.min)], 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gat, eight heads of eight", "gated", "edge_conv", "gat, odd columns"])
def test_models_where_rows_are_cut(name, kernels):
    graph = crowded()
    outputs, late, seeds = vertex_models.differentiated(MODELS[name])
    wanted = [*outputs, *late]
    leaves = drawn([*wanted, *seeds], graph, 1)
    found, launched, _ = made(wanted, graph, leaves, kernels, outputs=len(outputs), seeds=seeds, draws=(3, 5))
    assert any(name.endswith("_combine") for name in launched)
    compare(wanted, found, evaluate(wanted, graph, leaves, masks=(3, 5)), 1e-4)


# Of heads whose lanes make their numbers for each other, of all columns, and of each of them.
@pytest.mark.parametrize(
    ("space", "heads", "shape", "narrow"),
    [(S, (2,), (2, 16), True), (D, (2,), (2, 16), True), (S, (), (3,), False), (D, (20,), (20,), False)],
)
def test_masks_of_arcs_are_the_interpreters(space, heads, shape, narrow, kernels):
    graph = crowded()
    x = ir.leaf("x", space, shape)
    mask = ir.mask(E, heads, 0.4, 7)
    wanted = [ir.total(ir.binary("multiply", mask, ir.cast(x, E)), D if space is S else S)]
    leaves = {"x": np.exp2(drawn(wanted, graph)["x"])}
    found, _, text = made(wanted, graph, leaves, kernels, draws=(3, 5))
    assert "mgg::kept(" in text and ("const float n" in text) is narrow
    expected = evaluate(wanted, graph, leaves, masks=(3, 5))
    assert not np.allclose(expected[0], evaluate(wanted, graph, leaves)[0])
    compare(wanted, found, expected, 1e-6)


# 450 arcs to or from twelve vertices: rows that arcs read take padding. 41 are columns for eleven lanes of four.
@pytest.mark.parametrize("to", [D, S])
def test_rows_of_odd_columns_are_padded(to, kernels):
    graph = crowded()
    x = ir.leaf("x", S if to is D else D, (41,))
    wanted = [ir.total(ir.cast(y, E), to) for y in (x, ir.unary("tanh", x))]
    leaves = drawn(wanted, graph)
    found, _, text = made(wanted, graph, leaves, kernels)
    assert "MGG_ARCS L::read<true>" in text
    here, there = (graph.targets, graph.sources) if to is D else (graph.sources, graph.targets)
    arcs = leaves["x"][there]
    expected = [np.zeros((graph.vertices, 41)) for _ in wanted]
    for goal, y in zip(expected, (arcs, np.tanh(arcs)), strict=True):
        np.add.at(goal, here, y)
    compare(wanted, found, expected, 1e-6)


@pytest.mark.parametrize("extreme", [ir.maximum_of, ir.minimum_of])
def test_of_equal_entries_that_of_the_lowest_source_wins(extreme, kernels):
    graph = crowded()
    x = ir.leaf("x", D, (5,))
    wanted = [ir.winner(extreme(vertex_models.of_source(x), D))]
    leaves = {"x": np.random.default_rng(1).integers(0, 3, (graph.vertices, 5)).astype(float)}
    [found], launched, _ = made(wanted, graph, leaves, kernels)
    assert any(name.endswith("_combine") for name in launched)
    sign = -1 if extreme is ir.maximum_of else 1
    for v, row in enumerate(found):
        arcs = np.flatnonzero(graph.targets == v)
        sources = graph.sources[arcs]
        for column, arc in enumerate(row):
            key = (arcs, graph.ids[sources], sign * leaves["x"][sources, column])
            assert arc == arcs[np.lexsort(key)[0]], (v, column)


def check(data, kernels):
    graph = random_graph(data.draw(st.integers(0, 2**16)))
    outputs = values(data.draw(programs(graph.type_count)))
    seeds = [ir.leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    inputs = [value for value in ir.walk(outputs) if value.op == "input"]
    before = [*outputs, *gradients(outputs, seeds, inputs)]
    wanted = optimized(before) if data.draw(st.booleans()) else before
    assume(all(supported(value) for value in ir.walk(wanted)))
    seed = data.draw(st.integers(0, 2**16))
    leaves = drawn(before, graph, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "BALANCE", products.BALANCE * (seed % 2))  # 0: all that can be are of matrices
        found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, kernels=kernels)
    compare(wanted, found, evaluate(before, graph, leaves), 2e-3)


def test_some_programs(kernels):
    @settings(max_examples=3, **SETTINGS)
    @given(data=st.data())
    def some(data):
        check(data, kernels)

    some()


@pytest.mark.slow
def test_programs(kernels):
    @settings(max_examples=60, **SETTINGS)
    @given(data=st.data())
    def many(data):
        check(data, kernels)

    many()
