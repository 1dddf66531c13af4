"""Every gradient against central finite differences in float64."""

import numpy as np
import pytest
from scipy import sparse
from support.models import featureless, needs_types, programmed, small

from mgg import vertex as V
from mgg.model import Pass, build, models, settings_of
from mgg.model.initialization import initial_weights
from mgg.model.layers import BatchNorm, Bias, Dropout, Elu, LayerNorm, Linear, MeanOfHeads, Relu, UnitRows
from mgg.model.loss import cross_entropy, cross_entropy_gradient
from mgg.model.module import Chain, Module, Residual
from mgg.model.program import VertexLayer, Weight
from mgg.model.propagate import PowerSteps, convolution, mean, normalized, sum_with_self
from mgg.model.zoo.appnp import dropped
from mgg.model.zoo.gat import attention
from mgg.model.zoo.rgcn import layer as relational_layer

STEP = 1e-6


@V.program
def turned(v, W):
    return V.mean(u.x for u in v.innbs) @ W


class Doubled(Module):
    """2 X, whose gradient takes the place of the one that it is given, as a module may."""

    def forward(self, x, run):
        return 2 * x

    def backward(self, gradient, run, inputs=True):
        gradient *= 2
        return gradient


MODULES = {
    "linear": Linear("a", 4, 3),
    "bias": Chain(Linear("a", 4, 4), Bias("a", 4)),
    "relu": Relu(),
    "batch norm": BatchNorm("a", 4),
    "normalized": VertexLayer("a", normalized, 4, {}),
    "sum with self": VertexLayer("a", sum_with_self, 4, {"epsilon": Weight((1,), "zeros")}),
    "narrow, product first": convolution("a", 4, 2),
    "narrow, aggregation first": convolution("a", 4, 6),
    "mean": VertexLayer("a", mean, 4, {}),
    "shared weights": Chain(
        *(VertexLayer(f"layer{k}", turned, 4, {"W": Weight((4, 4), shared="turn")}) for k in range(3))
    ),
    "power steps": PowerSteps(
        [VertexLayer(f"step{k}", each, 4, {}) for k, each in enumerate((normalized, mean, normalized))], 0.3
    ),
    "power steps in place": PowerSteps([Doubled(), VertexLayer("step", normalized, 4, {}), Doubled()], 0.3),
    "unit rows": UnitRows(),
    "elu": Elu(),
    "mean of heads": MeanOfHeads(2),
    "attention of one head, dropout": VertexLayer(
        "a",
        attention,
        4,
        {"weight": Weight((4, 4)), "target": Weight((1, 4)), "source": Weight((1, 4)), "rate": 0.4},
        place=1,
    ),
    "arcs, dropout": VertexLayer("a", dropped, 4, {"rate": 0.4}, place=2),
    "layer norm": LayerNorm("a", 4),
    "residual in place": Residual(Doubled()),
    "residual": Residual(Chain(Dropout(0.3, 1), Linear("a", 4, 4), Relu())),
    "dropout": Dropout(0.4, 3),
    "chain": Chain(Dropout(0.2, 0), Linear("a", 4, 5), BatchNorm("a", 5), Relu(), convolution("b", 5, 5)),
}
#: Every model as it is published, but small, and some in other forms.
MODELS = {model: (model, small(model, 4)) for model in models()} | {
    "gat": ("gat", {"hidden": 3, "heads": 2, "output_heads": 2}),
    "gcn, one layer": ("gcn", {"layers": 1}),
    "gin, deep": ("gin", {"hidden": 4, "layers": 3, "normalization": "none", "residual": True}),
    "gcn, deep": ("gcn", {"hidden": 4, "layers": 3, "normalization": "layer", "residual": True}),
    "gin": ("gin", {"hidden": 4, "layers": 2}),
    "rgcn, bases": ("rgcn", {"hidden": 4, "bases": 2, "dropout": 0.3}),
    "sage, deep": (
        "sage", {"hidden": 4, "layers": 3, "normalization": "batch", "residual": True, "unit_rows": False},
    ),
}  # fmt: skip
FEATURES = {"product first": 6, "aggregation first": 2, "none": 0}


def random_weights(parameters, rng):
    """Float64 weights away from their special first values."""
    return {
        p.name: v + rng.normal(0, 0.3, v.shape)
        for p, v in zip(parameters, initial_weights(parameters, 0).values(), strict=True)
    }


def numeric(function, array):
    """Central differences of a scalar function by every entry of ``array``, changed in place."""
    result = np.empty_like(array)
    for place in np.ndindex(array.shape):
        kept = array[place]
        array[place] = kept + STEP
        above = function()
        array[place] = kept - STEP
        result[place] = (above - function()) / (2 * STEP)
        array[place] = kept
    return result


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", MODULES)
def test_modules(name, neighborhood, directed):
    module, rng = MODULES[name], np.random.default_rng(1)
    graph, weights = neighborhood(directed), random_weights(module.parameters, rng)
    x = rng.normal(size=(12, 4))

    def forward():
        run = Pass(graph, weights, dict(module.state), training=True, epoch=7, seed=2)
        return module.forward(x.copy(), run), run

    y, run = forward()
    direction = rng.normal(size=y.shape)
    by_input = module.backward(direction.copy(), run)
    assert set(run.gradients) == set(weights)

    def value():
        return float((forward()[0] * direction).sum())

    assert_close(by_input, numeric(value, x))
    for parameter, weight in weights.items():
        assert run.gradients[parameter].dtype == np.float64
        assert_close(run.gradients[parameter], numeric(value, weight))


def test_relational_by_the_input(relational):
    module, rng = relational_layer("a", 4, 3, 3, 2), np.random.default_rng(1)
    graph, weights = relational(), random_weights(module.parameters, rng)
    x, direction = rng.normal(size=(12, 4)), rng.normal(size=(12, 3))

    def value():
        return float((module.forward(x, Pass(graph, weights, {}, training=True)) * direction).sum())

    value()
    assert_close(module.backward(direction.copy(), Pass(graph, weights, {}, training=True)), numeric(value, x))


@pytest.mark.parametrize(
    ("name", "features", "as_sparse"),
    [
        pytest.param(name, kind, as_sparse, marks=[pytest.mark.slow] if programmed(model) else [])
        for name, (model, _) in MODELS.items()
        for kind, columns in FEATURES.items()
        for as_sparse in ([False, True] if columns else [False])
        if columns or featureless(model)
    ],
)
def test_models(name, features, as_sparse, neighborhood, directed, relational):
    rng = np.random.default_rng(3)
    (model, values), columns = MODELS[name], FEATURES[features]
    graph = relational() if needs_types(model) else neighborhood(directed)
    chain = build(model, settings_of(model, values), columns, 3, nodes=12, relations=graph.arc_types)
    weights = random_weights(chain.parameters, rng)
    x = rng.normal(size=(12, columns)) * (rng.random((12, columns)) < 0.6) if columns else None
    x = sparse.csr_array(x) if as_sparse else x
    labels, chosen = rng.integers(0, 3, 12), np.array([0, 2, 3, 7, 11])

    def forward():
        run = Pass(graph, weights, dict(chain.state), training=True, epoch=1, seed=4)
        return chain.forward(x, run), run

    logits, run = forward()
    assert chain.backward(cross_entropy_gradient(logits, labels, chosen, 5), run, inputs=False) is None
    assert list(weights) == [parameter.name for parameter in chain.parameters]
    for parameter, weight in weights.items():
        expected = numeric(lambda: cross_entropy(forward()[0], labels, chosen) / 5, weight)
        assert run.gradients[parameter].dtype == np.float64, parameter
        assert_close(run.gradients[parameter], expected)
