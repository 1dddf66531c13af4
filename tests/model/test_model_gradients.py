"""Every gradient against central finite differences in float64."""

import numpy as np
import pytest
from scipy import sparse
from support.models import featureless, needs_types, small

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

STEP, TOLERANCE = 1e-6, 1e-6


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
#: Columns of the features, and whether they are sparse; the first of six columns multiplies before it aggregates.
CASES = [(name, 6, False) for name in MODELS]
CASES += [(name, 0, False) for name, (model, _) in MODELS.items() if featureless(model)]
CASES += [("gcn", 2, False), ("gcn", 6, True), ("sage", 6, True), ("appnp", 2, True)]


def random_weights(parameters, rng):
    """Float64 weights away from their special first values."""
    return {
        p.name: v + rng.normal(0, 0.3, v.shape)
        for p, v in zip(parameters, initial_weights(parameters, 0).values(), strict=True)
    }


def assert_gradient(found, function, array):
    """``found`` is the gradient of a scalar function by ``array``: central differences along random directions."""
    rng, kept = np.random.default_rng(6), array.copy()
    assert (found.dtype, found.shape) == (np.float64, array.shape)
    for _ in range(3):
        direction = rng.normal(size=array.shape)
        ends = []
        for step in (STEP, -STEP):
            array[...] = kept + step * direction
            ends.append(function())
        array[...] = kept
        expected, scale = (ends[0] - ends[1]) / (2 * STEP), np.linalg.norm(found)
        assert abs(np.vdot(found, direction) - expected) <= TOLERANCE * max(1.0, scale)


@pytest.mark.parametrize("name", MODULES)
def test_module_gradients_match_finite_differences(name, neighborhood, directed):
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

    assert_gradient(by_input, value, x)
    for parameter, weight in weights.items():
        assert_gradient(run.gradients[parameter], value, weight)


@pytest.mark.parametrize(("name", "columns", "as_sparse"), CASES)
def test_model_gradients_match_finite_differences(name, columns, as_sparse, neighborhood, directed, relational):
    rng, (model, values) = np.random.default_rng(3), MODELS[name]
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
        assert_gradient(run.gradients[parameter], lambda: cross_entropy(forward()[0], labels, chosen) / 5, weight)
