import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgg.partition import edge_balanced, equal_nodes

DEGREES = st.lists(st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 1000)), min_size=0, max_size=60)


def offsets_of(degrees):
    return np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)


@given(DEGREES, st.integers(1, 12))
def test_every_pe_is_within_the_largest_row_of_the_ideal_share(degrees, pes):
    offsets = offsets_of(degrees)
    bounds = edge_balanced.split(offsets, pes)
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and np.all(np.diff(bounds) >= 0)
    share = np.diff(offsets[bounds]) - offsets[-1] / pes
    assert np.all(np.abs(share) <= max(degrees, default=0) + 1)


@given(DEGREES, st.integers(1, 12))
def test_each_split_is_at_the_row_nearest_to_its_target(degrees, pes):
    offsets = offsets_of(degrees)
    if offsets[-1] == 0:
        return
    bounds = edge_balanced.split(offsets, pes)
    for p in range(1, pes):
        target = p * int(offsets[-1]) // pes
        assert abs(offsets[bounds[p]] - target) == np.abs(offsets - target).min()


@given(st.integers(0, 100), st.integers(1, 12))
def test_equal_nodes_differ_by_at_most_one(nodes, pes):
    bounds = equal_nodes.split(np.zeros(nodes + 1, np.int64), pes)
    assert bounds[0] == 0 and bounds[-1] == nodes
    assert np.ptp(np.diff(bounds)) <= 1


def test_a_graph_without_arcs_is_split_by_nodes():
    assert edge_balanced.split(np.zeros(11, np.int64), 5).tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("pes", [2, 3, 7])
def test_the_greedy_loop_of_the_paper_is_worse(pes):
    # Algorithm 1 as printed: the target of each split is the last split's offset plus a fixed share.
    offsets = offsets_of([7] * 40)
    share, last, greedy = -(-int(offsets[-1]) // pes), 0, []
    for _ in range(pes - 1):
        last = int(np.searchsorted(offsets, min(offsets[last] + share, offsets[-1])))
        greedy.append(last)
    ours = edge_balanced.split(offsets, pes)
    spread = [np.ptp(np.diff(offsets[[0, *splits, 40]])) for splits in (greedy, ours[1:-1])]
    assert spread[1] <= spread[0]
