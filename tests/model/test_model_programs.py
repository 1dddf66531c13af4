"""Layers of the models that are vertex programs, in float64, against the interpreter of what was traced."""

import numpy as np
import pytest
from support.models import needs_types, programmed, small

from mgg.model import build, models, settings_of
from mgg.model.module import Pass
from mgg.model.program import programs_of
from mgg.vertex import ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import ArcGraph, evaluate

pytestmark = pytest.mark.slow
SEED, EPOCH = 5, 2


def interpreted(layer, graph, x, weights, seeds, arc_features):
    """Outputs and gradients of a layer, from its trace as it is: nothing rewritten, nothing compiled."""
    trace = layer.program.trace({"x": layer.shape}, layer.given, arc_inputs=layer.arcs, types=layer.relations)
    tables = graph.tables(**layer._over)
    targets = np.repeat(np.arange(tables.rows), np.diff(tables.ptr))
    arcs = ArcGraph.of(
        tables.rows, targets, tables.ends, types=tables.types, ids=tables.ids, type_count=tables.type_count
    )
    given = [ir.leaf(f"seed {k}", output.space, output.shape) for k, output in enumerate(trace.outputs)]
    inputs = {"x": trace.inputs["x"], **{name: trace.inputs[name] for name in layer.arcs}, **trace.parameters}
    leaves = {
        "x": x.reshape(-1, *layer.shape), "norm": graph.norm(loops=layer.program.loops),
        "scaler": graph.scaler(loops=layer.program.loops),
        "weight": np.ones(len(tables.ends)) if tables.weights is None else tables.weights,
        **{leaf["name"]: seed.reshape(-1, *leaf.shape) for leaf, seed in zip(given, seeds, strict=True)},
        **{name: array.reshape(-1, *layer.arcs[name]) for name, array in arc_features.items()},
        **{name: weights[known] for known, name in layer._keys.items()},
    }  # fmt: skip
    wanted = [*trace.outputs, *gradients(trace.outputs, given, list(inputs.values()))]
    found = evaluate(wanted, arcs, leaves, masks=(SEED, EPOCH))
    return found[: len(given)], dict(zip(inputs, found[len(given) :], strict=True))


@pytest.mark.parametrize("model", filter(programmed, models()))
def test_layers(model, neighborhood, directed, relational):
    graph = relational() if needs_types(model) else neighborhood(directed)
    graph.plan = graph.transposed = None  # they are of float32: products go over the arcs
    chain = build(model, settings_of(model, small(model, 4)), 6, 3, nodes=12, relations=graph.arc_types)
    rng = np.random.default_rng(4)
    layers = programs_of(chain)
    assert layers
    for layer in layers:
        layer.place = 0  # the interpreter counts dropouts from there
        x = rng.normal(size=(12, layer.columns))
        weights = {each.name: rng.normal(size=each.shape) for each in layer.parameters}
        count = len(graph.tables(**layer._over).ends)
        features = {name: rng.normal(size=(count, *shape)) for name, shape in layer.arcs.items()}
        run = Pass(graph, weights, {}, training=True, epoch=EPOCH, seed=SEED, arcs=dict(features))
        found = [layer.forward(x.copy(), run), *(run.arcs[name] for name in layer.keeps)]
        seeds = [rng.normal(size=each.shape) for each in found]
        run.arc_gradients = dict(zip(layer.keeps, seeds[1:], strict=True))
        expected, by = interpreted(layer, graph, x, weights, seeds, features)
        for each, other in zip(found, expected, strict=True):
            assert_close(each, other.reshape(each.shape))
        assert_close(layer.backward(seeds[0].copy(), run), by.pop("x").reshape(x.shape))
        assert set(run.arc_gradients) == set(layer.arcs)
        for name in layer.arcs:
            assert_close(run.arc_gradients[name], by.pop(name).reshape(count, -1))
        for known, name in layer._keys.items():
            assert np.abs(by[name]).max() > 0, name
            assert_close(run.gradients[known], by[name])


def assert_close(found, expected):
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
