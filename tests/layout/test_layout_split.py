import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import awkward_graphs, build_layout, matrix, random_csr, typed_csr
from support.graphs import products as in_memory

from mgg import layout
from mgg.graph.csr import Csr
from mgg.graph.store import write_graph
from mgg.layout.neighbor_partitions import neighbor_partitions
from mgg.layout.parts import Product
from mgg.layout.split import save_product, transposed
from mgg.layout.store import pe_folder

GRAPHS = awkward_graphs()
SENDS = ("ptr", "rows", "first")


def both_products(folder, csr, bounds, pieces=1):
    """Every PE's product, forward and transposed, of rows that come in so many pieces."""
    facts = write_graph(folder / "graph", csr, name="cut", source={})
    for pe in range(len(bounds) - 1):
        (folder / pe_folder(pe)).mkdir()
    for direction, whole in (("forward", csr), ("transpose", transposed(csr).csr)):
        made = save_product(folder, direction, rows_of(whole, pieces), facts, bounds)
        products = [read_product(folder / pe_folder(pe) / direction, bounds, pe, csr) for pe in range(len(bounds) - 1)]
        assert made.remote_arcs == [product.remote.arcs for product in products]
        assert made.halo_rows == [product.halo for product in products]
        yield products


def rows_of(csr, pieces):
    """The rows in so many blocks, some of them without any."""
    for lo, hi in itertools.pairwise(random_bounds(csr.rows, pieces, 1).tolist()):
        part = slice(csr.indptr[lo], csr.indptr[hi])
        weights = None if csr.weights is None else csr.weights[part]
        yield lo, Csr(csr.indptr[lo : hi + 1] - csr.indptr[lo], csr.indices[part], weights, csr.columns)


def read_product(prefix, bounds, pe, csr):
    """The arrays of one direction of one PE, as they lie on the disk."""

    def array(name):
        return np.load(prefix.with_name(f"{prefix.name}.{name}.npy"))

    halo_rows = array("halo_rows")
    local, remote = (
        Csr(
            array(f"{part}.indptr"),
            array(f"{part}.indices"),
            None if csr.weights is None else array(f"{part}.weights"),
            width,
        )
        for part, width in (("local", int(bounds[pe + 1] - bounds[pe])), ("remote", len(halo_rows)))
    )
    return Product(local, remote, array("halo_ptr"), halo_rows, *(array(f"send_{name}") for name in SENDS))


def random_bounds(nodes, pes, seed):
    bounds = np.sort(np.random.default_rng(seed).integers(0, nodes + 1, pes + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, nodes
    return bounds


@pytest.mark.parametrize("name", GRAPHS)
def test_transposed_arcs_keep_their_positions(name):
    csr = GRAPHS[name]
    turned = transposed(csr)
    assert (matrix(turned.csr) != matrix(csr).T.tocsr()).nnz == 0
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    assert np.array_equal(rows[turned.forward], turned.csr.indices)
    assert np.array_equal(csr.indices[turned.forward], np.repeat(np.arange(csr.columns), np.diff(turned.csr.indptr)))


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 300), st.integers(1, 6), st.integers(0, 10**6))
def test_halos_and_sends_agree(nodes, arcs, pes, seed):
    csr = random_csr(nodes, arcs, seed=seed, weighted=True)
    bounds = random_bounds(nodes, pes, seed)
    with tempfile.TemporaryDirectory() as folder:
        both = list(both_products(Path(folder), csr, bounds, seed % 5 + 1))
    for products, whole in zip(both, (csr, transposed(csr).csr), strict=True):
        expected = in_memory(whole, bounds)
        for pe in range(pes):
            for name in ("halo_ptr", "halo_rows", "send_ptr", "send_rows", "send_first"):
                assert np.array_equal(getattr(products[pe], name), getattr(expected[pe], name)), name
            for part in ("local", "remote"):
                found, other = (getattr(each[pe], part) for each in (products, expected))
                assert np.array_equal(found.indices, other.indices) and np.array_equal(found.weights, other.weights)
            product = products[pe]
            assert len(product.halo_of(pe)) == 0 and len(product.sends_to(pe)) == 0
            for other in range(pes):
                here = products[other].halo_of(pe)
                assert np.all(np.diff(here) > 0)
                assert np.array_equal(product.sends_to(other), here)
                assert product.send_first[other] == products[other].halo_ptr[pe]
                assert np.all((here >= 0) & (here < bounds[pe + 1] - bounds[pe]))


@pytest.mark.parametrize("scheme", ["equal_nodes", "metis"])
def test_arc_types_follow_their_arcs_in_both_directions(scheme, tmp_path):
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
