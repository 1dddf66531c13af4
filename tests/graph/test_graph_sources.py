import gzip
import importlib.util
import re
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest
from graph_helpers import TinyPlanetoid, python2, python2_array, python2_graph
from support.workflow import ROOT
from text_helpers import arcs_of, features_of

from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.csr import is_symmetric, row_ids
from mgg.graph.generate import generate
from mgg.graph.generators import communities, generators
from mgg.graph.sources import find_loader, loaders, planetoid
from mgg.graph.store import Graph

PUBLISHED = {  # nodes, arcs, features, classes, (train, validation, test), isolated nodes: as PyG documents them
    "cora": (2708, 10556, 1433, 7, (140, 500, 1000), 0),
    "citeseer": (3327, 9104, 3703, 6, (120, 500, 1000), 48),
    "pubmed": (19717, 88648, 500, 3, (60, 500, 1000), 0),
}


def loops(csr):
    return int((row_ids(csr) == csr.indices).sum())


@pytest.mark.parametrize("name", PUBLISHED)
def test_planetoid_has_the_published_counts(mirror, tmp_path, name):
    manifest = build(name, tmp_path / name)
    graph = Graph.open(tmp_path / name)
    n = manifest.nodes
    csr, splits, labels = graph.rows(0, n), graph.splits(0, n), graph.labels(0, n)
    counts = tuple(int((splits == split).sum()) for split in (1, 2, 3))
    isolated = int((np.diff(csr.indptr) == 0).sum())
    assert (n, manifest.arcs, manifest.features, manifest.classes, counts, isolated) == PUBLISHED[name]
    assert manifest.symmetric
    assert is_symmetric(csr)
    assert loops(csr) == 0
    train = np.bincount(labels[splits == 1], minlength=manifest.classes)
    assert (train == 20).all()
    unlabeled = np.flatnonzero(labels < 0)
    assert len(unlabeled) == (15 if name == "citeseer" else 0)
    assert not splits[unlabeled].any()
    assert not graph.features(0, n)[unlabeled].any()
    assert (labels[splits > 0] >= 0).all()


@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_planetoid_neighbors_share_labels(mirror, tmp_path, name):
    """Homophily of 0.81 (Cora) and 0.80 (Pubmed), Pei et al. 2020: labels and arcs fit together."""
    n = build(name, tmp_path / name).nodes
    graph = Graph.open(tmp_path / name)
    csr, labels = graph.rows(0, n), graph.labels(0, n)
    assert 0.79 < (labels[row_ids(csr)] == labels[csr.indices]).mean() < 0.83


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(planetoid, "VALIDATION", 3)
    return TinyPlanetoid()


def test_planetoid_by_hand(tiny, tmp_path):
    data = find_loader("planetoid")(tiny.write(tmp_path))
    assert data.arcs.undirected
    assert arcs_of(data.arcs) == [(other, node) for node, others in tiny.graph.items() for other in others]
    features = features_of(data)
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 1, -1, 2]
    assert data.splits.tolist() == [1, 1, 2, 2, 2, 0, 0, 0, 3, 0, 3]
    assert features[:8].tolist() == np.eye(8, 4).tolist()
    assert features[8:].tolist() == [[0.5] * 4, [0] * 4, [0.5] * 4]
    made = build(tmp_path, tmp_path / "graph", loader="planetoid")
    csr = Graph.open(tmp_path / "graph").rows(0, 11)
    edges = {(0, 1), (2, 3), (4, 5), (6, 7), (8, 10)}
    assert set(zip(row_ids(csr).tolist(), csr.indices.tolist(), strict=True)) == edges | {(b, a) for a, b in edges}
    assert (made.listed_arcs, made.dropped_loops, made.dropped_repeats) == (11, 1, 5)


def test_planetoid_arcs_come_in_chunks_of_whole_or_cut_lists(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(planetoid, "CHUNK_ARCS", 2)
    monkeypatch.setattr(planetoid, "BLOCK_VALUES", 9)
    data = find_loader("planetoid")(tiny.write(tmp_path))
    assert max(len(part.targets) for part in data.arcs.read()) == 2
    assert arcs_of(data.arcs) == [(other, node) for node, others in tiny.graph.items() for other in others]
    assert features_of(data)[8:].tolist() == [[0.5] * 4, [0] * 4, [0.5] * 4]


def put(**changes):
    return lambda tiny: [setattr(tiny, name, value) for name, value in changes.items()]


def row(name, index, value):
    return lambda tiny: getattr(tiny, name).__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(test="11\n8\n"), r"ind\.tiny\.test\.index: line 1: test node 11 is outside 8\.\.10"),
        (put(test="10\n-1\n"), r"test\.index: line 2: test node -1"),
        (put(test="10\n3\n"), r"test\.index: line 2: test node 3 is outside 8"),
        (put(test="10\n10\n"), r"test\.index: the test split names node 10, which is already"),
        (put(test="10\n"), r"test\.index: 1 test nodes, tx has 2 rows"),
        (put(test="10\neight\n"), r"test\.index: expected one node id a line.*eight"),
        (put(test="10\n" + "9" * 30 + "\n"), r"test\.index: expected one node id"),
        (row("graph", 3, [2, 11]), r"ind\.tiny\.graph: node 3: neighbor 11 is outside 0\.\.10"),
        (row("graph", 3, [-2]), r"ind\.tiny\.graph: node 3: neighbor -2"),
        (row("graph", 12, []), r"ind\.tiny\.graph: its keys are not the node ids"),
        (put(graph={}), r"ind\.tiny\.graph: its keys"),
        (row("allx", (4, 2), np.nan), r"ind\.tiny\.allx: feature of row 4, column 2 is nan"),
        (row("tx", (1, 0), np.inf), r"ind\.tiny\.tx: feature of row 1, column 0 is inf"),
        (row("ally", (4, 0), 1), r"ind\.tiny\.ally: row 4 names no class or several"),
        (row("ty", (0, 0), 7), r"ind\.tiny\.ty: row 0 names"),
        (put(ty=np.eye(4, dtype=np.int32)[[2, 1]]), r"ind\.tiny\.ty: 4 classes, ally has 3"),
        (put(ty=np.eye(3, dtype=np.int32)), r"ind\.tiny\.ty: expected 2 rows"),
        (put(tx=np.zeros((2, 5), np.float32)), r"ind\.tiny\.tx: 5 feature columns, allx has 4"),
        (put(allx=np.eye(4, dtype=np.float32), ally=np.eye(4, 3, dtype=np.int32)), r"ind\.tiny\.y: 2 training and 3"),
    ],
)
def test_planetoid_files_that_do_not_fit_are_named(tiny, tmp_path, change, message):
    change(tiny)
    with pytest.raises(InputError, match=message) as caught:
        build(tiny.write(tmp_path / "raw"), tmp_path / "graph", loader="planetoid")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]


@pytest.mark.parametrize("part", ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"])
@pytest.mark.parametrize("what", ["missing", "truncated", "text", "code", "other"])
def test_planetoid_files_of_another_kind_are_named(tiny, tmp_path, part, what):
    folder = tiny.write(tmp_path / "raw")
    path = folder / f"ind.tiny.{part}"
    data = path.read_bytes()
    content = {
        "truncated": data[: len(data) // 2],
        "text": b"<html>404: Not Found</html>\n",
        "code": python2(b"cos\nsystem\nU\x09touch ran\x85R"),
        "other": python2(python2_array(np.zeros(3)) if part == "graph" else python2_graph({0: []})),
    }
    if what == "missing":
        path.unlink()
    else:
        path.write_bytes(content[what])
    with pytest.raises(InputError, match=r"tiny|ind\.NAME\.graph" if part == "graph" else rf"ind\.tiny\.{part}"):
        build(folder, tmp_path / "graph", loader="planetoid")
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize("graph", [{0: [1.5]}, {0: "text"}, {"0": []}])
def test_a_planetoid_graph_of_other_values_is_refused(graph):
    files = planetoid._Files.__new__(planetoid._Files)
    object.__setattr__(files, "path", lambda part: part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planetoid, "read_pickle", lambda path: graph)
        with pytest.raises(InputError, match="graph: node"):
            planetoid._graph(files)


def digits_file():
    return resources.files("sklearn.datasets.data") / "digits.csv.gz"


def test_digits_facts(tmp_path):
    manifest = build("digits", tmp_path / "digits")
    graph = Graph.open(tmp_path / "digits")
    assert (manifest.nodes, manifest.arcs, manifest.features, manifest.classes) == (1797, 24678, 64, 10)
    csr, splits, labels = graph.rows(0, 1797), graph.splits(0, 1797), graph.labels(0, 1797)
    assert manifest.symmetric
    assert is_symmetric(csr)
    assert loops(csr) == 0
    assert np.diff(csr.indptr).min() >= 10
    assert np.bincount(splits).tolist() == [0, 200, 500, 1097]
    assert np.bincount(labels[splits == 1]).tolist() == [20] * 10
    features = graph.features(0, 1797)
    assert (features.min(), features.max()) == (0, 1)
    assert (labels[row_ids(csr)] == labels[csr.indices]).mean() > 0.95
    build("digits", tmp_path / "again")
    assert Graph.open(tmp_path / "again").hash == graph.hash


def test_digits_neighbors_are_the_nearest(tmp_path):
    data = find_loader("digits")(digits_file())
    points = features_of(data).astype(np.float64)
    (arcs,) = data.arcs.read()
    pairs = set()
    for node in range(1797):
        distance = np.square(points - points[node]).sum(axis=1)
        distance[node] = np.inf
        closest = np.lexsort((np.arange(1797), distance))[:10]
        pairs |= {(min(node, other), max(node, other)) for other in closest.tolist()}
    found = list(zip(arcs.targets.tolist(), arcs.sources.tolist(), strict=True))
    assert data.arcs.undirected and sorted(pairs) == sorted(found)


def edited(change):
    lines = gzip.decompress(digits_file().read_bytes()).decode().splitlines()
    rows = [line.split(",") for line in lines]
    change(rows)
    return gzip.compress("\n".join(",".join(row) for row in rows).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: digits_file().read_bytes()[:30_000], "not the digits table|ended before"),
        (lambda: b"plain text", "digits.csv.gz"),
        (lambda: gzip.compress(b"1,2\n3,4\n"), "expected 65 columns"),
        (lambda: gzip.compress(b"a,b\n"), "not the digits table"),
        (lambda: edited(lambda rows: rows[5].pop()), "not the digits table"),
        (lambda: edited(lambda rows: rows[5].__setitem__(7, "nan")), "feature of node 5, column 7 is nan"),
        (lambda: edited(lambda rows: rows[5].__setitem__(7, "inf")), "feature of node 5, column 7 is inf"),
        (lambda: edited(lambda rows: rows[5].__setitem__(7, "17")), "pixels must be whole numbers"),
        (lambda: edited(lambda rows: rows[5].__setitem__(64, "10")), "label of node 5 is 10"),
        (lambda: edited(lambda rows: rows[5].__setitem__(64, "-1")), "label of node 5 is -1"),
        (lambda: edited(lambda rows: rows[5].__setitem__(64, "1.5")), "label of node 5 is 1.5"),
    ],
)
def test_a_file_that_is_not_the_digits_is_refused(tmp_path, content, message):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "digits.csv.gz").write_bytes(content())
    with pytest.raises(InputError, match=message):
        build(raw, tmp_path / "graph", loader="digits")
    assert not (tmp_path / "graph").exists()


def test_sources_are_found_by_themselves():
    assert set(loaders()) >= {"digits", "planetoid"}
    assert set(generators()) >= {"planted", "reddit-like", "products-like", "orkut-like", "web-like"}


def test_planted_communities(tmp_path):
    manifest = generate("planted", tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert (manifest.nodes, manifest.classes, manifest.features) == (2000, 10, 32)
    csr, labels = graph.rows(0, 2000), graph.labels(0, 2000)
    assert is_symmetric(csr)
    assert loops(csr) == 0
    assert 0.78 < (labels[row_ids(csr)] == labels[csr.indices]).mean() < 0.86
    assert np.bincount(labels).tolist() == [200] * 10
    assert np.bincount(graph.splits(0, 2000)).tolist() == [0, 200, 500, 1300]


def test_random_features_and_labels_for_a_graph_without(tmp_path):
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


def test_random_labels_leave_no_class_without_training_nodes(tmp_path):
    manifest = generate("reddit-like", tmp_path, scale=0.001, features=2, classes=100)
    graph, n = Graph.open(tmp_path), manifest.nodes
    assert 200 < n < 1000  # so that chance alone leaves some out
    assert np.unique(graph.labels(0, n)[graph.splits(0, n) == 1]).tolist() == list(range(100))


def test_planted_shuffle_renames_the_same_graph(tmp_path):
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
def test_generators_depend_on_seed_and_options_alone(tmp_path, name):
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
def test_communities_are_skewed_symmetric_and_bare(name, scale):
    data = generators()[name].make(scale, 2026, False)
    degrees = np.diff(data.csr.indptr)
    assert is_symmetric(data.csr)
    assert loops(data.csr) == 0
    assert data.features is data.labels is data.splits is None
    assert degrees.max() > 3 * degrees.mean()
    assert data.csr.rows == int(communities.SHAPES[name].nodes * scale)


def test_chunks_do_not_change_the_draws(monkeypatch):
    whole = generators()["web-like"].make(0.001, 1, True).csr
    monkeypatch.setattr(communities, "CHUNK", 777)
    pieces = generators()["web-like"].make(0.001, 1, True).csr
    assert np.array_equal(whole.indices, pieces.indices)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["reddit-like", "products-like", "orkut-like", "web-like"])
def test_communities_equal_the_benchmark_graphs(mirror, name, shuffle):
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


@pytest.mark.parametrize("name", ["planted", *communities.SHAPES])
def test_a_scale_that_leaves_nothing_is_refused(tmp_path, name):
    with pytest.raises(InputError, match=f"{name}: scale 1e-09 gives 0 nodes"):
        generate(name, tmp_path / "graph", scale=1e-9)
    assert list(tmp_path.iterdir()) == []


def test_the_manuals_way_to_what_a_loader_expects():
    """The command of docs/data.md, by the Python that MGG is installed for: a bare pydoc may be another one's."""
    command = re.search(r"`(.*pydoc) mgg\.graph\.sources\.NAME`", (ROOT / "docs/data.md").read_text(encoding="utf-8"))
    assert command is not None
    python, *options = command[1].split()
    assert python == "python"
    shown = subprocess.run(
        [sys.executable, *options, "mgg.graph.sources.table"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Read an edge table, or a folder" in shown.stdout
