"""Generated kernels of vertex programs, run on the host, against the interpreter."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.graphs.arc_graphs import awkward, drawn
from support.vertex import models as vertex_models
from support.vertex.work import drawn_work, worked_off

from mgg.vertex import ir, products
from mgg.vertex.cuda import device
from mgg.vertex.cuda.execution import DEFAULT, Execution
from mgg.vertex.interpret import ArcGraph, evaluate
from mgg.vertex.ir import D, E, P, S

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


def test_cut_rows_are_combined(kernels):
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
@pytest.mark.parametrize(
    ("name", "is_cut"),
    [*((name, False) for name in ("sage", "gat, one head", "rgcn", "deviation", "gated, odd columns")),
     *((name, True) for name in ("gat, eight heads of eight", "gat, odd columns", "gated", "edge_conv"))],
)  # fmt: skip
def test_generated_kernels_of_models_match_the_interpreter(name, is_cut, kernels):
    graph = crowded() if is_cut else awkward()
    outputs, late, seeds = vertex_models.differentiated(MODELS[name])
    wanted = [*outputs, *late]
    leaves = drawn([*wanted, *seeds], graph, 1)
    found, launched, _ = made(wanted, graph, leaves, kernels, outputs=len(outputs), seeds=seeds, draws=(3, 5))
    assert any(name.endswith("_combine") for name in launched) is is_cut
    compare(wanted, found, evaluate(wanted, graph, leaves, masks=(3, 5)), 1e-4 if is_cut else 5e-5)


# Of heads whose lanes make their numbers for each other, of all columns, and of each of them.
@pytest.mark.parametrize(
    ("space", "heads", "shape", "narrow"),
    [(S, (2,), (2, 16), True), (D, (20,), (20,), False)],
)
def test_arc_masks_match_the_interpreter(space, heads, shape, narrow, kernels):
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
def test_odd_columns_are_padded(to, kernels):
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


# Scores of one lane each, of all lanes of a head, and of two heads; they rise and fall by hundreds along a row.
@pytest.mark.parametrize(("shape", "wide"), [((16,), True), ((2, 16), False)])
def test_softmax_takes_one_pass(shape, wide, kernels):
    graph = crowded()
    x, scores = ir.leaf("x", D, shape), ir.leaf("scores", D, shape if wide else shape[:-1])
    score = vertex_models.of_source(scores)
    score = ir.dot(score, ir.cast(ir.leaf("by", P, shape), E)) if wide else score
    top = ir.maximum_of(score, D)
    powers = ir.unary("exp", ir.binary("subtract", score, ir.cast(top, E)))
    wanted = [top, ir.total(powers, D), ir.total(vertex_models.times(powers, vertex_models.of_source(x)), D)]
    leaves = drawn(wanted, graph)
    leaves["scores"] = 300 * leaves["scores"]
    found, launched, _ = made(wanted, graph, leaves, kernels)
    assert sum(not name.endswith("_combine") for name in launched) == 1
    assert len(launched) == 2
    by = leaves["scores"] if not wide else leaves["scores"] @ leaves["by"]
    expected = [np.zeros((graph.vertices, *each.shape)) for each in wanted]
    for v in range(graph.vertices):
        sources = graph.sources[graph.targets == v]
        expected[0][v] = by[sources].max(0)
        parts = np.exp(by[sources] - expected[0][v])
        expected[1][v] = parts.sum(0)
        expected[2][v] = (parts[..., None] * leaves["x"][sources]).sum(0)
    compare(wanted, found, expected, 1e-3)


def test_infinite_values_stay_in_their_row(kernels):
    graph = crowded()
    x = ir.leaf("x", D, (41,))
    wanted = [ir.total(ir.unary("log", vertex_models.of_source(x)), D)]
    leaves = {"x": np.ones((graph.vertices, 41))}
    leaves["x"][graph.sources[-1], 5] = 0
    [found], _, _ = made(wanted, graph, leaves, kernels)
    hit = np.unique(graph.targets[graph.sources == graph.sources[-1]])
    assert np.array_equal(np.argwhere(np.isneginf(found)), [(v, 5) for v in hit])
    assert not np.isnan(found).any()


def test_sum_over_all_rows_joins_their_launch(kernels):
    graph = crowded()
    x, w = ir.leaf("x", D, (41,)), ir.leaf("w", D, ())
    y = ir.unary("tanh", ir.binary("multiply", x, w))
    wanted = [y, ir.total(ir.binary("multiply", y, x), P), ir.total(ir.binary("add", x, w), P)]
    leaves = drawn(wanted, graph)
    found, launched, _ = made(wanted, graph, leaves, kernels)
    assert len(launched) == 1
    rows = np.tanh(leaves["x"] * leaves["w"][:, None])
    sums = (rows * leaves["x"]).sum(0), (leaves["x"] + leaves["w"][:, None]).sum(0)
    compare(wanted, found, [rows, *sums], 1e-6)


def test_products_of_sources_become_products_of_vertices():
    x, w = ir.leaf("x", D, (5,)), ir.leaf("w", P, (5, 3))
    of_d, fetched = ir.matmul(ir.unary("tanh", x), w), ir.cast(x, S)
    of_s, other = ir.matmul(ir.unary("tanh", fetched), w), ir.matmul(ir.unary("exp", fetched), w)
    steps = [*of_d.inputs[:1], of_d, fetched, *other.inputs[:1], other, *of_s.inputs[:1], of_s]
    ordered, twins = device.with_twins(steps)
    assert twins == {of_d: of_s}
    assert ordered.index(fetched) < ordered.index(of_s) < ordered.index(of_d)
    assert len(ordered) == len(steps)


@pytest.mark.parametrize("how", [DEFAULT, Execution("block", "parallel", "atomic", "sorted")], ids=["usual", "other"])
def test_maximum_of_equal_entries_takes_the_lowest_source(how, kernels):
    graph = crowded()
    x = ir.leaf("x", D, (5,))
    wanted = [ir.winner(extreme(vertex_models.of_source(x), D)) for extreme in (ir.maximum_of, ir.minimum_of)]
    leaves = {"x": np.random.default_rng(1).integers(0, 3, (graph.vertices, 5)).astype(float)}
    found, launched, _ = made(wanted, graph, leaves, kernels, how=how)
    assert any(name.endswith("_combine") for name in launched)
    for sign, rows in zip((-1, 1), found, strict=True):
        for (v, column), arc in np.ndenumerate(rows):
            arcs = np.flatnonzero(graph.targets == v)
            sources = graph.sources[arcs]
            key = (arcs, graph.ids[sources], sign * leaves["x"][sources, column])
            assert arc == arcs[np.lexsort(key)[0]], (v, column)


def test_empty_parts_do_not_set_the_layout_of_a_launch(kernels):
    """In a launch whose layout is that of an empty part nobody would write the others, nor add them up."""
    graph = awkward()
    x = ir.leaf("x", D, (2,))
    total = ir.sum_axis(x, 0)
    empty = ir.columns(ir.reshape(total, (1,)), 0, 0)
    one = ir.unary("exp", ir.sum_axis(empty, 0))
    rows, leaves = graph.vertices, drawn([x], graph)
    sums = leaves["x"].sum(1)
    for wanted, expected in (
        ([total, ir.total(empty, P)], [sums, np.zeros(0)]),
        ([total, one, ir.total(empty, P)], [sums, np.ones(rows), np.zeros(0)]),
        ([empty, ir.total(one, P)], [np.zeros((rows, 0)), np.array(rows)]),
    ):
        compare(wanted, worked_off(wanted, graph, leaves, kernels=kernels), expected, 1e-6)


def test_one_launch_makes_two_sums_over_all_rows(kernels):
    """The first sum needs a small value before, so its rows get a launch of their own, which makes the second, too."""
    graph = awkward()
    x, p, q = ir.leaf("x", D, (2,)), ir.leaf("p", P, ()), ir.leaf("q", P, ())
    first = ir.total(ir.where(ir.binary("add", p, q), x, ir.unary("exp", x)), P)
    second = ir.total(ir.binary("multiply", x, x), P)
    leaves = drawn([x, p, q], graph)
    right = [leaves["x"].sum(0), (leaves["x"] ** 2).sum(0)]
    compare([first, second], worked_off([first, second], graph, leaves, kernels=kernels), right, 1e-5)


def check(data, kernels):
    wanted, graph, leaves, how, right = drawn_work(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "BALANCE", products.BALANCE * (len(wanted) % 2))  # 0: all that can be are of matrices
        found = worked_off(wanted, graph, leaves, kernels=kernels, **how)
    compare(wanted, found, right, 2e-3)


@pytest.mark.slow
def test_random_programs_match_the_interpreter(kernels):
    @settings(max_examples=25, **SETTINGS)
    @given(data=st.data())
    def many(data):
        check(data, kernels)

    many()


def test_sum_over_all_rows_is_read_by_later_launches(kernels):
    """The sum is float64 where it is made, and kernels read float32."""
    graph = crowded()
    x, seed = ir.leaf("x", D, (41,)), ir.leaf("seed", D, (41,))
    sums = ir.total(ir.cast(x, S), P)
    arcs = vertex_models.times(vertex_models.of_source(seed), ir.cast(sums, E))
    wanted = [ir.total(vertex_models.of_source(x), D), sums, ir.total(arcs, D)]
    leaves = drawn(wanted, graph)
    found, _, _ = made(wanted, graph, leaves, kernels, outputs=1, seeds=[seed])
    compare(wanted, found, evaluate(wanted, graph, leaves), 1e-6)


def test_concurrent_threads_write_a_source_once(tmp_path, monkeypatch):
    """PEs may be threads of one process; two of them would write the same unfinished file."""
    written, write_text = [], device.files.write_text

    def slow(path, text):
        written.append(path)
        time.sleep(0.05)
        write_text(path, text)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(device.files, "write_text", slow)
    with ThreadPoolExecutor(4) as pool:
        builds = [*pool.map(lambda _: device.build_of_text("unit", "// text", 32), range(4))]
    assert len(written) == 1 and {build.source for build in builds} == {str(written[0])}
