"""Attention's kernels on graphs that are hard on them, against the host's loops, which sum in float64."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support import gpus
from support.attended import NAMES, attended
from support.graphs import awkward_graphs, products, random_csr

from mgg.graph.csr import Csr, from_arcs
from mgg.kernel import random
from mgg.model.arcs import ArcLists, arcs_with_loops
from mgg.model.arrays import HostArrays
from mgg.model.arrays.scores import ArcDropout
from mgg.model.halo import NoHalo

cp = pytest.importorskip("cupy")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpus.count() == 0, reason="no GPU")]

TOLERANCE = 1e-5
HUB = np.arange(120_000)
GRAPHS = awkward_graphs() | {
    "row and column of 120,000 arcs": from_arcs(
        np.concatenate((HUB * 0 + 7, HUB)), np.concatenate((HUB, HUB * 0 + 7)), n=len(HUB)
    ),
    "large": random_csr(20_000, 600_000, seed=9),
    "long rows": random_csr(2_000, 600_000, seed=10),
    "more tasks than warps": random_csr(600_000, 900_000, seed=11),
}
#: Heads and columns of each: every number of floats a load, one tile of heads and several.
SHAPES = [(1, 1), (1, 16), (1, 41), (1, 130), (1, 300), (3, 5), (8, 8), (9, 2), (40, 4)]


#: What the host's loops take seconds for is left out.
CASES = [(name, shape) for name, csr in GRAPHS.items() for shape in SHAPES if csr.rows * np.prod(shape) < 2**26]


@pytest.fixture(scope="module")
def arrays():
    from mgg.kernel.cuda import CudaOperators
    from mgg.model.arrays.cuda import CudaArrays

    return CudaArrays(SimpleNamespace(upload=cp.asarray, operators=CudaOperators()))


def lists_of(csr: Csr, arrays) -> ArcLists:
    product, ids = products(csr, np.array([0, csr.rows]))[0], np.arange(csr.rows) * 3 + 2**33
    return arcs_with_loops(product, NoHalo(), ids, None, arrays)


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_attention(arrays, name, shape, ids):
    (heads, columns), csr, rng = shape, GRAPHS[name], np.random.default_rng(3)
    host, mine = HostArrays(), lists_of(csr, HostArrays())
    theirs = lists_of(csr, arrays)
    theirs = ArcLists(*(replace(side, ends=side.ends.astype(ids)) for side in (theirs.by_target, theirs.by_source)))
    given = [rng.normal(0, 1, (csr.rows, heads * width)).astype(np.float32) for width in (1, 1, columns, 1)]
    device = [cp.asarray(array) for array in given]
    for rate in (0.0, 0.6):
        epochs = (np.array([5.0]), cp.asarray(np.array([5.0])))
        draws = [ArcDropout(random.Draws(11, epoch, 2), rate) if rate else None for epoch in epochs]
        expected = attended(host, mine, given, draws[0])
        found, again = ([cp.asnumpy(array) for array in attended(arrays, theirs, device, draws[1])] for _ in range(2))
        for what, one, other, right in zip(NAMES, found, again, expected, strict=True):
            error = np.abs(one - right).max(initial=0) / max(1.0, np.abs(right).max(initial=0))
            assert error <= TOLERANCE, f"{what}: {error:.2g}"
            assert np.array_equal(one, other), what
        assert np.array_equal(found[0] == 0, expected[0] == 0)  # the same arcs are dropped


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_heads(arrays, shape):
    heads, columns = shape
    rng = np.random.default_rng(4)
    x, vectors = (rng.normal(0, 1, size).astype(np.float32) for size in ((3_001, heads * columns), (heads, columns)))
    found = cp.asnumpy(arrays.head_products(cp.asarray(x), cp.asarray(vectors)))
    expected = HostArrays().head_products(x.astype(np.float64), vectors)
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
