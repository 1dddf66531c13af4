"""Sums of rows on CPU ranks have the bits of one arc after the other, in their order, however many a row has."""

import numpy as np
import pytest

from mgg.kernel import cpu

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


def one_by_one(ends, weights, x):
    """float64 [rows, columns]: the sums of weights times rows."""
    found = np.zeros((len(LENGTHS), x.shape[1]))
    for row in range(len(LENGTHS)):
        for k in range(POINTERS[row], POINTERS[row + 1]):
            found[row] += np.float64(weights[k]) * x[ends[k]]
    return found


@pytest.mark.parametrize("columns", [1, 3, 16, 41])
@pytest.mark.parametrize("weighted", [True, False])
def test_products_by_row(columns, weighted):
    ends, weights, x = drawn(columns)
    out = np.empty((len(LENGTHS), columns))
    cpu.spmm_rows(POINTERS, ends, weights if weighted else None, x, out, False)
    np.testing.assert_array_equal(out, one_by_one(ends, weights if weighted else np.ones_like(weights), x))
