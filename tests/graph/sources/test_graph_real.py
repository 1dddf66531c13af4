"""Public data sets, from their published files to shards: the counts that their publishers state."""

import pytest

from mgg.graph.build import build
from mgg.graph.datasets import catalog
from mgg.graph.external import Memory

#: Of the catalogue's data sets, whose other counts are checked wherever one is read: arcs of both directions, with
#: loops, each counted once; None where nobody states them.
BOTH = {
    "soc-Epinions1": 811480,
    "cit-HepPh": 841754 + 44,
    "cnr-2000": 5565380,
    "coauthor_cs": 163788,
    "amazon_computers": 491722,
    "PROTEINS_full": 162088,
    "DD": 1686092,
    "COLLAB": None,
    "aifb": None,
    "cora": 10556,
    # Each of 124 nodes lists itself twice, of Pubmed 3 do.
    "citeseer": 9104 + 124,
    "pubmed": 88648 + 3,
}
SLOW = ("COLLAB", "DD", "cnr-2000")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in BOTH])
def test_real_graphs_have_their_published_counts(mirror, tmp_path, name):
    made = build(name, tmp_path / "graph", memory=Memory(workers=2))
    assert catalog()[name].expected(False).items() <= made.model_dump().items()
    if BOTH[name] is not None:
        again = build(name, tmp_path / "both", symmetrize=True, loops="keep")
        assert (again.arcs, again.dropped_loops, again.symmetric) == (BOTH[name], 0, True)
