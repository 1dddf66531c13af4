"""Public data sets, from their published files to shards: the counts that their publishers state."""

import pytest

from mgg.graph.build import build
from mgg.graph.datasets import catalog
from mgg.graph.external import Memory

#: Nodes, arcs that the files list, self-loops among them, arcs as stored, and those with the reverse of every arc.
#: Publishers count the 87,442 loops of cnr-2000 among its 5,565,380 arcs in both directions.
COUNTS = {
    "soc-Epinions1": (75879, 508837, 0, 508837, 811480),
    "cit-HepPh": (34546, 421578, 44, 421534, 841754),
    "cnr-2000": (325557, 3216152, 87442, 3128710, 5565380 - 87442),
    "coauthor_cs": (18333, 163788, 0, 163788, 163788),
    "amazon_computers": (13752, 287209, 0, 491722, 491722),
    "PROTEINS_full": (43471, 162088, 0, 162088, 162088),
    "DD": (334925, 1686092, 0, 1686092, 1686092),
    "COLLAB": (372474, 24574995, 2837, 24572158, None),
    "aifb": (8285, 58086, 0, 58086, None),
    "cora": (2708, 10556, 0, 10556, 10556),
    "citeseer": (3327, 9104, 0, 9104, 9104),
    "pubmed": (19717, 88648, 0, 88648, 88648),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_counts(mirror, tmp_path, name):
    nodes, listed, loops, arcs, both = COUNTS[name]
    made = build(name, tmp_path / "graph", memory=Memory(workers=2))
    assert (made.nodes, made.listed_arcs, made.dropped_loops, made.arcs) == (nodes, listed, loops, arcs)
    assert (made.features, made.classes) == (catalog()[name].features, catalog()[name].classes)
    if both is not None:
        again = build(tmp_path / "graph", tmp_path / "both", symmetrize=True)
        assert (again.arcs, again.symmetric) == (both, True)
