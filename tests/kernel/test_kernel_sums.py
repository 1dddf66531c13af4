"""Sums of rows on CPU ranks have the bits of one arc after the other, in their order, however many a row has."""

import numpy as np
import pytest
from support.graphs import matrix, random_csr, relative_error

from mgg.kernel import cpu
from mgg.kernel.bf16 import from_bf16, to_bf16
from mgg.kernel.threads import deal, threads_of_pe, threads_per_pe
from mgg.layout.neighbor_partitions import neighbor_partitions
from mgg.layout.split import transposed

#: Arcs of each row: none, fewer than a step of the loop takes, and steps with each rest.
LENGTHS = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 0, 37])
POINTERS = np.concatenate(([0], np.cumsum(LENGTHS)))
NODES = 50


def drawn(columns):
    """Ends, weights of both signs, and rows, whose sums differ in bits with the order of the arcs."""
    rng = np.random.default_rng(columns)
    ends = rng.integers(0, NODES, POINTERS[-1]).astype(np.int32)
    spread = 10.0 ** rng.integers(-8, 8, (NODES, 1))
    x = (rng.normal(size=(NODES, columns)) * spread).astype(np.float32)
    return ends, rng.normal(size=len(ends)).astype(np.float32), x


def one_by_one(ends, weights, x, start=0.0):
    """float64 [rows, columns]: ``start`` and the sums of weights times rows."""
    found = np.full((len(LENGTHS), x.shape[1]), start)
    for row in range(len(LENGTHS)):
        for k in range(POINTERS[row], POINTERS[row + 1]):
            found[row] += np.float64(weights[k]) * x[ends[k]]
    return found


@pytest.mark.parametrize("columns", [1, 3, 7, 8, 16, 41, 64, 100, 128, 300])
@pytest.mark.parametrize("start", ["new", "float32", "float64"])
@pytest.mark.parametrize("weighted", [True, False])
def test_any_width_writes_only_its_columns(columns, start, weighted):
    ends, weights, x = drawn(columns)
    held = np.full((len(LENGTHS), columns + 9), 0.5, np.float64 if start == "float64" else np.float32)
    wide = np.full((NODES, columns + 5), np.nan, np.float32)
    wide[:, :columns] = x
    given = weights if weighted else None
    cpu.spmm_rows(POINTERS, ends, given, wide[:, :columns], held[:, :columns], start != "new")
    expected = one_by_one(ends, weights if weighted else np.ones_like(weights), x, 0.0 if start == "new" else 0.5)
    np.testing.assert_array_equal(held[:, :columns], expected.astype(held.dtype))
    assert (held[:, columns:] == 0.5).all()


@pytest.mark.parametrize("weighted", [True, False])
def test_partition_and_column_products_match_float64(weighted):
    """To float64; columns in pieces, as cola has them."""
    csr = random_csr(300, 5_000, weighted=weighted)
    for dim in (1, 3, 41):
        b, (acc, other) = np.random.default_rng(0).random((300, dim), np.float32), np.zeros((2, 300, dim))
        pieces = neighbor_partitions(csr.indptr, 7)
        cpu.spmm_partitions(pieces.rows, pieces.starts, pieces.stops, csr.indices, csr.weights, b, acc)
        columns = transposed(csr).csr
        for start in range(0, 300, 77):
            stop = min(start + 77, 300)
            arcs = slice(columns.indptr[start], columns.indptr[stop])
            weights = None if columns.weights is None else columns.weights[arcs]
            cpu.spmm_columns(columns.indptr[start : stop + 1], columns.indices[arcs], weights, b[start:stop], other)
        assert relative_error(acc, matrix(csr), b) < 1e-14 and relative_error(other, matrix(csr), b) < 1e-14


@pytest.mark.parametrize("columns", [16, 128])
def test_matrix_beyond_the_caches_matches_float64(columns):
    """Their sums are other code: such rows are prefetched twice."""
    ends, weights, x = drawn(columns)
    large = np.zeros((2**23 // columns, columns), np.float32)
    large[-NODES:] = x
    out = np.empty((len(LENGTHS), columns))
    cpu.spmm_rows(POINTERS, ends + np.int32(len(large) - NODES), weights, large, out, False)
    np.testing.assert_array_equal(out, one_by_one(ends, weights, x))


@pytest.mark.parametrize("columns", [3, 41])
def test_bf16_rows_are_widened(columns):
    ends, weights, x = drawn(columns)
    rounded = to_bf16(x)
    found, expected = np.empty((2, len(LENGTHS), columns), np.float32)
    cpu.spmm_rows(POINTERS, ends, weights, rounded, found, False)
    cpu.spmm_rows(POINTERS, ends, weights, from_bf16(rounded), expected, False)
    np.testing.assert_array_equal(found, expected)


def test_ids_and_weights_may_be_columns_of_matrices():
    ends, weights, x = drawn(16)
    pairs, heads = np.stack([ends, ends[::-1]], 1).astype(np.int64), np.stack([weights, -weights], 1)
    out = np.empty((len(LENGTHS), 16))
    cpu.spmm_rows(POINTERS, pairs[:, 0], heads[:, 0], x, out, False)
    np.testing.assert_array_equal(out, one_by_one(ends, weights, x))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("accumulate", [False, True])
def test_number_of_threads_does_not_change_the_bits(threads, accumulate):
    csr = random_csr(3_000, 20_000, weighted=True)
    x = np.random.default_rng(1).normal(size=(3_000, 41)).astype(np.float32)
    one, several = np.ones((2, 3_000, 41), np.float32)
    cpu.spmm_rows(csr.indptr, csr.indices, csr.weights, x, one, accumulate)
    with threads_per_pe(threads, 1):
        assert threads_of_pe() == threads
        cpu.spmm_rows(csr.indptr, csr.indices, csr.weights, x, several, accumulate)
    assert threads_of_pe() == 1
    np.testing.assert_array_equal(one, several)


@pytest.mark.parametrize("lengths", [[0], [0, 0, 0], [500], [0, 500, 0, 0, 1], [1] * 1_000, []])
def test_threads_get_each_row_once(lengths):
    dealt = []
    with threads_per_pe(2, 1):
        deal(np.cumsum([0, *lengths]), lambda first, last: dealt.extend(range(first, last)))
    assert sorted(dealt) == list(range(len(lengths)))


def test_exception_of_a_thread_is_raised():
    def fail(first, last):
        raise ValueError(f"rows {first} to {last}")

    with threads_per_pe(2, 1), pytest.raises(ValueError, match="rows"):
        deal(np.arange(1_000), fail)
