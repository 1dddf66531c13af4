import csv
import re

import pytest
import yaml

from mgg.errors import InputError
from mgg.graph import datasets
from mgg.graph.datasets import RawFile, catalog
from mgg.graph.sources import loaders

#: The tables of data sets of the four papers: our name -> nodes, edges, features, classes as printed there; None where
#: the paper prints a number of its own making (random features, thousands, both directions of each edge).
MGG = {
    "reddit": (232965, 114615892, 602, 41),
    "enwiki-2013": (4203323, None, None, None),
    "it-2004": (41291594, None, None, None),
    "ogbn-papers100M": (111059956, 1615685872, 128, None),
    "ogbn-products": (2449029, 61859140, 100, 47),
    "ogbn-proteins": (132534, 39561252, 8, None),
    "com-Orkut": (3072441, 117185083, None, None),
}
GNNADVISOR = {
    "citeseer": (3327, None, 3703, 6),
    "cora": (2708, None, 1433, 7),
    "pubmed": (19717, None, 500, 3),
    "ppi": (56944, 818716, 50, None),
    "PROTEINS_full": (43471, 162088, 29, 2),
    "OVCAR-8H": (1890931, 3946402, None, 2),
    "Yeast": (1714644, 3636546, None, 2),
    "DD": (334925, 1686092, None, 2),
    "TWITTER-Real-Graph-Partial": (580768, 1435116, None, 2),
    "SW-620H": (1889971, 3944206, None, 2),
    "amazon0505": (410236, None, None, None),
    "artist": (50515, None, None, None),
    "com-Amazon": (334863, None, None, None),
    "soc-BlogCatalog": (88784, 2093195, None, None),
    "amazon0601": (403394, 3387388, None, None),
}
SEASTAR = {  # whose node counts are one too many
    "cora": (2708, None, 1433, None),
    "citeseer": (3327, None, 3703, None),
    "pubmed": (19717, None, 500, None),
    "cora_full": (19793, 130622 // 2, 8710, None),
    "coauthor_cs": (18333, 327576 // 2, 6805, None),
    "coauthor_physics": (34493, 991848 // 2, 8415, None),
    "amazon_photo": (7650, 287326 // 2, 745, None),
    "amazon_computers": (13752, 574418 // 2, 767, None),
    "reddit": (232965, None, 602, None),
    "aifb": (8285, 58086, 0, None),
    "mutag": (23644, 148454, 0, None),
    "bgs": (333845, 1832398, 0, None),
}
COLA = {
    "com-LiveJournal": (4.00, 69.36),
    "com-Orkut": (3.07, 234.37),
    "com-Youtube": (1.13, 5.98),
    "ogbl-citation2": (2.93, 30.39),
    "ogbn-products": (2.45, 123.72),
    "soc-LiveJournal1": (4.85, 68.99),
    "soc-Pokec": (1.63, 30.62),
    "sx-stackoverflow": (2.60, 36.23),
}


@pytest.mark.parametrize("paper", [MGG, GNNADVISOR, SEASTAR], ids=["MGG", "GNNAdvisor", "Seastar"])
def test_every_data_set_of_the_papers_with_its_counts(paper):
    for name, (nodes, edges, features, classes) in paper.items():
        dataset = catalog()[name]
        assert dataset.nodes == nodes, name
        assert edges in (None, dataset.edges), name
        assert features in (None, dataset.features), name
        assert classes in (None, dataset.classes), name


def test_every_data_set_of_the_cola_paper_with_its_counts():
    for name, (nodes, arcs) in COLA.items():
        dataset = catalog()[name]
        assert round(dataset.nodes / 1e6, 2) == nodes, name
        doubled = 2 if dataset.undirected or name == "com-Orkut" else 1
        assert abs(dataset.edges * doubled / 1e6 - arcs) < 0.01, name


def test_every_entry_has_the_required_fields():
    for name, dataset in catalog().items():
        assert dataset.loader in loaders(), name
        assert dataset.licence, name
        assert dataset.edges is not None or dataset.arcs is not None, name
        assert name in ("digits", "cora", "citeseer", "pubmed") or dataset.homepage.startswith("https://"), name
        for file, raw in dataset.files.items():
            assert raw.url is None or raw.url.startswith("https://"), name
            assert raw.url is None or raw.url.endswith(f"/{file}"), name
            assert not re.search(r"\.(zip|tar\.gz|tgz)$", file) or raw.unpack, name


def test_counts_agree_with_each_other():
    for name, dataset in catalog().items():
        if dataset.edges is not None and dataset.arcs is not None:
            assert dataset.arcs <= 2 * dataset.edges, name
        if dataset.undirected and dataset.arcs is not None:
            assert dataset.arcs % 2 == 0, name


def test_no_two_data_sets_share_a_file():
    files = [raw for dataset in catalog().values() for raw in dataset.files.values()]
    hashes = [raw.sha256 for raw in files if raw.sha256] + [h for raw in files for h in raw.stand_in.values()]
    urls = [raw.url for raw in files if raw.url]
    assert len(set(hashes)) == len(hashes)
    assert len(set(urls)) == len(urls)


@pytest.mark.parametrize("url", ["data/edges.csv", "/data/edges.csv", "file://data/edges.csv", "ftp://a/edges.csv", ""])
def test_unfetchable_address_in_the_catalog_is_refused(url):
    with pytest.raises(ValueError, match="must begin with https:// or, for a file of this machine, file:///"):
        RawFile(url=url)


@pytest.fixture
def ogb(mirror):
    """OGB's own facts on its data sets: name -> field -> value."""
    facts = {}
    for kind in ("node", "link"):
        path = mirror / "ogb_metadata" / f"{kind}proppred_master.csv"
        if not path.is_file():
            pytest.skip(f"{path}: not in this mirror")
        table = list(csv.reader(path.read_text().splitlines()))
        for column, name in enumerate(table[0]):
            facts[name] = {row[0]: row[column] for row in table[1:]}
    return facts


def test_catalog_agrees_with_ogb(ogb):
    names = [name for name, dataset in catalog().items() if dataset.loader == "ogb"]
    assert len(names) == 6
    for name in names:
        dataset, facts = catalog()[name], ogb[name]
        (file, raw), *others = dataset.files.items()
        assert others == []
        assert raw.url == facts["url"].replace("http://", "https://"), name
        assert file == f"{facts['download_name']}.zip", name
        assert dataset.undirected == (facts["add_inverse_edge"] == "True"), name
        assert (dataset.features > 0) == (facts["has_node_attr"] == "True" or facts["has_edge_attr"] == "True"), name
        if facts.get("num tasks") == "1":
            assert dataset.classes == int(facts["num classes"]), name
        elif "num tasks" in facts:
            assert (dataset.classes, dataset.tasks) == (0, int(facts["num tasks"])), name


def describe(**changes):
    fields = {"url": "https://example.org/a.zip", **changes}
    return yaml.safe_dump(
        {"datasets": {"one": {"title": "t", "loader": "snap", "licence": "l", "nodes": 1, "files": {"a.zip": fields}}}}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (describe(unpack="yes"), r"datasets\.one\.files\.a\.zip\.unpack"),
        (describe(unpack=0), r"unpack"),
        (describe(members={"a": "b"}), "members need unpack"),
        (describe(unpack=True, members={"a": "../b"}), "not the name of a file inside the folder"),
        (describe(stand_in={"/etc/passwd": "0" * 64}), "not the name of a file inside the folder"),
        (describe(bytes=-1), "bytes"),
        (describe(sha256="abc"), "sha256"),
        (describe().replace("a.zip:", "../a.zip:"), "not the name of a file inside the folder"),
        (describe().replace("nodes: 1", "nodes: 0"), "nodes"),
        (describe().replace("nodes: 1", "nodes: null"), "nodes"),
        (describe().replace("loader: snap", "loader: snip"), "unknown loader 'snip'; did you mean snap"),
        (describe().replace("licence: l", "licence: null"), r"datasets\.one\.licence"),
        (describe().replace("title: t", "title: t\n    colour: red"), r"datasets\.one\.colour: unknown field"),
        (describe(package="sklearn"), "give url or package"),
        ("datasets: [", "not readable as YAML"),
    ],
)
def test_wrong_catalog_field_is_named(tmp_path, monkeypatch, text, message):
    path = tmp_path / "datasets.yaml"
    path.write_text(text)
    monkeypatch.setattr(datasets, "_path", lambda: path)
    catalog.cache_clear()
    try:
        with pytest.raises(InputError, match=message) as caught:
            catalog()
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        catalog.cache_clear()


def test_catalog_states_the_expected_graph():
    made = catalog()["amazon_computers"]
    assert made.undirected
    assert made.expected(False) == made.expected(True)
    assert made.expected(False)["arcs"] == 491722
    assert made.expected(False)["listed_arcs"] == 287209
    directed = made.model_copy(update={"undirected": False, "classes": None})
    assert "arcs" not in directed.expected(True)
    assert "classes" not in directed.expected(False)
