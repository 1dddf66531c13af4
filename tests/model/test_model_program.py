"""Vertex programs as layers."""

import numpy as np
import pytest
from scipy import sparse

from mgg import vertex as V
from mgg.model.layers import Dropout
from mgg.model.module import Pass
from mgg.model.program import VertexLayer, Weight

HEADS, COLUMNS, INPUTS = 3, 4, 5


@V.program(loops=True)
def gcn(v, W):
    return v.norm * V.sum(e.weight * (e.src.norm * (e.src.x @ W)) for e in v.inedges)


def formula(matrix, loops):
    """D^-1/2 (A + I) D^-1/2 with the row sums of that, or without I."""
    whole = matrix + loops * np.eye(len(matrix))
    sums = whole.sum(axis=1)
    scale = np.where(sums > 0, 1 / np.sqrt(np.where(sums > 0, sums, 1)), 0)
    return scale[:, None] * whole * scale


@V.program
def gcn_without_loops(v, W):
    return v.norm * V.sum(e.weight * (e.src.norm * (e.src.x @ W)) for e in v.inedges)


@pytest.mark.parametrize("outputs", [3, 5, 9])
@pytest.mark.parametrize("program", [gcn, gcn_without_loops])
def test_convolution_uses_products_of_the_fewer_columns(neighborhood, directed, program, outputs):
    """By the plan's products alone, of the fewer columns."""
    graph, rng = neighborhood(directed), np.random.default_rng(0)
    layer = VertexLayer("p", program, INPUTS, {"W": Weight((INPUTS, outputs), name="matrix")})
    assert (layer.width, layer.products, layer.fetched) == (min(INPUTS, outputs), [min(INPUTS, outputs)], 0)
    x, weight, gradient = (
        rng.normal(size=(12, INPUTS)),
        rng.normal(size=(INPUTS, outputs)),
        rng.normal(size=(12, outputs)),
    )
    run, matrix = Pass(graph, {"p.matrix": weight}, {}, training=True), formula(directed, program.loops)
    np.testing.assert_allclose(layer.forward(x, run), matrix @ x @ weight, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        layer.backward(gradient.copy(), run), matrix.T @ gradient @ weight.T, rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(run.gradients["p.matrix"], (matrix @ x).T @ gradient, rtol=1e-10, atol=1e-12)
    assert not graph._tables, "lists of arcs are for programs that go by them"


@V.program
def unweighted(v):
    return V.sum(u.x for u in v.innbs)


def test_product_without_weights_has_no_parameter(neighborhood, directed):
    layer, x = VertexLayer("p", unweighted, INPUTS, {}), np.random.default_rng(0).normal(size=(12, INPUTS))
    assert (layer.width, layer.fetched) == (0, INPUTS)
    found = layer.forward(x, Pass(neighborhood(directed), {}, {}))
    np.testing.assert_allclose(found, (directed != 0) @ x, rtol=1e-12)


class Counting:
    """A plan whose calls are counted."""

    def __init__(self, plan):
        self.plan, self.calls = plan, 0
        self.input, self.write = plan.input, plan.write

    def __call__(self, dim):
        self.calls += 1
        return self.plan(dim)


@V.program
def own_and_sum(v, W):
    return (
        V.relu(0.5 * v.x + V.sum(e.weight * e.src.x for e in v.inedges) / (1 + V.sum(e.weight for e in v.inedges))) @ W
    )


@pytest.mark.parametrize("as_sparse", [False, True])
def test_constant_products_are_computed_once(neighborhood, directed, as_sparse):
    graph, rng = neighborhood(directed), np.random.default_rng(0)
    graph.plan, graph.transposed = Counting(graph.plan), Counting(graph.transposed)
    layer, x = VertexLayer("p", own_and_sum, INPUTS, {"W": Weight((INPUTS, 2))}), rng.normal(size=(12, INPUTS))
    rows = np.maximum(0.5 * x + directed @ x / (1 + directed.sum(axis=1, keepdims=True)), 0)
    constant = sparse.csr_array(x) if as_sparse else x
    for epoch in range(3):
        weight, gradient = rng.normal(size=(INPUTS, 2)), rng.normal(size=(12, 2))
        for training in (True, False):
            run = Pass(graph, {"p.W": weight}, {}, training, epoch, constant=constant)
            y = layer.forward(constant, run)
            np.testing.assert_allclose(y, rows @ weight, rtol=1e-10)
            y[:] = np.nan  # it is the caller's
            if training:
                assert layer.backward(gradient.copy(), run, inputs=False) is None
                np.testing.assert_allclose(run.gradients["p.W"], rows.T @ gradient, rtol=1e-10)
    assert (graph.plan.calls, graph.transposed.calls) == (1, 0)
    other = rng.normal(size=(12, INPUTS))
    layer.forward(other, Pass(graph, {"p.W": weight}, {}, constant=other))
    layer.forward(x.copy(), Pass(graph, {"p.W": weight}, {}, constant=other))
    assert graph.plan.calls == 3


@V.program
def dropped(v, W, rate):
    return (V.dropout(v.x, rate) + V.sum(e.weight * e.src.x for e in v.inedges)) @ W


@pytest.mark.parametrize("training", [True, False])
def test_dropout_of_constant_features_is_drawn_every_epoch(neighborhood, directed, training):
    graph, rng = neighborhood(directed), np.random.default_rng(0)
    layer = VertexLayer("p", dropped, INPUTS, {"W": Weight((INPUTS, 7)), "rate": 0.4}, place=3)
    x, weight = rng.normal(size=(12, INPUTS)), rng.normal(size=(INPUTS, 7))
    for epoch in (1, 2):
        run = Pass(graph, {"p.W": weight}, {}, training, epoch, seed=5, constant=x)
        expected = (Dropout(0.4, 3).forward(x, run) + directed @ x) @ weight
        np.testing.assert_allclose(layer.forward(x, run), expected, rtol=1e-10)
