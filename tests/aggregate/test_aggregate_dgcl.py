"""Technique dgcl: trees of the planner, what crosses along them, and the products of what arrives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossings import crossings
from support.graphs import awkward_graphs, make_layout, random_csr
from support.products import worst
from support.spmm_program import inputs, products
from support.strict import HostsWorld

from mgg import layout
from mgg.aggregate import prepare
from mgg.backend import simulated
from mgg.kernel.trees import grow

GRAPHS = awkward_graphs()


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
def test_trees_reach_all_that_need_a_row_and_enter_a_workgroup_once(data):
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


def test_a_slow_link_carries_a_row_once_and_mates_pass_it_on():
    parents, stages, busiest = grown([0], [[0, 0, 1, 1]], [1], members=2)
    assert parents.tolist() == [[-1, -1, 2, 0]] or parents.tolist() == [[-1, -1, 0, 2]]
    assert sorted(stages[0, 2:]) == [0, 1] and busiest.tolist() == [10, 1, 0, 0]


def test_rows_enter_a_workgroup_by_all_of_its_pes():
    """PE 0 has eight rows for both PEs of the other workgroup: each takes four from it, and passes them on."""
    parents, _, _ = grown([0], [[0, 0, 1, 1]], [8], members=2)
    entry = np.where(parents[:, 2] == 0, 2, 3)
    assert np.bincount(entry).tolist() == [0, 0, 4, 4]


def test_a_pe_that_has_a_row_relieves_its_owner():
    """PE 3 sends a row to the other workgroup, which passes it on; so it sends one more at once, and not two."""
    parents, stages, busiest = grown([3, 3], [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], [1, 1], members=3, slow=1.0)
    assert parents.tolist() == [[3, 0, -1, -1, -1, -1], [-1, -1, -1, -1, 3, 4]]
    assert stages.tolist() == [[0, 1, -1, -1, -1, -1], [-1, -1, -1, -1, 0, 1]] and busiest.tolist()[:3] == [1, 1, 0]


@pytest.mark.parametrize(("pes", "members", "kind"), [(4, 4, "ranks"), (6, 2, "ranks"), (4, 2, "hosts")])
def test_every_product_has_the_bits_of_one_pe(tmp_path, pes, members, kind):
    chosen = {"dgcl": {"workgroup": members, "batch": 3}}
    for number, name in enumerate(("weighted", "empty rows", "more PEs than nodes")):
        csr = GRAPHS[name]
        alone = make_layout(tmp_path / f"{number}a", csr, 1)
        folder = make_layout(tmp_path / f"{number}b", csr, pes)
        one = simulated.run(1, lambda world: products(world, alone, [1, 41], only=["local"]))[0]  # noqa: B023

        def program(raw):
            world = raw if kind == "ranks" else HostsWorld(raw, members)
            return products(world, folder, [1, 41], chosen, only=chosen)  # noqa: B023

        parts = simulated.run(pes, program)
        assert len(parts[0]) == 4 and worst(csr, parts) <= (1e-6,)
        for key, whole in one.items():
            found = np.concatenate([part[key.replace("local", "dgcl")] for part in parts])
            assert found.tobytes() == whole.tobytes(), (name, key)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(1, 60), st.integers(0, 500), st.sampled_from([(4, 4), (4, 2), (4, 1), (6, 3), (6, 2)]),
    st.integers(0, 10**6), st.sampled_from(["forward", "transpose"]), st.integers(1, 9),
)  # fmt: skip
def test_each_row_crosses_once_a_pe_and_once_a_workgroup(tmp_path_factory, nodes, arcs, shape, seed, direction, batch):
    pes, members = shape
    csr = random_csr(nodes, arcs, seed=seed)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes)

    def moved(world):
        options = {"workgroup": members, "batch": batch}
        plan = prepare("dgcl", world, layout.load(folder, world.rank), direction, 5, options)
        plan(5)
        plan.close()
        return [world.counters.bytes.get(way, 0) for way in ("put", "get")]

    put, fetched = np.sum(simulated.run(pes, moved), axis=0)
    between, _ = crossings(csr, pes, members, direction)
    once_a_pe = sum(crossings(csr, pes, 1, direction))
    assert (put, put + fetched) == (20 * between, 20 * once_a_pe)


def test_plans_are_the_same_every_time(tmp_path):
    folder = make_layout(tmp_path, random_csr(200, 3_000), 6)

    def program(world):
        part, found = layout.load(folder, world.rank), []
        for _ in range(2):
            plan = prepare("dgcl", world, part, "forward", 8, {"workgroup": 3})
            plan.write(8, inputs(part.node_ids, 8))
            found += [plan(8).tobytes() for _ in range(3)]
            plan.close()
        return len(set(found))

    assert simulated.run(6, program) == [1] * 6
