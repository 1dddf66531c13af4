import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgg.kernel.random import drop_arcs, uniform, uniform_at


@given(st.integers(0, 2**63), st.integers(0, 1000), st.lists(st.integers(0, 2**40), min_size=1, max_size=8))
def test_numbers_depend_only_on_seed_stream_row_and_column(seed, stream, rows):
    rows = np.array(rows)
    whole = uniform(seed, stream, rows, 9)
    for i, row in enumerate(rows):
        assert np.array_equal(whole[i], uniform(seed, stream, np.array([row]), 9)[0])
        assert np.array_equal(whole[i, :4], uniform(seed, stream, np.array([row]), 4)[0])
    columns = np.arange(len(rows)) % 9
    assert np.array_equal(uniform_at(seed, stream, rows, columns), whole[np.arange(len(rows)), columns])


def test_known_values_never_change():
    # Written down once: a change would silently change every dropout mask, and so every published curve.
    assert uniform(0, 0, np.array([0, 1]), 2).tolist() == KNOWN


KNOWN = [[0.12964558601379395, 0.04992002248764038], [0.5914494395256042, 0.2925233244895935]]


def test_numbers_are_uniform_and_streams_independent():
    draws = uniform(7, 1, np.arange(20_000), 10)
    assert draws.dtype == np.float32 and draws.min() >= 0 and draws.max() < 1
    histogram = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert np.all(np.abs(histogram - 10_000) < 500)  # five standard deviations
    other = uniform(7, 2, np.arange(20_000), 10)
    neighbour = draws[1:].ravel(), draws[:-1].ravel()
    for a, b in ((draws.ravel(), other.ravel()), neighbour, (draws[:, 1:].ravel(), draws[:, :-1].ravel())):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.012


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [False, True])
def test_arc_dropout_depends_on_both_ends(turned, dtype):
    rng, nodes, arcs, heads, rate = np.random.default_rng(0), 50, 20_000, 3, 0.3
    ids, ends = rng.integers(0, 2**32, nodes), rng.integers(0, nodes, arcs).astype(np.int32)
    ptr = np.concatenate([[0], np.sort(rng.integers(0, arcs, nodes - 1)), [arcs]])
    values = rng.normal(size=(arcs, heads)).astype(dtype)
    values[:4] = [[np.nan, np.inf, 0.0], [-np.inf, -0.0, 1.0]] * 2
    near = np.repeat(np.arange(nodes), np.diff(ptr))
    targets, sources = (ends, near) if turned else (near, ends)
    columns = ids[sources][:, None] * heads + np.arange(heads)
    drawn = uniform_at(2**40, 7, np.repeat(ids[targets], heads), columns.ravel()).reshape(arcs, heads)
    with np.errstate(invalid="ignore"):
        expected = values * np.multiply(drawn >= rate, 1 / (1 - rate), dtype=dtype)
    drop_arcs(2**40, 7, ids, ptr, ends, values.copy(), rate, turned=turned)  # compiled now, if it was not
    tracemalloc.start()
    drop_arcs(2**40, 7, ids, ptr, ends, values, rate, turned=turned)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.tobytes() == expected.tobytes()
    assert peak < values.nbytes / 10
