import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.graphs import awkward_graphs, random_csr

from mgg.errors import NOT_ENOUGH_MEMORY, InputError, MachineError
from mgg.graph.csr import from_arcs
from mgg.graph.store import Graph, write_graph
from mgg.partition.schemes import edge_balanced, equal_nodes, metis, schemes

# Rows without arcs, alone and in runs at either end, short rows, and hubs that hold more than a PE's share.
DEGREES = st.lists(
    st.one_of(st.just([0]), st.just([0] * 9), st.lists(st.integers(0, 9)), st.lists(st.integers(0, 10**6), max_size=2)),
    max_size=30,
).map(lambda runs: [degree for run in runs for degree in run])
AWKWARD = awkward_graphs()


def offsets_of(degrees):
    return np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)


@settings(max_examples=150)
@given(DEGREES, st.integers(1, 40))
@example([0, 0, 0, 5], 3)
@example([10**9] + [1] * 50, 7)
@example([1] * 50 + [0] * 50 + [10**9], 7)
@example([3, 3, 3, 3, 3], 2)
@example([], 4)
def test_split_points_are_nearest_to_their_targets(degrees, pes):
    offsets = offsets_of(degrees)
    bounds = edge_balanced.bounds(offsets, pes)
    assert bounds.dtype == np.int64 and len(bounds) == pes + 1
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and np.all(np.diff(bounds) >= 0)
    for p in range(1, pes):
        target = p * int(offsets[-1])
        assert abs(pes * offsets[bounds[p]] - target) == np.abs(pes * offsets - target).min()


@given(st.integers(0, 100), st.integers(1, 12))
def test_equal_nodes_differ_by_at_most_one(nodes, pes):
    bounds = equal_nodes.bounds(nodes, pes)
    assert bounds[0] == 0 and bounds[-1] == nodes
    assert np.ptp(np.diff(bounds)) <= 1


def test_rows_without_arcs_are_distributed():
    assert edge_balanced.bounds(np.zeros(11, np.int64), 5).tolist() == [0, 2, 4, 6, 8, 10]
    assert edge_balanced.bounds(offsets_of([4, 4] + [0] * 98), 2).tolist() == [0, 1, 100]
    assert edge_balanced.bounds(offsets_of([4] + [0] * 98 + [4]), 2).tolist() == [0, 50, 100]


def opened(folder, csr):
    write_graph(folder, csr, name="test", source={})
    return Graph.open(folder)


@pytest.mark.parametrize("scheme", schemes())
@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("pes", [1, 5])
def test_every_node_has_one_owner(scheme, name, pes, tmp_path):
    csr = AWKWARD[name]
    split = schemes()[scheme](opened(tmp_path / "graph", csr), pes)
    assert len(split.bounds) == pes + 1 and split.bounds[0] == 0 and split.bounds[-1] == csr.rows
    assert np.all(np.diff(split.bounds) >= 0)
    owners = split.owners()
    assert np.array_equal(np.bincount(owners, minlength=pes), np.diff(split.bounds))
    order = np.arange(csr.rows) if split.order is None else split.order
    assert np.array_equal(np.sort(order), np.arange(csr.rows))
    assert np.array_equal(np.searchsorted(split.bounds, order, side="right") - 1, owners)
    # The nodes of a PE keep their order.
    assert np.all(np.diff(owners[np.argsort(order)].astype(int)) >= 0)
    for pe in range(pes):
        assert np.all(np.diff(order[owners == pe]) > 0)


def cliques(count, size, rng=None):
    """Cliques in a ring, each joined to the next by one edge; node ids scattered by ``rng``."""
    rows, columns = np.nonzero(np.kron(np.eye(count), 1 - np.eye(size)))
    first = np.arange(count) * size
    rows, columns = np.append(rows, first), np.append(columns, np.roll(first, 1) + 1)
    ids = np.arange(count * size) if rng is None else rng.permutation(count * size)
    return from_arcs(ids[rows], ids[columns], n=count * size, symmetrize=True), ids


@pytest.mark.parametrize("symmetric", [True, False])
def test_metis_finds_planted_parts(symmetric, tmp_path):
    csr, ids = cliques(8, 20, np.random.default_rng(3))
    if not symmetric:  # only arcs from smaller to larger ids: METIS must see both directions
        rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
        csr = from_arcs(rows[rows > csr.indices], csr.indices[rows > csr.indices], n=csr.rows)
    owners = metis.split(opened(tmp_path / "graph", csr), 4).owners()
    of_cliques = owners[ids].reshape(8, 20)
    assert np.ptp(of_cliques, axis=1).max() == 0, "a clique is cut"
    assert np.bincount(of_cliques[:, 0]).tolist() == [2, 2, 2, 2]


def test_metis_balances_arcs_not_nodes(tmp_path):
    rng = np.random.default_rng(0)
    dense = from_arcs(rng.integers(0, 200, 8000), rng.integers(0, 200, 8000), n=2200, symmetrize=True)
    rows = np.repeat(np.arange(2200), np.diff(dense.indptr))
    ring = 200 + np.arange(2000)
    csr = from_arcs(
        np.append(rows, ring), np.append(dense.indices, np.roll(ring, 1)), n=2200, symmetrize=True, drop_loops=True
    )
    owners = metis.split(opened(tmp_path / "graph", csr), 4).owners()
    arcs = np.bincount(owners, weights=np.diff(csr.indptr))
    assert arcs.max() * 4 / arcs.sum() < 1.05
    assert np.ptp(np.bincount(owners)) > 100


def test_metis_distributes_nodes_without_arcs(tmp_path):
    csr = from_arcs(np.arange(30), (np.arange(30) + 1) % 30, n=1000, symmetrize=True)
    owners = metis.split(opened(tmp_path / "graph", csr), 7).owners()
    assert np.ptp(np.bincount(owners, minlength=7)) <= 7


@pytest.mark.parametrize("pes", [4, 5, 64])
def test_metis_with_no_more_nodes_than_pes_gives_each_node_its_own(pes, tmp_path):
    csr = from_arcs(np.arange(4), (np.arange(4) + 1) % 4, n=4, symmetrize=True)
    owners = metis.split(opened(tmp_path / "graph", csr), pes).owners()
    assert np.bincount(owners).max() == 1


def test_metis_refuses_a_false_claim_of_symmetry(tmp_path):
    ring = from_arcs(np.arange(30), (np.arange(30) + 1) % 30, n=30)
    write_graph(tmp_path / "lie", ring, name="lie", source={}, symmetric=True)
    with pytest.raises(InputError, match=r"lie: says that it is symmetric, and is not; make it again"):
        metis.split(Graph.open(tmp_path / "lie"), 3)


def test_metis_ignores_loops(tmp_path):
    csr, ids = cliques(4, 12)
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    every = np.arange(csr.rows)
    looped = from_arcs(np.append(rows, every), np.append(csr.indices, every), n=csr.rows)
    owners = metis.split(opened(tmp_path / "graph", looped), 2).owners()
    assert np.ptp(owners[ids].reshape(4, 12), axis=1).max() == 0


def test_graph_beyond_the_ids_of_metis_is_refused(tmp_path, monkeypatch):
    graph = opened(tmp_path / "graph", random_csr(300, 3000))
    monkeypatch.setattr(metis.pymetis, "zero_copy_dtype", lambda: np.dtype(np.int8))
    with pytest.raises(MachineError, match=r"--scheme metis: this METIS counts to 127 .* --scheme edge_balanced"):
        metis.split(graph, 2)


def test_metis_out_of_memory_is_reported(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise MemoryError("METIS could not allocate")

    graph = opened(tmp_path / "graph", random_csr(300, 3000))
    monkeypatch.setattr(metis.pymetis, "part_graph", fails)
    words = r"METIS failed \(METIS could not allocate\).* --scheme edge_balanced"
    with pytest.raises(MachineError, match=f"^{NOT_ENOUGH_MEMORY}: {words}"):
        metis.split(graph, 2)
