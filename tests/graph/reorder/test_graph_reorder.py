"""Orders: bijections that keep the graph, Rabbit's merges replayed by dense sums, quality, and auto's choice."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import awkward_graphs, matrix, random_csr, symmetrized

from mgg.errors import InputError
from mgg.graph.csr import Csr, from_arcs, row_ids
from mgg.graph.generators import communities
from mgg.graph.reorder import chosen, needed_bytes, orders, permutation, rabbit, rcm
from mgg.graph.reorder.communities import _sweep, contract, refine
from mgg.graph.reorder.merge import merge, walk
from mgg.graph.reorder.span import averaged_edge_span, pays
from mgg.graph.reorder.structure import adjacency, both_directions
from mgg.graph.store import Graph, shards, write_graph

MOVING = [name for name in orders() if name != "natural"]
GRAPHS = {
    **awkward_graphs(),
    "one node": from_arcs(np.array([], np.int64), np.array([], np.int64), n=1),
    "two components": from_arcs(np.array([0, 1, 4, 5]), np.array([1, 2, 5, 6]), n=7, symmetrize=True),
    "complete": from_arcs(*np.nonzero(1 - np.eye(60)), n=60),
}


@pytest.fixture
def several_parts(monkeypatch):
    """Cut graphs into parts of at most 150 vertices and 1,000 arcs."""
    monkeypatch.setattr(shards, "VERTICES_PER_PART", 150)
    monkeypatch.setattr(shards, "ARCS_PER_PART", 1_000)


def modularity(csr, community):
    """Newman's, of A + A^T without weights."""
    ends = np.concatenate([community[row_ids(csr)], community[csr.indices]]).reshape(2, -1)
    share = np.bincount(ends.ravel()) / ends.size
    return np.mean(ends[0] == ends[1]) - share @ share


def stored(folder, csr):
    write_graph(folder / "graph", csr, name="test", source={})
    return Graph.open(folder / "graph")


def relabeled(csr, rank):
    return from_arcs(rank[row_ids(csr)], rank[csr.indices], n=csr.rows, weights=csr.weights)


def shuffled(csr, seed: int = 0):
    return relabeled(csr, np.random.default_rng(seed).permutation(csr.rows))


def band(nodes, width):
    """Node v is joined to v + 1 .. v + width."""
    low = np.concatenate([np.arange(nodes - step) for step in range(1, width + 1)])
    high = np.concatenate([np.arange(step, nodes) for step in range(1, width + 1)])
    return from_arcs(low, high, n=nodes, symmetrize=True)


def path(nodes):
    return band(nodes, 1)


def halo_rows(csr, pes: int = 8):
    """Rows that all PEs need of others, the arcs split evenly: V_FC but for the size of a row."""
    owner = np.minimum(csr.indptr[:-1] * pes // max(csr.arcs, 1), pes - 1)
    reader, read = owner[row_ids(csr)], csr.indices.astype(np.int64)
    remote = owner[read] != reader
    return len(np.unique(reader[remote] * csr.rows + read[remote]))


def strengths(csr):
    return np.diff(csr.indptr).astype(np.float64)


def ones(csr):
    return np.ones(csr.arcs, np.float32)


# --- every order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("case", GRAPHS)
def test_order_is_a_bijection_that_keeps_the_graph(tmp_path, name, case):
    csr = GRAPHS[case]
    used, rank = permutation(stored(tmp_path, csr), name)
    if rank is None:
        assert (name, used) == ("auto", "natural")
        return
    assert used == (name if name != "auto" else "rabbit")
    assert rank.dtype == csr.indices.dtype
    assert np.array_equal(np.sort(rank), np.arange(csr.rows))
    back = matrix(relabeled(csr, rank))[rank][:, rank]
    assert (back != matrix(csr)).nnz == 0


@pytest.mark.parametrize("name", MOVING)
def test_order_does_not_depend_on_the_parts(tmp_path, name, request):
    csr = random_csr(700, 2_100, seed=5)
    _, whole = permutation(stored(tmp_path / "whole", csr), name)
    _, again = permutation(stored(tmp_path / "again", csr), name)
    request.getfixturevalue("several_parts")
    _, parts = permutation(stored(tmp_path / "parts", csr), name)
    assert np.array_equal(whole, again)
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("name", MOVING)
def test_order_does_not_depend_on_weights(tmp_path, name):
    csr = GRAPHS["weighted"]
    _, weighted = permutation(stored(tmp_path / "weighted", csr), name)
    _, plain = permutation(stored(tmp_path / "plain", Csr(csr.indptr, csr.indices, None, csr.columns)), name)
    assert np.array_equal(weighted, plain)


@pytest.mark.parametrize("name", MOVING)
def test_missing_part_is_an_input_error(tmp_path, name, several_parts, monkeypatch):
    graph = stored(tmp_path, GRAPHS["directed"])
    read, fill = [], Graph._fill_arcs
    monkeypatch.setattr(Graph, "_fill_arcs", lambda *asked: read.append(asked) or fill(*asked))
    permutation(graph, name)
    if not read:
        pytest.skip(f"order {name} reads no arcs")
    (graph.path / "adjacency" / "part-00003.parquet").unlink()
    with pytest.raises(InputError, match=r"part-00003\.parquet"):
        permutation(graph, name)


@pytest.mark.parametrize("name", ["rabbit", "rcm"])
def test_directed_graph_needs_the_memory_of_both_directions(name):
    symmetric, directed = (needed_bytes(name, 10**6, 10**8, symmetric=value) for value in (True, False))
    assert directed - symmetric >= 8 * 10**8
    assert symmetric >= 8 * 10**8


# A ring of one direction has as many arcs out of a node as into it; one arc among many has its reverse missing.
LIES = {
    "ring": from_arcs(np.arange(300), (np.arange(300) + 1) % 300, n=300),
    "one arc more": from_arcs(
        *(np.append(ends, one) for ends, one in zip((row_ids(path(600)), path(600).indices), (7, 590), strict=True)),
        n=600,
    ),
}


@pytest.mark.parametrize("name", ["auto", "rabbit", "rcm"])
@pytest.mark.parametrize("case", LIES)
def test_false_claim_of_symmetry_is_an_input_error(tmp_path, name, case, several_parts):
    write_graph(tmp_path / "lie", LIES[case], name="lie", source={}, symmetric=True)
    with pytest.raises(InputError, match=r"lie: says that it is symmetric, and is not; make it again"):
        permutation(Graph.open(tmp_path / "lie"), name)


def test_symmetry_is_checked_over_all_parts_without_weights(tmp_path, several_parts):
    csr = symmetrized(random_csr(700, 2_100, seed=5))
    weights = np.arange(csr.arcs, dtype=np.float32)
    weighted = Csr(csr.indptr, csr.indices, weights, csr.columns)
    write_graph(tmp_path / "graph", weighted, name="test", source={}, symmetric=True)
    offsets, indices = adjacency(Graph.open(tmp_path / "graph"))
    assert np.array_equal(offsets, csr.indptr)
    assert np.array_equal(indices, csr.indices)


# --- degree, rcm ------------------------------------------------------------------------------------------------------


def test_degree_order_descends_and_is_stable(tmp_path):
    csr = GRAPHS["directed"]
    _, rank = permutation(stored(tmp_path, csr), "degree")
    degree = (matrix(csr) != 0).sum(0).A1 + (matrix(csr) != 0).sum(1).A1
    expected = sorted(range(csr.rows), key=lambda v: (-degree[v], v))
    assert np.argsort(rank).tolist() == expected


def test_degree_of_a_symmetric_graph_counts_each_arc_once(tmp_path):
    _, rank = permutation(stored(tmp_path, from_arcs([0, 0, 1], [1, 2, 3], n=5, symmetrize=True)), "degree")
    assert np.argsort(rank).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("directed", [False, True])
def test_rcm_unrolls_a_shuffled_path(tmp_path, directed):
    csr = path(500)
    if directed:
        keep = row_ids(csr) < csr.indices
        csr = from_arcs(row_ids(csr)[keep], csr.indices[keep], n=500)
    hidden = shuffled(csr)
    _, rank = permutation(stored(tmp_path, hidden), "rcm")
    assert np.abs(rank[row_ids(hidden)] - rank[hidden.indices]).max() == 1


def test_rcm_hands_scipy_the_same_rows_by_ascending_degree():
    csr = GRAPHS["symmetric"]
    degree = np.diff(csr.indptr)
    sorted_rows = rcm._rows_by_degree(csr.indptr, csr.indices, np.argsort(degree, kind="stable"))
    for lo, hi in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        assert sorted(sorted_rows[lo:hi]) == csr.indices[lo:hi].tolist()
        assert (np.diff(degree[sorted_rows[lo:hi]]) >= 0).all()


def test_rcm_refuses_graphs_beyond_scipys_limit(tmp_path, monkeypatch):
    csr = GRAPHS["directed"]
    graph = stored(tmp_path, csr)
    monkeypatch.setattr(rcm, "MOST_ARCS", 2 * csr.arcs)
    permutation(graph, "rcm")
    monkeypatch.setattr(rcm, "MOST_ARCS", 2 * csr.arcs - 1)
    with pytest.raises(InputError, match="order rcm: SciPy takes at most"):
        permutation(graph, "rcm")


# --- span, auto -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GRAPHS)
def test_averaged_edge_span_is_the_mean_over_arcs(tmp_path, case, several_parts):
    coo = matrix(GRAPHS[case]).tocoo()
    spans = np.abs(coo.row.astype(np.int64) - coo.col)
    expected = spans.mean() if spans.size else 0.0
    assert averaged_edge_span(stored(tmp_path, GRAPHS[case])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("span", "nodes", "expected"),
    [
        *[(0.0, 100, False), (1.0, 9_999, True), (1.0, 10_000, False), (1.1, 10_000, True)],
        *[(4.0, 89_999, False), (4.1, 89_999, True), (9.0, 90_000, False), (9.1, 90_000, True)],
    ],
)
def test_reordering_pays_beyond_the_papers_threshold(span, nodes, expected):
    assert pays(span, nodes) is expected


def test_auto_reorders_only_a_shuffled_band(tmp_path):
    csr = band(40_000, 3)
    assert permutation(stored(tmp_path / "band", csr), "auto") == ("natural", None)
    hidden = stored(tmp_path / "hidden", shuffled(csr))
    used, rank = permutation(hidden, "auto")
    assert used == "rabbit"
    assert np.array_equal(rank, permutation(hidden, "rabbit")[1])


def test_auto_needs_the_memory_of_what_it_chooses(tmp_path):
    csr = band(40_000, 3)
    for folder, graph, expected in (("band", csr, "natural"), ("hidden", shuffled(csr), "rabbit")):
        assert chosen(stored(tmp_path / folder, graph), "auto") == expected
    # A path of 6 million nodes that is left alone takes no more than the natural order, which reads nothing.
    size = {"nodes": 6_000_000, "arcs": 11_999_998, "symmetric": True}
    assert needed_bytes("natural", **size) == 0
    assert needed_bytes("auto", **size) == needed_bytes("rabbit", **size) > 700 * 2**20


@pytest.mark.parametrize("name", ["natural", "degree", "rabbit", "rcm"])
def test_named_order_is_chosen(tmp_path, name):
    assert chosen(stored(tmp_path, GRAPHS["directed"]), name) == name
    with pytest.raises(InputError, match="unknown order 'rabit'; did you mean rabbit"):
        chosen(stored(tmp_path / "other", GRAPHS["directed"]), "rabit")


# --- rabbit -----------------------------------------------------------------------------------------------------------


def parents(child, sibling):
    """The vertex that each was merged into, -1 for roots."""
    parent = np.full(len(child), -1)
    for v in range(len(child)):
        below = child[v]
        while below >= 0:
            parent[below] = v
            below = sibling[below]
    return parent


@pytest.mark.parametrize("resolution", [1.0, 0.25])
@pytest.mark.parametrize("case", ["symmetric", "two components", "complete", "no remote arcs", "row of 10,000 arcs"])
def test_every_merge_has_the_largest_gain_of_its_turn(case, resolution):
    """Replays the dendrogram; every gain comes from dense sums over the arcs of what is one tree at that moment."""
    full = symmetrized(GRAPHS[case])
    csr = full if full.rows <= 500 else symmetrized(random_csr(300, 2_000, seed=9))
    a = matrix(csr).toarray()
    np.fill_diagonal(a, 0)
    strength = strengths(csr)
    tree = merge(csr.indptr, csr.indices.copy(), ones(csr), strength, resolution=resolution)
    parent, label = parents(tree.child, tree.sibling), np.arange(csr.rows)
    for v in np.argsort(strength, kind="stable"):
        mine = label == v
        links = np.bincount(label, a[mine].sum(0), csr.rows)
        sizes = np.bincount(label, strength, csr.rows)
        gains = np.where(links > 0, links - resolution * sizes[v] * sizes / strength.sum(), -np.inf)
        gains[v] = -np.inf
        if parent[v] < 0:
            assert gains.max() <= 1e-9
        else:
            assert gains[parent[v]] == pytest.approx(gains.max(), abs=1e-9)
            assert gains.max() > 0
            label[mine] = parent[v]
    assert np.array_equal(label, tree.root)


def test_arcs_of_ones_need_no_filled_weights():
    csr = GRAPHS["symmetric"]
    plain = merge(csr.indptr, csr.indices.copy(), ones(csr), strengths(csr))
    unfilled = merge(csr.indptr, csr.indices.copy(), np.full(csr.arcs, np.nan, np.float32), strengths(csr), ones=True)
    assert all(np.array_equal(a, b) for a, b in zip(plain, unfilled, strict=True))


def test_dendrogram_walk_keeps_subtrees_together():
    csr = GRAPHS["symmetric"]
    tree = merge(csr.indptr, csr.indices.copy(), ones(csr), strengths(csr))
    sequence, parent = walk(*tree), parents(tree.child, tree.sibling)
    assert np.array_equal(np.sort(sequence), np.arange(csr.rows))
    position = np.argsort(sequence)
    first, last, size = position.copy(), position.copy(), np.ones(csr.rows, int)
    for v in sequence[::-1]:  # a parent comes before what is below it
        if parent[v] >= 0:
            u = parent[v]
            first[u], last[u], size[u] = min(first[u], first[v]), max(last[u], last[v]), size[u] + size[v]
    assert np.array_equal(last - first + 1, size)
    assert np.array_equal(first, position)


def test_refining_ends_where_no_vertex_gains_by_moving():
    csr = GRAPHS["symmetric"]
    found, before = np.arange(csr.rows, dtype=np.int32), np.zeros(csr.rows, np.int32)
    while not np.array_equal(found, before):  # a call looks at every vertex anew
        before = found
        found = refine(csr.indptr, csr.indices, None, strengths(csr), before, resolution=1.0, sweeps=100)
    reached = modularity(csr, found)
    for v in range(csr.rows):
        for home in np.unique(found[csr.indices[csr.indptr[v] : csr.indptr[v + 1]]]):
            moved = found.copy()
            moved[v] = home
            assert modularity(csr, moved) <= reached + 1e-12


def test_refining_weighs_arcs_and_divides_at_a_high_resolution():
    # Vertex 2 (strength 9) joins the heavier pair (24 of all 50); at resolution 9 that loses: 8 - 9 * 9 * 24 / 50 < 0.
    csr = from_arcs([0, 3, 1, 2], [1, 4, 2, 3], n=5, weights=np.array([8, 8, 1, 8], np.float32), symmetrize=True)
    strength = np.bincount(row_ids(csr), csr.weights, 5)
    given = np.array([0, 0, 2, 3, 3])
    for weights, resolution, expected in ((csr.weights, 1.0, 3), (csr.weights, 9.0, 2)):
        found = refine(csr.indptr, csr.indices, weights, strength, given, resolution=resolution, sweeps=1)
        assert found[2] == expected
    assert given[2] == 2


def test_sweep_updates_its_counts():
    csr = GRAPHS["symmetric"]
    found, turns = np.arange(csr.rows, dtype=np.int32), np.arange(csr.rows, dtype=np.int32)
    ends, dirty = strengths(csr), np.ones(csr.rows, np.bool_)
    moved = _sweep(csr.indptr, csr.indices, ones(csr), strengths(csr), turns, found, ends, dirty, 1.0)
    assert moved == np.count_nonzero(found != turns) > 0
    assert np.array_equal(ends, np.bincount(found, strengths(csr), csr.rows))
    # Whoever is left out of the next sweep has no neighbor that moved elsewhere after its own turn.
    for v in np.flatnonzero(~dirty):
        near = csr.indices[csr.indptr[v] : csr.indptr[v + 1]]
        assert not np.any((near > v) & (found[near] != near) & (found[near] != found[v]))


@pytest.mark.parametrize("case", ["directed", "empty rows", "loops"])
def test_directed_graph_is_ordered_by_both_directions(tmp_path, case):
    csr = GRAPHS[case]
    offsets, indices = both_directions(csr.indptr, csr.indices)
    both = Csr(offsets, indices, None, csr.columns)
    assert (matrix(both) != matrix(csr) + matrix(csr).T).nnz == 0
    if case == "directed":
        _, rank = permutation(stored(tmp_path, csr), "rabbit")
        assert np.array_equal(rank, rabbit.cluster(offsets, indices)[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_contraction_sums_the_arcs_between_communities(weighted):
    csr = GRAPHS["weighted"] if weighted else GRAPHS["symmetric"]
    community = np.random.default_rng(3).integers(0, 11, csr.rows)
    community[:11] = np.arange(11)
    space = np.empty_like(csr.indices), np.empty(csr.arcs, np.float32)
    offsets, indices, weights = contract(csr.indptr, csr.indices, csr.weights, community, 11, space)
    member = np.eye(11)[community]
    expected = member.T @ matrix(csr) @ member
    np.fill_diagonal(expected, 0)
    dense = Csr(offsets, indices, weights, 11).to_scipy(np.float64).toarray()
    assert np.allclose(dense, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["products-like", "web-like"])
def test_rabbit_finds_hidden_communities(tmp_path, name):
    natural = communities.make(name, 0.01, 3, False).csr
    hidden = shuffled(natural)
    graph = stored(tmp_path, hidden)
    _, rank = permutation(graph, "rabbit")
    assert halo_rows(relabeled(hidden, rank)) <= 0.5 * halo_rows(hidden)
    assert halo_rows(relabeled(hidden, rank)) <= 1.6 * halo_rows(natural)


def test_communities_match_the_planted_ones_and_are_contiguous():
    size = communities.SHAPES["products-like"].nodes // 100 // 50
    natural = communities.make("products-like", 0.01, 3, False).csr
    rank, community = rabbit.cluster(natural.indptr, natural.indices)
    planted = np.minimum(np.arange(natural.rows) // size, 50)
    assert modularity(natural, community) >= 0.99 * modularity(natural, planted)
    by_rank = community[np.argsort(rank)]
    assert 1 + np.count_nonzero(np.diff(by_rank)) == len(np.unique(community))


def test_components_are_contiguous():
    low = np.delete(np.arange(149), 99)  # a path of 100 nodes and one of 50
    csr = shuffled(from_arcs(low, low + 1, n=150, symmetrize=True))
    rank, _ = rabbit.cluster(csr.indptr, csr.indices)
    component = np.zeros(150, int)
    component[np.random.default_rng(0).permutation(150)[100:]] = 1
    assert np.count_nonzero(np.diff(component[np.argsort(rank)])) == 1


def test_ids_of_64_bits_give_the_same_order():
    csr = GRAPHS["symmetric"]
    narrow = rabbit.cluster(csr.indptr, csr.indices)
    wide = rabbit.cluster(csr.indptr, csr.indices.astype(np.int64))
    assert wide[0].dtype == np.int64
    assert np.array_equal(narrow[0], wide[0])
    assert np.array_equal(narrow[1], wide[1])


@pytest.mark.parametrize("shape", ["path", "shuffled path", "star", "isolated nodes", "pairs"])
def test_extreme_graphs_of_many_nodes_are_ordered(shape):
    n, none = 10**5, np.array([], np.int64)
    half = np.arange(0, n, 2)
    csr = {
        "path": lambda: path(n),
        "shuffled path": lambda: shuffled(path(n)),
        "star": lambda: from_arcs(np.zeros(n, np.int64), np.arange(1, n + 1), n=n + 1, symmetrize=True),
        "isolated nodes": lambda: from_arcs(none, none, n=n),
        "pairs": lambda: shuffled(from_arcs(half, half + 1, n=n, symmetrize=True)),
    }[shape]()
    rank, community = rabbit.cluster(csr.indptr, csr.indices)
    assert np.array_equal(np.sort(rank), np.arange(csr.rows))
    spans = np.abs(rank[row_ids(csr)] - rank[csr.indices])
    if shape == "pairs":
        assert spans.max() == 1
        assert len(np.unique(community)) == n // 2
    if "path" in shape:
        assert np.median(spans) <= 2
