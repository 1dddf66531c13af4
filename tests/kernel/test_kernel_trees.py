"""The planner of technique dgcl: who forwards a row to whom, and when."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mgg.kernel.trees import grow


def grown(owners, needed, counts, *, members, batch=1, slow=10.0):
    """Parents and stages [K, P] of the chunks of each class, and the seconds of each stage."""
    needed, counts = np.array(needed, bool), np.array(counts)
    chunks = np.concatenate([[0], np.cumsum(-(-counts // batch))])
    parents = np.empty((int(chunks[-1]), needed.shape[1]), np.int16)
    stages = np.empty_like(parents)
    busiest = grow(np.array(owners), needed, counts, chunks, batch, members, np.array([1.0, slow]), parents, stages)
    return parents, stages, busiest


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_trees_reach_every_pe_and_enter_a_workgroup_once(data):
    pes, members = data.draw(st.sampled_from([(1, 1), (4, 2), (6, 3), (7, 2), (8, 8)]))
    classes, batch = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    owners = [data.draw(st.integers(0, pes - 1)) for _ in range(classes)]
    needed = [[pe != owner and data.draw(st.booleans()) for pe in range(pes)] for owner in owners]
    counts = [data.draw(st.integers(1, 9)) for _ in range(classes)]
    parents, stages, busiest = grown(owners, needed, counts, members=members, batch=batch)

    of_chunk = [c for c, count in enumerate(counts) for _ in range(-(-count // batch))]
    sizes = [min(batch, count - at) for count in counts for at in range(0, count, batch)]
    ports = {}
    for chunk, (c, rows) in enumerate(zip(of_chunk, sizes, strict=True)):
        owner, entries = owners[c], []
        assert (parents[chunk] >= 0).tolist() == needed[c]
        for pe in np.flatnonzero(needed[c]).tolist():
            parent, stage = int(parents[chunk, pe]), int(stages[chunk, pe])
            assert parent == owner or needed[c][parent]
            assert stage == (0 if parent == owner else int(stages[chunk, parent]) + 1)
            far = parent // members != pe // members
            entries += [pe // members] * far
            for port in (("out", parent, far, stage), ("in", pe, far, stage)):
                ports[port] = ports.get(port, 0) + rows * (10 if far else 1)
        others = {pe // members for pe in np.flatnonzero(needed[c])} - {owner // members}
        assert sorted(entries) == sorted(others)
    expected = [max((load for port, load in ports.items() if port[3] == stage), default=0) for stage in range(pes)]
    assert busiest.tolist() == expected


def test_slow_link_carries_a_row_once():
    parents, stages, busiest = grown([0], [[0, 0, 1, 1]], [1], members=2)
    assert parents.tolist() == [[-1, -1, 2, 0]] or parents.tolist() == [[-1, -1, 0, 2]]
    assert sorted(stages[0, 2:]) == [0, 1] and busiest.tolist() == [10, 1, 0, 0]


def test_rows_enter_a_workgroup_over_all_its_pes():
    """PE 0 has eight rows for both PEs of the other workgroup: each takes four from it, and passes them on."""
    parents, _, _ = grown([0], [[0, 0, 1, 1]], [8], members=2)
    entry = np.where(parents[:, 2] == 0, 2, 3)
    assert np.bincount(entry).tolist() == [0, 0, 4, 4]


def test_pe_that_has_a_row_forwards_it():
    """PE 3 sends a row to the other workgroup, which passes it on; so it sends one more at once, and not two."""
    parents, stages, busiest = grown([3, 3], [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], [1, 1], members=3, slow=1.0)
    assert parents.tolist() == [[3, 0, -1, -1, -1, -1], [-1, -1, -1, -1, 3, 4]]
    assert stages.tolist() == [[0, 1, -1, -1, -1, -1], [-1, -1, -1, -1, 0, 1]] and busiest.tolist()[:3] == [1, 1, 0]
