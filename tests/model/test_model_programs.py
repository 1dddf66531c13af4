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


def interpreted(layer, graph, x, weights, seed):
    """Output and gradients of a layer, from its trace as it is: nothing rewritten, nothing compiled."""
    trace = layer.program.trace({"x": layer.shape}, layer.given, types=layer.relations)
    tables = graph.tables(loops=layer.program.loops)
    targets = np.repeat(np.arange(tables.rows), np.diff(tables.ptr))
    arcs = ArcGraph.of(
        tables.rows, targets, tables.ends, types=tables.types, ids=tables.ids, type_count=tables.type_count
    )
    (output,) = trace.outputs
    given = ir.leaf("seed", output.space, output.shape)
    wrt = [trace.inputs["x"], *trace.parameters.values()]
    leaves = {
        "x": x.reshape(-1, *layer.shape), "norm": graph.norm(loops=layer.program.loops),
        "scaler": graph.scaler(loops=layer.program.loops), "seed": seed.reshape(-1, *output.shape),
        **{name: weights[f"{layer.name}.{name}"] for name in trace.parameters},
    }  # fmt: skip
    found = evaluate([output, *gradients([output], [given], wrt)], arcs, leaves, masks=(SEED, EPOCH))
    return found[0], dict(zip(["x", *trace.parameters], found[1:], strict=True))


@pytest.mark.parametrize("model", filter(programmed, models()))
def test_layers(model, neighborhood, directed, relational):
    chain = build(model, settings_of(model, small(model, 4)), 6, 3, nodes=12, relations=3)
    graph = relational() if needs_types(model) else neighborhood(directed)
    rng = np.random.default_rng(4)
    layers = programs_of(chain)
    assert layers
    for layer in layers:
        layer.place = 0  # the interpreter counts dropouts from there
        x = rng.normal(size=(12, layer.columns))
        weights = {each.name: rng.normal(size=each.shape) for each in layer.parameters}
        run = Pass(graph, weights, {}, training=True, epoch=EPOCH, seed=SEED)
        y = layer.forward(x.copy(), run)
        seed = rng.normal(size=y.shape)
        expected, by = interpreted(layer, graph, x, weights, seed)
        assert_close(y, expected.reshape(y.shape))
        assert_close(layer.backward(seed.copy(), run), by.pop("x").reshape(x.shape))
        for name, gradient in by.items():
            assert np.abs(gradient).max() > 0, name
            assert_close(run.gradients[f"{layer.name}.{name}"], gradient)


def assert_close(found, expected):
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
