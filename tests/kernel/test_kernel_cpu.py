import numpy as np
import pytest
from support.graphs import matrix, random_csr, relative_error

from mgg.kernel import cpu
from mgg.layout.neighbors import neighbor_partitions
from mgg.layout.split import transposed

DIMS = (1, 3, 16, 41)


@pytest.fixture(params=[False, True], ids=["unweighted", "weighted"])
def csr(request):
    return random_csr(300, 5_000, weighted=request.param)


@pytest.mark.parametrize("dim", DIMS)
def test_row_wise_product(csr, dim):
    b = np.random.default_rng(0).random((300, dim), np.float32)
    c = np.full((300, dim), np.nan, np.float32)
    cpu.spmm_rows(csr.indptr, csr.indices, csr.weights, b, c, False)
    assert relative_error(c, matrix(csr), b) < 2e-7
    before = c.copy()
    cpu.spmm_rows(csr.indptr, csr.indices, csr.weights, b, c, True)
    assert np.allclose(c, 2 * before, rtol=1e-6)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("ps", [1, 7, None])
def test_partition_wise_and_column_wise_products(csr, dim, ps):
    b = np.random.default_rng(0).random((300, dim), np.float32)
    pieces = neighbor_partitions(csr.indptr, ps)
    acc = cpu.accumulator(300, dim)
    acc[...] = 0
    cpu.spmm_partitions(pieces.rows, pieces.starts, pieces.stops, csr.indices, csr.weights, b, acc)
    assert relative_error(acc, matrix(csr), b) < 1e-14
    columns = transposed(csr).csr
    other = cpu.accumulator(300, dim)
    other[...] = 0
    for start in range(0, 300, 77):  # in pieces, as cola does
        stop = min(start + 77, 300)
        arcs = slice(columns.indptr[start], columns.indptr[stop])
        weights = None if columns.weights is None else columns.weights[arcs]
        cpu.spmm_columns(columns.indptr[start : stop + 1], columns.indices[arcs], weights, b[start:stop], other)
    assert relative_error(other, matrix(csr), b) < 1e-14
    c = np.empty((300, dim), np.float32)
    cpu.finish(acc, c)
    assert np.array_equal(c, acc.astype(np.float32))


def test_gather_rows():
    source = np.arange(20, dtype=np.float32).reshape(5, 4)
    out = np.empty((3, 4), np.float32)
    cpu.gather_rows(source, np.array([4, 0, 4], np.int32), out)
    assert np.array_equal(out, source[[4, 0, 4]])
