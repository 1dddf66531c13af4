import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import symmetrized

from mgg.errors import InputError
from mgg.graph.csr import from_arcs, index_dtype, is_symmetric, row_ids

arc_lists = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(1, 9)), max_size=40),
    )
)


def reference(n, arcs, symmetrize, drop_loops):
    """{(row, column): weight}, first one kept; for symmetrize, per unordered pair."""
    first = {}
    for row, column, weight in arcs:
        if drop_loops and row == column:
            continue
        first.setdefault((min(row, column), max(row, column)) if symmetrize else (row, column), weight)
    if symmetrize:
        first |= {(b, a): weight for (a, b), weight in first.items()}
    return first


@given(arc_lists, st.booleans(), st.booleans(), st.booleans())
def test_csr_from_arcs_matches_a_dictionary(graph, symmetrize, drop_loops, weighted):
    n, arcs = graph
    rows, columns, weights = (np.array([arc[i] for arc in arcs], np.int64) for i in range(3))
    csr = from_arcs(
        rows, columns, n=n, weights=weights if weighted else None, symmetrize=symmetrize, drop_loops=drop_loops
    )
    expected = reference(n, arcs, symmetrize, drop_loops)
    found = list(zip(row_ids(csr).tolist(), csr.indices.tolist(), strict=True))
    assert found == sorted(expected)
    assert (csr.rows, csr.columns, csr.indptr[0], csr.indptr[-1]) == (n, n, 0, len(expected))
    assert (csr.indptr.dtype, csr.indices.dtype) == (np.int64, np.int32)
    if weighted:
        assert csr.weights.dtype == np.float32
        assert csr.weights.tolist() == [expected[arc] for arc in found]
    else:
        assert csr.weights is None
    if symmetrize:
        assert is_symmetric(csr)


@given(arc_lists)
def test_symmetry_is_detected_and_made(graph):
    n, arcs = graph
    rows, columns, weights = (np.array([arc[i] for arc in arcs], np.int64) for i in range(3))
    csr = from_arcs(rows, columns, n=n, weights=weights)
    dense = csr.to_scipy(np.float64).toarray()
    assert is_symmetric(csr) == bool((dense == dense.T).all())
    assert is_symmetric(symmetrized(csr))


def test_unsigned_and_narrow_ids_do_not_overflow():
    n = 100_000
    last = np.array([n - 1], np.uint32)
    csr = from_arcs(last, last.astype(np.int32), n=n, symmetrize=True)
    assert csr.indices.tolist() == [n - 1]
    assert csr.indptr[-2:].tolist() == [0, 1]


def test_ids_are_int64_from_2_to_the_31_nodes():
    assert index_dtype(2**31 - 1) == np.int32
    assert index_dtype(2**31) == np.int64


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([0, 1, 3], [0, 0, 0], r"arc 2: node id 3 is outside 0\.\.2"),
        ([0, 0], [0, -1], r"arc 1: node id -1 is outside 0\.\.2"),
        ([0.0, 1.0], [0, 1], "must be a vector of integers"),
        ([0, 1], [0], "2 targets, 1 sources"),
    ],
)
def test_invalid_arcs_are_named(rows, columns, message):
    with pytest.raises(InputError, match=message):
        from_arcs(np.array(rows), np.array(columns), n=3)
