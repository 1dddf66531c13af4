"""Vertex programs as layers, against the modules that are written by hand."""

import numpy as np
import pytest

from mgg import vertex as V
from mgg.model.arcwise import Attention
from mgg.model.layers import Linear
from mgg.model.module import Chain, Pass
from mgg.model.program import VertexLayer, Weight
from mgg.model.propagate import Normalized, narrow

HEADS, COLUMNS, INPUTS = 3, 4, 5


@V.program(loops=True)
def gat(v, W, a, b, rate):
    s = [V.leaky_relu(V.dot(u.x @ W, a) + V.dot(v.x @ W, b), 0.2) for u in v.innbs]
    p = V.dropout(V.softmax(s), rate)
    return V.sum(q * (u.x @ W) for q, u in zip(p, v.innbs, strict=True))


@V.program(loops=True)
def gcn(v, W):
    return v.norm * V.sum(e.weight * (e.src.norm * (e.src.x @ W)) for e in v.inedges)


def both(graph, modules, layer, names, training=True):
    """Outputs and gradients of ``modules`` and of ``layer``, from the same weights, by the layer's names."""
    rng = np.random.default_rng(3)
    x, gradient = rng.normal(size=(12, INPUTS)), None
    weights = {name: rng.normal(size=next(p.shape for p in layer.parameters if p.name == name)) for name in names}
    results = []
    for module in (modules, layer):
        shapes = {parameter.name: parameter.shape for parameter in module.parameters}
        known = {name if module is layer else names[name]: value for name, value in weights.items()}
        run = Pass(
            graph, {name: value.reshape(shapes[name]) for name, value in known.items()}, {}, training, epoch=2, seed=5
        )
        y = module.forward(x.copy(), run)
        gradient = rng.normal(size=y.shape) if gradient is None else gradient
        found = [y.copy()]
        if training:
            found.append(module.backward(gradient.copy(), run))
            found += [run.gradients[name if module is layer else names[name]].ravel() for name in names]
        results.append(found)
    return results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "rate"), [pytest.param(True, 0.4, marks=pytest.mark.sentinel), (True, 0.0), (False, 0.4)]
)
def test_attention(neighborhood, directed, training, rate):
    graph = neighborhood(directed)
    modules = Chain(Linear("l", INPUTS, HEADS * COLUMNS), Attention("a", HEADS, COLUMNS, rate, 7))
    weights = {"W": Weight((INPUTS, HEADS, COLUMNS)), "a": Weight((HEADS, COLUMNS)), "b": Weight((HEADS, COLUMNS))}
    layer = VertexLayer("p", gat, INPUTS, {**weights, "rate": rate}, place=7)
    names = {"p.W": "l.weight", "p.a": "a.source", "p.b": "a.target"}
    for expected, found in zip(*both(graph, modules, layer, names, training), strict=True):
        assert np.abs(found - expected).max() <= 1e-12 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("outputs", [3, 9])
def test_convolution(neighborhood, directed, outputs):
    graph = neighborhood(directed)
    modules = narrow(Linear("l", INPUTS, outputs), Normalized)
    layer = VertexLayer("p", gcn, INPUTS, {"W": Weight((INPUTS, outputs))})
    for expected, found in zip(*both(graph, modules, layer, {"p.W": "l.weight"}), strict=True):
        assert np.abs(found - expected).max() <= 1e-12 * max(1, np.abs(expected).max())
