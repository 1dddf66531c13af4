"""Gradients of attention by its scores are differences of sums: what float32 keeps of them where little is left."""

import numpy as np
import pytest
from support.graphs import products

from mgg.graph.csr import from_arcs
from mgg.model.module import Pass
from mgg.model.neighborhood import Neighborhood
from mgg.model.program import VertexLayer, Weight
from mgg.model.zoo.gat import attention

NODES, ARCS, COLUMNS = 200, 4_000, 16


def gradients(real, offset):
    """By both vectors and the input, of features around ``offset``; a third of the arcs come from one node."""
    rng, ids = np.random.default_rng(0), np.arange(NODES)
    sources = np.where(rng.random(ARCS) < 0.3, 7, rng.integers(0, NODES, ARCS))
    csr = from_arcs(rng.integers(0, NODES, ARCS), sources, n=NODES)
    product = products(csr, np.array([0, NODES]))[0]
    graph = Neighborhood(NODES, ids, np.ones(NODES), None, None, np.copy, product=product, ids=ids, real=real)

    def drawn(*shape):
        return rng.normal(0, 1, shape).astype(np.float32).astype(real)

    ends = Weight((1, COLUMNS))
    weights = {"weight": Weight((COLUMNS, COLUMNS)), "target": ends, "source": ends, "rate": 0.0}
    layer = VertexLayer("a", attention, COLUMNS, weights)
    values = {"a.weight": np.eye(COLUMNS, dtype=real)}
    values |= {name: drawn(1, COLUMNS) / 8 for name in ("a.target", "a.source")}
    run = Pass(graph, values, {}, training=True)
    layer.forward((offset + drawn(NODES, COLUMNS)).astype(np.float32).astype(real), run)
    by_x = layer.backward(drawn(NODES, COLUMNS), run)
    return [run.gradients["a.target"], run.gradients["a.source"], by_x]


#: PyTorch's float32, arc by arc, is off by 7e-6 and 1e-5 in graphs like these.
@pytest.mark.parametrize(("offset", "tolerance"), [(0, 1e-6), (3, 1e-5)])
def test_attention_survives_features_with_an_offset(offset, tolerance):
    for found, right in zip(gradients(np.float32, offset), gradients(np.float64, offset), strict=True):
        assert np.abs(found - right).max() <= tolerance * np.abs(right).max()
