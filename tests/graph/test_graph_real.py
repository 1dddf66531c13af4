"""Public data sets, from their published files to shards: the counts that their publishers state."""

import csv
import re

import pytest

from mgg import partition
from mgg.graph.build import build
from mgg.graph.datasets import catalog
from mgg.graph.external import Memory

#: Nodes; arcs that the files list and self-loops among them; arcs as stored, without loops; the same with the reverse
#: of every arc and with loops, each counted once.
COUNTS = {
    "soc-Epinions1": (75879, 508837, 0, 508837, 811480),
    "cit-HepPh": (34546, 421578, 44, 421534, 841754 + 44),
    "cnr-2000": (325557, 3216152, 87442, 3128710, 5565380),
    "coauthor_cs": (18333, 163788, 0, 163788, 163788),
    "amazon_computers": (13752, 287209, 0, 491722, 491722),
    "PROTEINS_full": (43471, 162088, 0, 162088, 162088),
    "DD": (334925, 1686092, 0, 1686092, 1686092),
    "COLLAB": (372474, 24574995, 2837, 24572158, None),
    "aifb": (8285, 58086, 0, 58086, None),
    "cora": (2708, 10858, 0, 10556, 10556),
    # Each of 124 nodes lists itself twice, of Pubmed 3 do.
    "citeseer": (3327, 9464, 2 * 124, 9104, 9228),
    "pubmed": (19717, 88676, 2 * 3, 88648, 88651),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_counts(mirror, tmp_path, name):
    nodes, listed, loops, arcs, both = COUNTS[name]
    made = build(name, tmp_path / "graph", memory=Memory(workers=2))
    assert (made.nodes, made.listed_arcs, made.dropped_loops, made.arcs) == (nodes, listed, loops, arcs)
    assert (made.features, made.classes) == (catalog()[name].features, catalog()[name].classes)
    if both is not None:
        again = build(name, tmp_path / "both", symmetrize=True, loops="keep")
        assert (again.arcs, again.listed_arcs, again.dropped_loops, again.symmetric) == (both, listed, 0, True)


def test_the_table_of_the_files_states_the_same_counts(mirror):
    """``m`` begins with what is listed, of RDF triples; ``sym`` counts both directions, loops among them."""
    table = mirror / "README.tsv"
    if not table.is_file():
        pytest.skip("no README.tsv in MGG_DATA_DIR")
    with table.open(encoding="utf-8") as file:
        stated = {row["dataset"].removeprefix("planetoid_"): row["m"] for row in csv.DictReader(file, delimiter="\t")}
    assert set(COUNTS) == set(stated) - {"ogb_metadata"}
    for name, (_, listed, loops, arcs, both) in COUNTS.items():
        first = int(re.match(r"\d+", stated[name])[0])
        assert first * (2 if "triples" in stated[name] else 1) == listed
        for sym in re.findall(r"(\d+) sym", stated[name]):
            assert int(sym) == both
        for count in re.findall(r"(\d+) (?:self-)?loops", stated[name]):
            assert int(count) in (loops, loops // 2)
            assert both is None or int(count) in (listed - arcs, both - arcs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "needed", "covered"),
    [("cit-HepPh", 127_729, 64_391), ("soc-Epinions1", 170_457, 83_807), ("cnr-2000", 22_425, 11_887)],
)
def test_covers_take_about_half_of_what_rows_do(mirror, tmp_path, name, needed, covered):
    """At 16 PEs; the numbers of docs/techniques.md."""
    build(name, tmp_path / "graph", memory=Memory(workers=2))
    arguments = {"pes": 16, "scheme": "edge_balanced", "workgroup": 16, "dim": 1, "cover": True}
    found = partition.build(tmp_path / "graph", tmp_path / "part", **arguments).quality
    assert (found.v_fc, found.v_cover) == (4 * needed, 4 * covered)
