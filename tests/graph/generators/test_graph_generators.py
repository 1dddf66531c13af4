import importlib.util

import numpy as np
import pytest

from mgg.errors import InputError
from mgg.graph.csr import has_loops, is_symmetric, row_ids
from mgg.graph.generate import generate
from mgg.graph.generators import communities, generators
from mgg.graph.store import Graph


@pytest.mark.parametrize("name", generators())
def test_generators_state_whether_nodes_have_labels(name):
    made = generators()[name]
    data = made.make(0.001 if name != "planted" else 0.1, made.seed, False)
    assert (data.labels is not None) == made.labels


@pytest.mark.parametrize("seed", range(5))
def test_every_class_of_a_small_planted_graph_has_training_nodes(seed):
    data = generators()["planted"].make(0.05, seed, seed % 2 == 1)
    assert set(data.labels[data.splits == 1]) == set(range(data.classes))


@pytest.mark.parametrize("name", generators())
def test_too_small_scale_is_refused(name):
    with pytest.raises(InputError, match=rf"{name}: scale 1e-09 gives 0 nodes"):
        generators()[name].make(1e-9, 1, False)


def test_planted_graph_has_its_communities(tmp_path):
    manifest = generate("planted", tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert (manifest.nodes, manifest.classes, manifest.features) == (2000, 10, 32)
    csr, labels = graph.rows(0, 2000), graph.labels(0, 2000)
    assert is_symmetric(csr)
    assert not has_loops(csr)
    assert 0.78 < (labels[row_ids(csr)] == labels[csr.indices]).mean() < 0.86
    assert np.bincount(labels).tolist() == [200] * 10
    assert np.bincount(graph.splits(0, 2000)).tolist() == [0, 200, 500, 1300]


def test_random_features_and_labels_are_added(tmp_path):
    plain = generate("reddit-like", tmp_path / "plain", scale=0.005)
    manifest = generate("reddit-like", tmp_path / "noise", scale=0.005, features=5, classes=3)
    assert (plain.features, manifest.features, manifest.classes, manifest.arcs) == (0, 5, 3, plain.arcs)
    graph = Graph.open(tmp_path / "noise")
    n = manifest.nodes
    features, labels, splits = graph.features(0, n), graph.labels(0, n), graph.splits(0, n)
    assert abs(features.mean()) < 0.1 and 0.9 < features.std() < 1.1
    assert set(labels) == {0, 1, 2} and np.bincount(labels).min() > n / 4
    assert np.bincount(splits).tolist() == [0, n // 2, 3 * n // 4 - n // 2, n - 3 * n // 4]
    again = generate("reddit-like", tmp_path / "again", scale=0.005, features=5, classes=3)
    assert again == manifest


def test_random_labels_give_every_class_training_nodes(tmp_path):
    manifest = generate("reddit-like", tmp_path, scale=0.001, features=2, classes=100)
    graph, n = Graph.open(tmp_path), manifest.nodes
    assert 200 < n < 1000  # so that chance alone leaves some out
    assert np.unique(graph.labels(0, n)[graph.splits(0, n) == 1]).tolist() == list(range(100))


def test_planted_shuffle_only_renames_nodes(tmp_path):
    plain, mixed = (generators()["planted"].make(0.1, 3, shuffle) for shuffle in (False, True))
    assert not np.array_equal(plain.labels, mixed.labels)
    key = [np.lexsort(data.features.T) for data in (plain, mixed)]
    assert np.array_equal(plain.features[key[0]], mixed.features[key[1]])
    assert np.array_equal(plain.labels[key[0]], mixed.labels[key[1]])
    assert np.array_equal(plain.splits[key[0]], mixed.splits[key[1]])
    dense = [
        data.csr.to_scipy().toarray()[np.ix_(order, order)] for data, order in zip((plain, mixed), key, strict=True)
    ]
    assert np.array_equal(*dense)


@pytest.mark.parametrize("name", ["planted", "reddit-like"])
def test_generators_depend_only_on_seed_and_options(tmp_path, name):
    hashes = [
        Graph.open(path).hash
        for path, options in ((tmp_path / str(i), o) for i, o in enumerate([{}, {}, {"seed": 5}, {"shuffle": True}]))
        if generate(name, path, scale=0.01, **options)
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, {"proteins-like": 0.05, "it-like": 5e-4}.get(name, 0.005)) for name in communities.SHAPES],
)
def test_community_graphs_are_skewed_and_symmetric(name, scale):
    data = generators()[name].make(scale, 2026, False)
    degrees = np.diff(data.csr.indptr)
    assert is_symmetric(data.csr)
    assert not has_loops(data.csr)
    assert data.features is data.labels is data.splits is None
    assert degrees.max() > 3 * degrees.mean()
    assert data.csr.rows == int(communities.SHAPES[name].nodes * scale)


def test_chunks_do_not_change_the_draws(monkeypatch):
    whole = generators()["web-like"].make(0.001, 1, True).csr
    monkeypatch.setattr(communities, "CHUNK", 777)
    pieces = generators()["web-like"].make(0.001, 1, True).csr
    assert np.array_equal(whole.indices, pieces.indices)


@pytest.mark.parametrize(("name", "shuffle"), [("reddit-like", False), ("web-like", True)])
def test_community_graphs_equal_the_benchmark_graphs(mirror, name, shuffle):
    """The same arcs as the script that defines them, up to a few in a million."""
    script = mirror.parent / "tools" / "bench_graphs.py"
    if not script.is_file():
        pytest.skip(f"no {script} to compare with")
    spec = importlib.util.spec_from_file_location("bench_graphs", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    indptr, indices = module.generate(name, 0.002, shuffle)
    csr = generators()[name].make(0.002, 2026, shuffle).csr
    n = csr.rows
    expected = np.repeat(np.arange(n), np.diff(indptr)) * n + indices
    found = row_ids(csr).astype(np.int64) * n + csr.indices
    assert len(np.setxor1d(expected, found)) <= 5e-6 * len(expected) + 2
