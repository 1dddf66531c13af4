import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.graphs import awkward_graphs, build_layout, matrix, random_csr, typed_csr

from mgg import layout
from mgg.layout.neighbors import neighbor_partitions
from mgg.layout.parts import Product
from mgg.layout.split import Splitter, mapped, sends, transposed

GRAPHS = awkward_graphs()


def both_products(csr, bounds):
    """Every PE's product, forward and transposed."""
    forward = [Splitter(csr, bounds).cut(pe) for pe in range(len(bounds) - 1)]
    turned = mapped(csr, bounds, [cut.local.arcs for cut in forward])
    splitter = Splitter(turned.csr, bounds, turned.position)
    transpose = [splitter.cut(pe) for pe in range(len(bounds) - 1)]
    for cuts in (forward, transpose):
        halos = [(cut.halo_ptr, cut.halo_rows) for cut in cuts]
        yield [Product(**vars(cut), **vars(sends(halos, pe))) for pe, cut in enumerate(cuts)]


def put_together(products, bounds):
    """The whole matrix, from the parts of every PE."""
    blocks = []
    for pe, product in enumerate(products):
        local, remote = product.local.to_scipy(np.float64).tocoo(), product.remote.to_scipy(np.float64).tocoo()
        owners = np.repeat(np.arange(len(products)), np.diff(product.halo_ptr))
        halo = bounds[owners] + product.halo_rows
        rows = np.concatenate((local.row, remote.row)) + bounds[pe]
        columns = np.concatenate((local.col + bounds[pe], halo[remote.col] if len(halo) else remote.col))
        data = np.concatenate((local.data, remote.data))
        blocks.append(sparse.coo_matrix((data, (rows, columns)), shape=(bounds[-1], bounds[-1])))
    return sum(blocks[1:], start=blocks[0]).tocsr()


def random_bounds(nodes, pes, seed):
    bounds = np.sort(np.random.default_rng(seed).integers(0, nodes + 1, pes + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, nodes
    return bounds


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("pes", [1, 2, 5])
def test_the_parts_of_both_products_make_up_the_graph(name, pes):
    csr = GRAPHS[name]
    bounds = np.arange(pes + 1) * csr.rows // pes
    for products, whole in zip(both_products(csr, bounds), (matrix(csr), matrix(csr).T.tocsr()), strict=True):
        assert (put_together(products, bounds) != whole).nnz == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_transposed_arcs_know_where_they_were(name):
    csr = GRAPHS[name]
    turned = transposed(csr)
    assert (matrix(turned.csr) != matrix(csr).T.tocsr()).nnz == 0
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    assert np.array_equal(rows[turned.forward], turned.csr.indices)
    assert np.array_equal(csr.indices[turned.forward], np.repeat(np.arange(csr.columns), np.diff(turned.csr.indptr)))


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(0, 300), st.integers(1, 6), st.integers(0, 10**6))
def test_halos_sends_and_the_arc_map_agree(nodes, arcs, pes, seed):
    csr = random_csr(nodes, arcs, seed=seed, weighted=True)
    bounds = random_bounds(nodes, pes, seed)
    forward, transpose = both_products(csr, bounds)
    values = [np.concatenate((product.local.weights, product.remote.weights)) for product in forward]
    for pe in range(pes):
        for products in (forward, transpose):
            product = products[pe]
            assert len(product.halo_of(pe)) == 0 and len(product.sends_to(pe)) == 0
            for other in range(pes):
                here = products[other].halo_of(pe)
                assert np.all(np.diff(here) > 0)
                assert np.array_equal(product.sends_to(other), here)
                assert product.send_first[other] == products[other].halo_ptr[pe]
                assert np.all((here >= 0) & (here < bounds[pe + 1] - bounds[pe]))
        # A transposed arc carries the value of its forward arc, wherever that is.
        mine = np.concatenate((transpose[pe].local.weights, transpose[pe].remote.weights))
        owners, positions = transpose[pe].arc_owner, transpose[pe].arc_position
        fetched = [values[owner][position] for owner, position in zip(owners, positions, strict=True)]
        assert np.array_equal(mine, np.array(fetched, np.float32))


@pytest.mark.parametrize("scheme", ["equal_nodes", "metis"])
def test_types_stay_with_their_arcs_in_both_directions(scheme, tmp_path):
    csr = typed_csr(60, 500, 7)
    folder = build_layout(tmp_path, csr, 3, scheme=scheme)
    assert layout.read_manifest(folder).relations == 7
    parts = [layout.load(folder, pe) for pe in range(3)]
    nodes, bounds = np.concatenate([part.source_ids for part in parts]), parts[0].bounds
    rows = np.repeat(np.arange(60), np.diff(csr.indptr))
    expected = sorted(zip(rows.tolist(), csr.indices.tolist(), csr.types.tolist(), strict=True))
    for direction in ("forward", "transpose"):
        found = []
        for pe, part in enumerate(parts):
            product = part.product(direction)
            owners = np.repeat(np.arange(3), np.diff(product.halo_ptr))
            ends = np.concatenate([np.arange(bounds[pe], bounds[pe + 1]), bounds[owners] + product.halo_rows])
            for csr_part, first in ((product.local, 0), (product.remote, product.rows)):
                at = np.repeat(np.arange(product.rows), np.diff(csr_part.indptr))
                assert np.all(np.diff((at * 1000 + csr_part.indices) * 10 + csr_part.types) > 0), "by column and type"
                ids = nodes[bounds[pe] + at], nodes[ends[first + csr_part.indices]]
                ids = ids if direction == "forward" else ids[::-1]
                found += zip(*(part.tolist() for part in ids), csr_part.types.tolist(), strict=True)
        assert sorted(found) == expected


@given(st.lists(st.integers(0, 50), max_size=30), st.one_of(st.none(), st.integers(1, 32)))
def test_neighbor_partitions_cover_every_arc_once_in_order(degrees, ps):
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    pieces = neighbor_partitions(indptr, ps)
    covered = [k for start, stop in zip(pieces.starts, pieces.stops, strict=True) for k in range(start, stop)]
    assert covered == list(range(indptr[-1]))
    assert np.all(pieces.starts >= indptr[pieces.rows]) and np.all(pieces.stops <= indptr[pieces.rows + 1])
    sizes = pieces.stops - pieces.starts
    assert np.all(sizes > 0) and (ps is None or np.all(sizes <= ps))
    if ps is not None:
        assert len(pieces) == sum(-(-degree // ps) for degree in degrees)
