"""Forward values against the formulas, dropout masks, batch-norm statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mgg import vertex as V
from mgg.model import Pass
from mgg.model.layers import BatchNorm, Dropout
from mgg.model.module import CachedOutput, Chain
from mgg.model.neighborhood import Neighborhood
from mgg.model.program import VertexLayer, Weight
from mgg.model.propagate import PowerSteps, convolution, mean, normalized
from mgg.model.zoo.gat import attention


def nodes(ids):
    """A neighborhood that has only node ids."""
    ids = np.asarray(ids, np.int64)
    return Neighborhood(len(ids), ids, np.zeros(len(ids)), None, None, lambda values: values.copy())


def drop(x, ids, rate=0.5, place=0, epoch=1, seed=0, training=True):
    run = Pass(nodes(ids), {}, {}, training=training, epoch=epoch, seed=seed)
    return Dropout(rate, place).forward(x, run)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), epoch=st.integers(1, 10_000), place=st.integers(0, 9), rate=st.floats(0.05, 0.95),
    density=st.floats(0, 1), first=st.integers(0, 2**31),
)  # fmt: skip
def test_dropout_of_csr_equals_that_of_the_dense_input(seed, epoch, place, rate, density, first):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(17, 9)).astype(np.float32) * (rng.random((17, 9)) < density)
    options = {"rate": rate, "place": place, "epoch": epoch, "seed": seed}
    ids = first + np.arange(17)
    from_csr = drop(sparse.csr_array(x), ids, **options)
    np.testing.assert_array_equal(from_csr.toarray(), drop(x, ids, **options))


def test_dropout_depends_on_the_node_not_on_the_pe():
    x = np.ones((50, 8), np.float32)
    ids = np.random.default_rng(0).permutation(1000)[:50]
    whole = drop(x, ids)
    parts = [drop(x[a:b], ids[a:b]) for a, b in ((0, 13), (13, 13), (13, 50))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_dropout_changes_with_seed_epoch_and_place():
    x = np.ones((200, 16), np.float32)
    masks = [drop(x, np.arange(200), **other) for other in ({}, {"seed": 1}, {"epoch": 2}, {"place": 1})]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            # Independent masks agree on about half of the entries.
            assert 0.4 < (mask == other).mean() < 0.6


def test_dropout_keeps_the_mean():
    x = np.ones((2000, 50), np.float32)
    y = drop(x, np.arange(2000), rate=0.3)
    assert set(np.unique(y)) == {0, np.float32(1 / 0.7)}
    assert abs(y.mean() - 1) < 0.01


def test_dropout_is_off_outside_training():
    x = sparse.csr_array(np.eye(3))
    assert drop(x, np.arange(3), training=False) is x
    assert drop(x, np.arange(3), rate=0.0) is x


def test_dropout_of_csr_does_not_change_its_input():
    x = sparse.csr_array(np.ones((20, 5), np.float32))
    module = Dropout(0.5, 0)
    outputs = [module.forward(x, Pass(nodes(range(20)), {}, {}, training=True, epoch=e)).toarray() for e in (1, 2, 1)]
    assert (x.data == 1).all()
    np.testing.assert_array_equal(outputs[0], outputs[2])
    assert (outputs[0] != outputs[1]).any()


def test_dropout_of_a_second_csr_uses_its_own_entries():
    """What is kept of the first one says nothing of the second."""
    graph = nodes(range(20))
    for rows in ([0, 3, 7], [1, 3, 19, 2]):
        x = sparse.csr_array((np.ones(len(rows), np.float32), (rows, [4] * len(rows))), shape=(20, 5))
        found = Dropout(0.5, 0).forward(x, Pass(graph, {}, {}, training=True, epoch=1))
        np.testing.assert_array_equal(found.toarray(), drop(x.toarray(), range(20)))


def test_normalization_zeroes_nodes_without_positive_degree(neighborhood):
    matrix = np.array([[0, -3.0, 0], [1, 0, 0], [0, -1.0, 0]])
    found = VertexLayer("a", normalized, 1, {}).forward(np.ones((3, 1)), Pass(neighborhood(matrix), {}, {}))
    # Row sums of A + I: -2, 2, 0. Only node 1 is left, with its own loop: 1 / 2.
    np.testing.assert_allclose(found[:, 0], [0, 0.5, 0])


def test_mean_follows_the_formula_and_is_zero_without_neighbors(neighborhood, directed):
    x = np.random.default_rng(0).normal(size=(12, 3))
    found = VertexLayer("a", mean, 3, {}).forward(x, Pass(neighborhood(directed), {}, {}))
    for node, row in enumerate(directed):
        np.testing.assert_allclose(found[node], row @ x / row.sum() if row.any() else 0, rtol=1e-12)
    assert not directed[3].any()


def test_mean_is_zero_where_weights_sum_to_zero_or_less(neighborhood):
    matrix = np.array([[0, -3.0, 1], [0, 0, 2], [1, -1, 0]])
    x = np.array([[5.0], [7.0], [9.0]])
    found = VertexLayer("a", mean, 1, {}).forward(x, Pass(neighborhood(matrix), {}, {}))
    np.testing.assert_array_equal(found[:, 0], [0, 9, 0])


def test_power_steps_converge_to_personalized_pagerank(neighborhood, directed):
    """Gasteiger et al. 2019, equation 3: alpha (I - (1 - alpha) P)^-1 H is where the steps lead."""
    x = np.random.default_rng(0).normal(size=(12, 3))
    with_loops = directed + np.eye(12)
    scale = np.diag(1 / np.sqrt(with_loops.sum(axis=1)))
    expected = 0.2 * np.linalg.solve(np.eye(12) - 0.8 * scale @ with_loops @ scale, x)
    given = x.copy()
    steps = [VertexLayer("a", normalized, 3, {})] * 400
    found = PowerSteps(steps, 0.2).forward(given, Pass(neighborhood(directed), {}, {}))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(given, x)


def attended(x, target, source, graph):
    """GAT's layer without a product before."""
    weights = {"weight": np.eye(x.shape[1]), "target": target, "source": source}
    layer = VertexLayer("a", attention, x.shape[1], {k: Weight(w.shape) for k, w in weights.items()} | {"rate": 0.6})
    return layer.forward(x, Pass(graph, {f"a.{name}": weight for name, weight in weights.items()}, {}))


def test_attention_survives_huge_scores(neighborhood, directed):
    x, huge = np.full((12, 1), 1e4), np.full((1, 1), 1e3)
    np.testing.assert_allclose(attended(x, huge, huge, neighborhood(directed)), x)


@V.program
def masked(v):
    found = [V.dropout(e.weight * V.concat(v.x, e.src.x), 0.5) for e in v.inedges]
    return V.sum(found), V.keep(found)


def test_arc_masks_depend_on_ends_head_epoch_and_place(neighborhood):
    graph = neighborhood(np.ones((40, 40)))

    def masks(epoch=1, place=0):
        layer, run = VertexLayer("a", masked, 1, {}, place=place, keeps=("mask",)), Pass(graph, {}, {}, True, epoch)
        layer.forward(np.ones((40, 1)), run)
        return run.arcs["mask"]

    assert set(np.unique(masks())) == {0, 2}
    several = [*masks().T, masks(epoch=2)[:, 0], masks(place=1)[:, 0]]
    for number, mask in enumerate(several):
        for other in several[:number]:
            assert 0.4 < (mask == other).mean() < 0.6
    by_arc = masks()[:, 0].reshape(40, 40)
    assert not (by_arc == by_arc[0]).all() and not (by_arc == by_arc[:, :1]).all()


def test_constant_values_are_computed_once(neighborhood, directed):
    run = Pass(neighborhood(directed), {}, {})
    x, kept = np.ones((12, 2)), CachedOutput(VertexLayer("a", normalized, 2, {}))
    first = kept.forward(x, run)
    run.graph.plan = object()  # no product
    assert kept.forward(x, run) is first
    with pytest.raises(AttributeError):
        kept.forward(x.copy(), run)


@pytest.mark.parametrize(("inputs", "outputs", "width"), [(5, 2, 2), (2, 5, 2), (3, 3, 3)])
def test_products_aggregate_the_narrower_side(inputs, outputs, width):
    assert convolution("a", inputs, outputs).width == width


def test_chain_collects_widths_parameters_and_state():
    chain = Chain(BatchNorm("n", 3), convolution("a", 3, 9), VertexLayer("b", normalized, 9, {}))
    assert chain.width == 9
    assert [parameter.name for parameter in chain.parameters] == ["n.scale", "n.shift", "a.weight"]
    assert set(chain.state) == {"n.running_mean", "n.running_variance"}


def test_batch_norm_statistics_and_running_averages():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 3)) * [1, 5, 0.1] + [100, 0, -3]).astype(np.float32)
    module = BatchNorm("n", 3)
    weights = {"n.scale": np.array([1, 2, 3], np.float32), "n.shift": np.array([0, 1, -1], np.float32)}
    run = Pass(nodes(range(40)), weights, dict(module.state), training=True)
    y = module.forward(x, run)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5) * weights["n.scale"] + weights["n.shift"]
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, atol=2e-4)
    np.testing.assert_allclose(run.state["n.running_mean"], 0.1 * wide.mean(0))
    np.testing.assert_allclose(run.state["n.running_variance"], 0.9 + 0.1 * wide.var(0, ddof=1))
    evaluated = module.forward(x, Pass(nodes(range(40)), weights, run.state))
    mean, variance = run.state["n.running_mean"], run.state["n.running_variance"]
    expected = (wide - mean) / np.sqrt(variance + 1e-5) * weights["n.scale"] + weights["n.shift"]
    np.testing.assert_allclose(evaluated, expected, rtol=1e-4, atol=1e-4)
