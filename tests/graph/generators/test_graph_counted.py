"""Stand-ins with the numbers of nodes, arcs and types of a paper's table, worked out by hand."""

import numpy as np
import pytest

from mgg.graph.csr import has_loops, is_symmetric, row_ids
from mgg.graph.generate import generate
from mgg.graph.generators import generators
from mgg.graph.generators.counted import COUNTS

#: Seastar (EuroSys'21), table 2: vertices, edges and relations.
TABLE2 = {
    "cora-full-like": (19_794, 130_622, 1),
    "physics-like": (34_494, 991_848, 1),
    "photo-like": (7_651, 287_326, 1),
    "mutag-like": (23_644, 148_454, 46),
    "bgs-like": (333_845, 1_832_398, 206),
}


def keys(csr):
    """Each arc with its type as one number."""
    types = 0 if csr.types is None else csr.types.astype(np.int64)
    return (row_ids(csr).astype(np.int64) * csr.columns + csr.indices) * 1000 + types


def test_counts_match_the_papers_table():
    assert {name: (c.nodes, c.arcs, c.relations or 1) for name, c in COUNTS.items()} == TABLE2


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", TABLE2)
def test_generated_counts_are_exact(name, shuffle):
    nodes, arcs, relations = TABLE2[name]
    scale = 0.05 if name in ("bgs-like", "physics-like") else 1.0
    data = generators()[name].make(scale, 3, shuffle)
    csr = data.csr
    assert (csr.rows, csr.arcs) == (int(nodes * scale), 2 * (int(arcs * scale) // 2))
    assert len(np.unique(keys(csr))) == csr.arcs and not has_loops(csr)
    assert (np.diff(keys(csr)) > 0).all(), "in the order that a Csr promises"
    if relations > 1:
        half = relations // 2
        assert np.unique(csr.types).tolist() == list(range(relations))
        forward = csr.types < half
        rows = row_ids(csr).astype(np.int64)
        there = (rows * csr.rows + csr.indices)[forward] * half + csr.types[forward]
        back = (csr.indices.astype(np.int64) * csr.rows + rows)[~forward] * half + csr.types[~forward] - half
        assert np.array_equal(np.sort(there), np.sort(back)), "every arc has its reverse, of the reverse type"
        sizes = np.bincount(csr.types)[:half]
        assert sizes.min() >= 1 and sizes[0] > 10 * sizes[-1]
    else:
        assert is_symmetric(csr)
    assert np.diff(csr.indptr).max() > 10 * csr.arcs / csr.rows


def test_labels_are_few_and_binary(tmp_path):
    manifest = generate("mutag-like", tmp_path)
    assert (manifest.classes, manifest.features, manifest.relations) == (2, 0, 46)
    data = generators()["mutag-like"].make(1.0, 2026, False)
    assert np.bincount(data.splits).tolist() == [23_644 - 340, 272, 0, 68]
    assert np.array_equal(data.labels >= 0, data.splits > 0)
    small = generators()["bgs-like"].make(0.001, 1, False)
    for split in (1, 3):
        assert set(small.labels[small.splits == split]) == {0, 1}
