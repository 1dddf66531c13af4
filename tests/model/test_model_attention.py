"""Gradients of attention by its scores are differences of sums: what float32 keeps of them where little is left."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import products

from mgg.graph.csr import from_arcs
from mgg.model.arcs import arcs_with_loops
from mgg.model.arcwise import Attention
from mgg.model.arrays import HostArrays
from mgg.model.halo import NoHalo

NODES, ARCS, COLUMNS = 2_000, 40_000, 16


def gradients(real, offset):
    """By every parameter and the input, of features around ``offset``; a third of the arcs come from one node."""
    rng = np.random.default_rng(0)
    sources = np.where(rng.random(ARCS) < 0.3, 7, rng.integers(0, NODES, ARCS))
    csr = from_arcs(rng.integers(0, NODES, ARCS), sources, n=NODES)
    product, arrays = products(csr, np.array([0, NODES]))[0], HostArrays()
    arcs = arcs_with_loops(product, NoHalo(), np.arange(NODES), None, arrays)

    def drawn(*shape):
        return rng.normal(0, 1, shape).astype(np.float32).astype(real)

    attention = Attention("a", 1, COLUMNS, 0.0, 0)
    run = SimpleNamespace(
        arrays=arrays, graph=SimpleNamespace(arcs=lambda weighted: arcs, halo=NoHalo()), gradients={}, training=True,
        weights={each.name: drawn(1, COLUMNS) / 8 for each in attention.parameters},
    )  # fmt: skip
    attention.forward((offset + drawn(NODES, COLUMNS)).astype(np.float32).astype(real), run)
    by_x = attention.backward(drawn(NODES, COLUMNS), run)
    return [*run.gradients.values(), by_x]


#: PyTorch's float32, arc by arc, is off by 7e-6 and 1e-5 in graphs like these.
@pytest.mark.parametrize(("offset", "tolerance"), [(0, 1e-6), (3, 1e-5)])
def test_features_with_an_offset(offset, tolerance):
    for found, right in zip(gradients(np.float32, offset), gradients(np.float64, offset), strict=True):
        assert np.abs(found - right).max() <= tolerance * np.abs(right).max()
