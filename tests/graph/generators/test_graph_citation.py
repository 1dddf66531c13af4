"""Directed generators, which stream."""

import numpy as np
import pytest
from graph_helpers import peak

from mgg.errors import InputError, MachineError
from mgg.graph.budget import resident
from mgg.graph.csr import row_ids
from mgg.graph.external import Memory
from mgg.graph.generate import generate
from mgg.graph.generators import citation
from mgg.graph.store import Graph


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """40,000 nodes, 9 communities."""
    folder = tmp_path_factory.mktemp("citation") / "graph"
    generate("citation-like", folder, scale=40_000 / 169_343)
    return Graph.open(folder)


def communities_of(n, count):
    """Community and age of every node."""
    home = np.arange(n) * count // n
    firsts, sizes = np.unique(home, return_index=True)[1], np.bincount(home)
    return home, (np.arange(n) - firsts[home]) / sizes[home]


def test_citation_graph_has_the_counts_and_is_directed(made):
    facts = made.manifest
    scale = 40_000 / 169_343
    assert facts.nodes == 40_000 and not facts.symmetric and not facts.weighted
    assert (facts.features, facts.classes) == (128, 40)
    assert facts.listed_arcs == int(1_185_000 * scale)
    assert facts.arcs == facts.listed_arcs - facts.dropped_loops - facts.dropped_repeats
    assert 0.97 < facts.arcs / facts.listed_arcs < 1
    csr = made.rows(0, facts.nodes)
    arcs = row_ids(csr).astype(np.int64) * facts.nodes + csr.indices
    back = csr.indices.astype(np.int64) * facts.nodes + row_ids(csr)
    assert len(np.intersect1d(arcs, back)) < 0.01 * len(arcs)


def test_citation_degrees_are_skewed(made):
    csr, n = made.rows(0, 40_000), 40_000
    cited, citing = np.diff(csr.indptr), np.bincount(csr.indices, minlength=n)
    # Beyond k0 a power law k^-gamma has the mean logarithm 1 / (gamma - 1); here gamma = 1 + 1 / SKEW = 2.8.
    tail = cited[cited >= 20]
    assert 2.2 < 1 + 1 / np.log(tail / 19.5).mean() < 3.4
    assert cited.max() > 60 * cited.mean() and (cited == 0).mean() > 0.1
    logs = np.log(citing[citing > 0])
    assert citing.max() < 40 * citing.mean() and (citing == 0).mean() < 0.1
    assert 0.7 < logs.std() < 1.0, "lists of references are log-normal"


def test_arcs_point_to_older_nodes_mostly_of_the_same_community(made):
    csr, n = made.rows(0, 40_000), 40_000
    home, age = communities_of(n, 9)
    cited, citing = row_ids(csr), csr.indices
    assert (age[cited] < age[citing] + 1e-3).mean() > 0.97
    within = (home[cited] == home[citing]).mean()
    assert 0.7 < within < 0.8  # LEAVING, and what comes back around the ring
    assert ((home[cited] - home[citing]) % 9 <= 1).mean() < 0.95, "hops go further than to the next one"


def test_features_and_labels_depend_on_the_community(made):
    n, scale = 40_000, 40
    labels, splits, features = made.labels(0, n), made.splits(0, n), made.features(0, n)
    home, age = communities_of(n, 9)
    assert 0.78 < (labels == home % scale).mean() < 0.83 and len(np.unique(labels)) == scale
    assert np.array_equal(splits, 1 + (age >= 0.78) + (age >= 0.86))
    means = np.array([features[labels == label].mean(axis=0) for label in range(9)])
    nearest = ((features[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == labels)[labels < 9].mean() > 0.6, "of nine classes, a ninth by chance"
    assert not (features.view(np.uint32) & 0xFFFF).any(), "8 significant bits"


def test_papers_like_labels_are_few(tmp_path):
    facts = generate("papers-like", tmp_path / "graph", scale=0.0003)
    graph = Graph.open(tmp_path / "graph")
    labels, splits = graph.labels(0, facts.nodes), graph.splits(0, facts.nodes)
    assert (facts.nodes, facts.features, facts.classes) == (33_317, 128, 172)
    assert 0.01 < (labels >= 0).mean() < 0.018
    assert np.array_equal(labels < 0, splits == 0)
    assert set(labels[splits == 1]) == set(labels[labels >= 0]), "the rarest classes, too"


def test_bits_depend_only_on_seed_and_options(tmp_path, monkeypatch):
    options = [{}, {"memory": Memory(resident() + 2**30, 3)}, {"seed": 5}, {"shuffle": True}]
    hashes = []
    for number, each in enumerate(options):
        monkeypatch.setattr(citation, "THREADS", number + 1)
        generate("citation-like", tmp_path / str(number), scale=0.02, **each)
        hashes.append(Graph.open(tmp_path / str(number)).hash)
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3


def test_shuffle_only_renames_nodes(tmp_path):
    plain, mixed = (citation.make("citation-like", 0.01, 3, shuffle) for shuffle in (False, True))
    n = plain.arcs.nodes
    order = np.arange(n, dtype=np.int32)
    citation._rng(3, citation._ORDER, 0).shuffle(order)
    assert not np.array_equal(order, np.arange(n))
    for one, other in zip(plain.arcs.read(), mixed.arcs.read(), strict=True):
        assert np.array_equal(order[one.targets], other.targets) and np.array_equal(order[one.sources], other.sources)
    assert np.array_equal(plain.labels, mixed.labels[order]) and np.array_equal(plain.splits, mixed.splits[order])


@pytest.mark.parametrize("name", citation.SHAPES)
def test_invalid_sizes_are_refused(name, tmp_path):
    with pytest.raises(InputError, match=f"{name}: scale 1e-09 gives 0 nodes"):
        generate(name, tmp_path / "graph", scale=1e-9)
    with pytest.raises(MachineError, match=rf"^{name} at scale 1 may take \d+ MiB .* raise --memory \(300 MiB\)$"):
        generate(name, tmp_path / "graph", memory=Memory(300 * 2**20))
    with pytest.raises(InputError, match="planted: is made in memory, whole: --memory"):
        generate("planted", tmp_path / "graph", memory=Memory())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_peak_memory_stays_within_the_budget(tmp_path):
    """Features and arcs alone are 700 MB; the layout of 16 million arcs took 320 MB more than the interpreter."""
    budget = ("--memory", "680MiB", "--workers", "2")
    assert peak(tmp_path, "generate", "papers-like", "--scale", "0.01", "--out", "graph", *budget) <= 680
    assert peak(tmp_path, "partition", "graph", "--pes", "2", "--out", "part") <= 400
    assert peak(tmp_path, "layout", "graph", "part", "--out", "layout", *budget) <= 680
